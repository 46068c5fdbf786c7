"""Rule F11: a MaxPool with `ceil_mode` has as many windows for TensorRT as for ONNX.

ONNX ignores a window that would begin behind the input (opset 22 states it, ONNX Runtime always did); TensorRT's rounding up
counts it, and so does ONNX's shape inference before opset 22. Such a MaxPool gets `ceil_mode` 0 and the padding at the end
that gives ONNX's number of windows; a maximum ignores padding.
Not: unknown sizes; `auto_pad`; dilations.
"""

from __future__ import annotations

from typing import Optional

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.scales.network import Network


def settle_windows(network: Network) -> None:
    changed = []
    for node in network.graph.of("MaxPool"):
        shape = network.types.static_shape(node.inputs[0])
        ends = _ends(node, shape[2:]) if shape is not None else None
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


def _ends(node: Node, sizes: tuple[int, ...]) -> Optional[list[int]]:
    """The padding at the end of each axis; None where the number of windows is the same for both, or no padding gives it."""
    window = operators.window(node)
    if window is None or not window.rounds_up or window.automatic or window.dilated or len(window.kernel) != len(sizes):
        return None
    count = len(sizes)
    ends, disputed = [], False
    for size, kernel, stride, begin, end in zip(
        sizes, window.kernel, window.strides, window.pads[:count], window.pads[count:]
    ):
        windows = -(-(size + begin + end - kernel) // stride) + 1
        if (windows - 1) * stride >= size + begin:
            windows, disputed = windows - 1, True
        ends.append(max(0, (windows - 1) * stride + kernel - size - begin))
        if (size + begin + ends[-1] - kernel) // stride + 1 != windows or ends[-1] >= kernel:
            return None
    return ends if disputed else None
