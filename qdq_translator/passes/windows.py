"""Rule F11: a MaxPool with `ceil_mode` has as many windows for TensorRT as for ONNX.

ONNX ignores a window that would begin behind the input (opset 22 states it, ONNX Runtime always did); TensorRT's rounding up
counts it, and so does ONNX's shape inference before opset 22. Such a MaxPool gets `ceil_mode` 0 and the padding at the end
that gives ONNX's number of windows for every size of the input; a maximum ignores padding.
Not: `auto_pad`; dilations.
"""

from __future__ import annotations

from typing import Optional, Sequence

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.ir.types import Dim
from qdq_translator.scales.network import Network


def settle_windows(network: Network) -> None:
    changed = []
    for node in network.graph.of("MaxPool"):
        ends = _ends(node, (network.types.shape(node.inputs[0]) or ())[2:])
        if ends is not None:
            node.set("pads", [*node.get("pads", [0] * 2 * len(ends))[: len(ends)], *ends])
            node.unset("ceil_mode")
            changed.append(node.name)
            network.graph.value_info.clear()  # sizes behind it, as ONNX's inference had them
    if changed:
        network.changed()
        network.diagnostics.info(
            "F11",
            f"TensorRT would count windows of '{changed[0]}' that begin behind its input; its ceil_mode became padding.",
            node=changed[0],
            data={"nodes": changed},
        )


def _ends(node: Node, sizes: Sequence[Dim]) -> Optional[list[int]]:
    """The padding at the end of each axis; None if no size that an axis may have gives the two different numbers of windows."""
    window = operators.window(node)
    if window is None or not window.rounds_up or window.automatic or window.dilated:
        return None
    count = len(window.kernel)
    ends, disputed = [], False
    for axis, (kernel, stride, begin, end) in enumerate(
        zip(window.kernel, window.strides, window.pads[:count], window.pads[count:])
    ):
        size = sizes[axis] if axis < len(sizes) else None
        # windows begin at every stride before the end of the input, unless the last ones would leave the padding
        needed = min(kernel - 1, end + stride - 1)
        if isinstance(size, int):
            disputed |= -(-(size + begin + end - kernel) // stride) * stride >= size + begin
            needed = max(0, needed - (size + begin + needed - kernel) % stride)
        else:
            disputed |= kernel < stride + end
        ends.append(needed)
    return ends if disputed else None
