"""Rule F6: the parser of the target's TensorRT must be able to read every node.

For TensorRT 8.x: no opset above 17, whose axes inputs its parser silently ignores (fact 4.11, 4.12).

A node stays as it is if by ONNX's schemas its form is also valid in opset 17 (same inputs, attributes absent or at
their default). Otherwise one of these rewrites must apply:

1. `ReduceX(x, axes)`                        -> `ReduceX(x){axes}`      constant axes
2. `Split(x){num_outputs}`                   -> `Split(x)`              where the axis divides evenly, else with sizes
3. `Pad(x, pads, value, axes)`               -> `Pad(x, pads', value)`  constant pads and axes, known rank
"""

from __future__ import annotations

from typing import Callable, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.words import counted
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node, every_node
from qdq_translator.translation.ir.types import Dim, TensorTypes
from qdq_translator.translation.passes import cleanup
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.parser_network import refusal
from qdq_translator.translation.targets.platforms import tensorrt_version
from qdq_translator.translation.targets.settings import Settings

TENSORRT_8_OPSET = 17
_NEW_MEANINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "Resize": {"coordinate_transformation_mode": ("half_pixel_symmetric",)},
    "Pad": {"mode": ("wrap",)},
    "ScatterElements": {"reduction": ("max", "min")},
    "ScatterND": {"reduction": ("max", "min")},
    "GridSample": {"mode": ("linear", "cubic")},
    "DFT": {"its axis became an input": ()},
}
"""Attribute values that only newer versions know; an empty tuple: the whole operator changed."""
_REDUCTIONS = ("Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")


def fit_opset(network: Network, settings: Settings) -> None:
    """Lower the opset for the parser of TensorRT 8. If that is impossible, the model stays unchanged with a warning if
    no platform was specified; otherwise raises UserError."""
    graph, diagnostics = network.graph, network.diagnostics
    if opset_is_readable(graph, settings):
        return
    before = graph.opset()
    try:
        rewritten = lower_opset(graph, network.types)
    except UserError as error:
        if settings.hardware.origin != "default":
            raise
        diagnostics.warning("F6", error.what, hint=error.hint)
        return
    network.changed()
    cleanup.remove_unused_initializers(graph)
    diagnostics.info(
        "F6",
        f"Opset {before} became 17, the highest that TensorRT 8.x reads"
        + (f"; {len(rewritten)} nodes were rewritten for it." if rewritten else "."),
        data={"rewritten": rewritten},
    )


def opset_is_readable(graph: Graph, settings: Settings) -> bool:
    return tensorrt_version(settings.hardware.cache_number)[0] != 8 or graph.opset() <= TENSORRT_8_OPSET


def lower_opset(graph: Graph, types: TensorTypes) -> list[str]:
    """Convert the graph to opset 17; returns the names of the nodes that were rewritten.

    Raises UserError naming the first node for which that is not possible; the graph is then unchanged.
    """
    if graph.opset() <= TENSORRT_8_OPSET:
        return []
    rewritten = []
    undo: list[tuple[Node, list[str], Mapping[str, onnx.AttributeProto]]] = []
    for node in graph.nodes:
        if not node.is_standard:
            continue
        undo.append((node, list(node.inputs), node.attributes))
        problem: Optional[str] = "its body"
        if not any(True for _ in node.subgraphs()):
            rewrite = _REWRITES.get(node.op_type)
            if rewrite is not None and rewrite(graph, types, node):
                rewritten.append(node.name)
            problem = _why_not(node, graph.opset())
        if problem:
            for changed, inputs, attributes in undo:
                graph.set_inputs(changed, inputs)
                changed.attributes = attributes
            raise UserError(
                f"Node {node.label} ({node.op_type}) of opset {graph.opset()} has no exact form in opset "
                f"{TENSORRT_8_OPSET}, the highest that TensorRT 8.x reads ({problem}).",
                f"Export with opset {TENSORRT_8_OPSET} or below, or choose a TensorRT 10 platform.",
            )
    graph.opsets[""] = TENSORRT_8_OPSET
    return rewritten


def _why_not(node: Node, opset: int) -> Optional[str]:
    """Why the node would have a different meaning in opset 17; None if it is the same. Removes attributes at their
    default."""
    try:
        new = onnx.defs.get_schema(node.op_type, opset)
        old = onnx.defs.get_schema(node.op_type, TENSORRT_8_OPSET)
    except onnx.defs.SchemaError:
        return f"{node.op_type} does not exist there"
    if new.since_version == old.since_version:
        return None
    for key, values in _NEW_MEANINGS.get(node.op_type, {}).items():
        if not values or node.get(key) in values:
            return f"its attribute {key}" if values else key
    for key in [key for key in node.attributes if key not in old.attributes]:
        if not _is_default(node, key, new):
            return f"its attribute {key}"
        node.unset(key)
    if len(node.inputs) > old.max_input:
        return f"its input {old.max_input + 1}"
    return None


def _is_default(node: Node, key: str, schema: onnx.defs.OpSchema) -> bool:
    """Whether the operator computes the same without this attribute."""
    if key in ("saturate", "round_mode") or (key == "dilations" and set(node.get(key)) == {1}):
        return True
    given = onnx.helper.get_attribute_value(node.attributes[key])
    return key in schema.attributes and onnx.helper.get_attribute_value(schema.attributes[key].default_value) == given


def _reduce_axes(graph: Graph, types: TensorTypes, node: Node) -> bool:
    given = bool(node.input(1))
    axes = operators.axes(node, graph.array) if given else []
    if axes is None or (not axes and node.get("noop_with_empty_axes", 0)):  # opset 17 reduces all axes then
        return False
    graph.set_inputs(node, node.inputs[:1])
    if axes:
        node.set("axes", axes)
    node.unset("noop_with_empty_axes")
    return given


def _split_outputs(graph: Graph, types: TensorTypes, node: Node) -> bool:
    if "num_outputs" not in node.attributes:
        return False
    _, size = operators.axis_and_size(node, graph.opset(), types.shape(node.inputs[0]))
    if size is None:
        return False
    sizes = operators.split_sizes(node, size, graph.array)
    if sizes is None or sizes[-1] < 0:  # more parts than elements
        return False
    if len(set(sizes)) > 1:
        name = graph.constant(f"{node.name}_split", np.array(sizes, np.int64))
        graph.set_inputs(node, [node.inputs[0], name])
    node.unset("num_outputs")
    return True


def _pad_axes(graph: Graph, types: TensorTypes, node: Node) -> bool:
    if not node.input(3):
        return False
    rank = types.rank(node.inputs[0])
    pads = operators.integers(node, "pads", 1, graph.array)
    axes = operators.non_negative(operators.axes(node, graph.array, 3), rank)
    if pads is None or axes is None or not rank or len(pads) != 2 * len(axes):
        return False
    full = np.zeros(2 * rank, np.int64)
    for i, axis in enumerate(axes):
        full[axis], full[axis + rank] = pads[i], pads[i + len(axes)]
    name = graph.constant(f"{node.name}_pads", full)
    graph.set_inputs(node, [node.inputs[0], name, *node.inputs[2:3]])
    return True


_REWRITES: dict[str, Callable[[Graph, TensorTypes, Node], bool]] = {
    **dict.fromkeys([f"Reduce{kind}" for kind in _REDUCTIONS], _reduce_axes),
    "Split": _split_outputs,
    "Pad": _pad_axes,
}


# ---------------- kernel shape


def complete_convolutions(network: Network) -> None:
    """Rule F6: Conv and ConvTranspose have `kernel_shape`, and their weights are initializers."""
    graph = network.graph
    for node in graph.of("Conv", "ConvTranspose"):
        weight = graph.initializers.get(node.input(1))
        if weight is None:
            network.diagnostics.warning(
                "F6",
                f"The weight of {node.op_type} {node.label} is computed at run time; TensorRT's parser needs an "
                "initializer for an INT8 convolution.",
                node=node.name,
                tensor=node.input(1),
                hint="Export with constant folding on.",
            )
        shape = network.types.static_shape(node.input(1)) if weight is None else weight.dims
        if "kernel_shape" not in node.attributes and shape is not None and len(shape) > 2:
            node.set("kernel_shape", list(shape[2:]))


# ---------------- operators


def check_operators(network: Network, settings: Settings) -> None:
    """Raises UserError for the first unreadable node; only warns if no platform was specified."""
    version = settings.hardware.tensorrt
    graph = network.graph
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += (node, *(Node.from_proto(inner) for body in node.subgraphs() for inner in every_node(body.node)))
    found = [(node, why) for node in nodes for why in [refusal(node, version, graph)] if why is not None]
    if not found:
        return
    node, (what, hint) = found[0]
    more = f" {counted(len(found) - 1, 'more node')} cannot be read either." if len(found) > 1 else ""
    if settings.hardware.origin != "default":
        raise UserError(what + more, hint)
    network.diagnostics.warning("F6", what + more, node=node.name, hint=hint)


# ---------------- windows


def settle_windows(network: Network) -> None:
    """Rule F11: a MaxPool with `ceil_mode` has as many windows for TensorRT as for ONNX.

    ONNX ignores a window that would begin behind the input (opset 22 states it, ONNX Runtime always did); TensorRT's
    rounding up counts it, and so does ONNX's shape inference before opset 22. Such a MaxPool gets `ceil_mode` 0 and the
    padding at the end that gives ONNX's number of windows for every size of the input; a maximum ignores padding. Not:
    `auto_pad`; dilations.
    """
    changed = []
    for node in network.graph.of("MaxPool"):
        ends = _ends(node, (network.types.shape(node.inputs[0]) or ())[2:])
        if ends is not None:
            node.set("pads", [*node.get("pads", [0] * 2 * len(ends))[: len(ends)], *ends])
            node.unset("ceil_mode")
            changed.append(node.name)
            network.graph.value_info.clear()  # sizes behind the node are those of ONNX's inference
    if changed:
        network.changed()
        network.diagnostics.info(
            "F11",
            f"TensorRT would count windows of '{changed[0]}' that begin behind its input; ceil_mode became padding.",
            node=changed[0],
            data={"nodes": changed},
        )


def _ends(node: Node, sizes: Sequence[Dim]) -> Optional[list[int]]:
    """The padding at the end of each axis; None if ONNX and TensorRT count the same windows for every possible size of
    the axes.
    """
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
