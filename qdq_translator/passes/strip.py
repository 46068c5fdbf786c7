"""Rules Q1 to Q11: no quantizer is left; what each said goes into the scale table, the weights are baked.

Requires: the quantizers found in this very graph. Ensures: no QuantizeLinear or DequantizeLinear, every tensor float
where it was codes, graph inputs and outputs under their own names.
"""

from __future__ import annotations

from typing import Optional

import numpy as np
from onnx import TensorProto, helper

from qdq_translator import operators
from qdq_translator.constants import QUANTIZER_DOMAINS, Constants, is_dequantize, is_quantize
from qdq_translator.diagnostics import Diagnostics
from qdq_translator.errors import UnsupportedQuantizer
from qdq_translator.graph import Graph, Node
from qdq_translator.network import Network, TrainedWeight
from qdq_translator.quantizers.activations import Found, find_activation_quantizers
from qdq_translator.quantizers.constants import (
    BakedConstant,
    QuantizedConstant,
    bake,
    find_constant_quantizers,
)
from qdq_translator.quantizers.parameters import Rejected
from qdq_translator.quantizers.series import Link, in_series
from qdq_translator.quantizers.steps import (
    Bounds,
    ClampCodes,
    Dequantize,
    Move,
    Quantize,
    QuantizedInput,
    QuantizedOutput,
    Step,
)
from qdq_translator.scales import Origin
from qdq_translator.settings import QuantizerPolicy
from qdq_translator.weights import Initializer, Keeper
from qdq_translator.words import counted

_OTHER_QUANTIZED_OPS = (
    "QLinearConv",
    "QLinearMatMul",
    "QLinearAdd",
    "QLinearMul",
    "QLinearConcat",
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
    "QLinearSoftmax",
    "QGemm",
    "QAttention",
    "ConvInteger",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLinear",
    "TRT_FP8QuantizeLinear",
    "TRT_FP8DequantizeLinear",
    "TRT_INT4QuantizeLinear",
    "TRT_INT4DequantizeLinear",
    "TRT_FP4DynamicQuantize",
    "TRT_FP4QDQ",
    "ExtendedQuantizeLinear",
    "ExtendedDequantizeLinear",
    "VitisQuantizeLinear",
    "VitisDequantizeLinear",
    "FixNeuron",
    "MatMulNBits",
)
"""Quantized operators that are no Q/DQ of ONNX: refused (fact 8, 8.3)."""
_KEPT_CODES = 2**27
"""Bytes of codes that stay in memory where the float weights lie in a file, which can give them again."""


def strip(network: Network, policy: QuantizerPolicy) -> None:
    """Takes every quantizer out; the codes of each baked weight go into `network.trained`.

    Raises UnsupportedQuantizer with every reason found.
    """
    graph, diagnostics = network.graph, network.diagnostics
    constants = Constants(graph)
    found = find_activation_quantizers(
        graph,
        constants,
        asymmetric=policy.asymmetric,
        per_channel=policy.per_channel,
        missing_zero_point=policy.missing_zero_point,
    )
    weights, rejected = find_constant_quantizers(
        graph, constants, asymmetric=policy.asymmetric, missing_zero_point=policy.missing_zero_point
    )
    rejected = [*found.rejected, *rejected, *_other_quantized_ops(graph), *_quantizers_in_bodies(graph)]
    if rejected:
        raise _refusal(rejected)
    if not found.steps and not weights and not policy.float_model:
        raise UnsupportedQuantizer(
            "The model holds no QuantizeLinear or DequantizeLinear node, so there is nothing to translate.",
            "Quantize it first (QAT or PTQ in QDQ format), or give inputs to calibrate it on with --calibrate.",
        )
    mixed = _mixed_readers(graph, found)
    # what may share nodes with others is replaced when all are computed
    keeper = Keeper(_KEPT_CODES)
    baked: list[tuple[BakedConstant, str]] = []
    for item in weights:
        result = bake(graph, constants, item, policy.weights, policy.missing_zero_point, keeper)
        baked.append((result, _replace_constant(graph, item, result.weight) if _alone(graph, constants, item) else ""))
    for item, (result, name) in zip(weights, baked):
        name = name or _replace_constant(graph, item, result.weight)
        if item.kind == "weight":
            _report_weight(item, result, diagnostics, policy.weights_by_max)
            network.trained[name] = TrainedWeight(result.codes, item.node, item.params.per_channel, result.saturated)
    stripper = _Stripper(network)
    steps, series = in_series(graph, found.steps)
    stripper.apply(steps)
    _report_series(series, stripper, diagnostics)
    for note in found.approximated:
        (diagnostics.info if note.exact else diagnostics.warning)(
            "Q1",
            f"{note.what} Translated because of {note.option}.",
            node=note.node,
            tensor=stripper.name_now(note.tensor),
            data={"coarser": round(note.coarser, 4)},
        )
    for tensor, readers in mixed.items():
        names = ", ".join(f"'{n}'" for n in readers[:3]) + (", ..." if len(readers) > 3 else "")
        diagnostics.info(
            "C2",
            f"Tensor '{tensor}' is quantized for some consumers and read as float by {names}; "
            "in implicit mode its one scale holds for all of them.",
            tensor=stripper.name_now(tensor),
            data={"float_readers": readers},
        )
    _remove_leftovers(graph)
    for node, quantizer in stripper.clamps:
        if graph.producer.get(node.outputs[0]) is node:
            diagnostics.info(
                "Q9",
                f"The quantizer {quantizer} also clamped tensor '{node.inputs[0]}'; the clamp stays as {node.op_type} '{node.name}'.",
                node=node.name,
                tensor=node.outputs[0],
            )


def _refusal(rejected: list[Rejected]) -> UnsupportedQuantizer:
    first = rejected[0]
    more = "" if len(rejected) == 1 else f" ({counted(len(rejected) - 1, 'more quantizer')} cannot be used either)"
    return UnsupportedQuantizer(f"{first.what}{more}", first.hint)


def _other_quantized_ops(graph: Graph) -> list[Rejected]:
    return [
        Rejected(
            node.name,
            node.outputs[0] if node.outputs else "",
            f"{node.op_type} {node.label}"
            + (f" of domain '{node.domain}'" if node.op_type in operators.QUANTIZERS else "")
            + " is a quantized operator that is not part of ONNX's QuantizeLinear/DequantizeLinear.",
            "Export in QDQ format (int8).",
        )
        for node in graph.nodes
        if node.op_type in _OTHER_QUANTIZED_OPS
        or (node.op_type in operators.QUANTIZERS and node.domain not in QUANTIZER_DOMAINS)
    ]


def _report_series(series: list[Link], stripper: _Stripper, diagnostics: Diagnostics) -> None:
    """Rule Q8, in one line."""
    if not series:
        return
    scales: dict[str, list[float]] = {}
    for link in series:
        assert link.before is not None
        seen = scales.setdefault(stripper.name_now(link.source), [])
        seen += [scale for scale in (link.before.scale, link.scale) if scale not in seen]
    first = next(iter(scales))
    more = f" (and {len(scales) - 1} more)" if len(scales) > 1 else ""
    diagnostics.info(
        "Q8",
        f"Tensor '{first}'{more} passes quantizers of different scales one behind the other, which work as one: "
        f"{', '.join(f'{scale:.6g}' for scale in scales[first])}; the smallest holds.",
        tensor=first,
        hint="Quantize it once in the model.",
        data={"scales": scales},
    )


def _mixed_readers(graph: Graph, found: Found) -> dict[str, list[str]]:
    """Rule C2: tensors that some consumers read quantized and others, whose names are given, as float."""
    dequantized = {step.node.outputs[0] for step in found.steps if isinstance(step, Dequantize)}
    sources = dict.fromkeys(step.source for step in found.steps if isinstance(step, Quantize))
    mixed = {s: [n.name for n in graph.consumers(s) if not is_quantize(n)] for s in sources if s not in dequantized}
    return {source: readers for source, readers in mixed.items() if readers}


def _quantizers_in_bodies(graph: Graph) -> list[Rejected]:
    def inside(body: object) -> Optional[str]:
        for node in body.node:  # type: ignore[attr-defined]
            if node.op_type in operators.QUANTIZERS:
                return str(node.name or node.output[0])
            for attribute in node.attribute:
                for inner in [attribute.g, *attribute.graphs]:
                    deeper = inside(inner)
                    if deeper is not None:
                        return deeper
        return None

    rejected = []
    for node in graph.nodes:
        for body in node.subgraphs():
            name = inside(body)
            if name is not None:
                rejected.append(
                    Rejected(
                        node.name,
                        name,
                        f"Quantizer '{name}' stands inside the body of {node.op_type} {node.label}.",
                        "Implicit INT8 cannot reach into control flow; export without If/Loop/Scan around quantized layers.",
                    )
                )
                break
    return rejected


# -------------------------------------------------------------------- constants


def _alone(graph: Graph, constants: Constants, item: QuantizedConstant) -> bool:
    """True for the float weights of one `Q -> DQ`, which take their own place, where no other constant is made of them."""
    readers = graph.consumers(item.tensor)
    made = (output for node in readers for output in node.outputs)
    return item.name != item.tensor and item.tensor not in graph.outputs and not any(map(constants.is_constant, made))


def _replace_constant(graph: Graph, item: QuantizedConstant, weight: Initializer) -> str:
    """Puts one initializer in the place of a constant expression, whose nodes become dead; returns its name.

    A constant that is a graph output keeps that name behind an Identity: the parser wants a node there.
    """
    name = item.name
    if name == item.tensor and name in graph.outputs:
        name = graph.unique_name(f"{name}_value")
    graph.detach(item.tensor)
    weight.name = name
    graph.set_initializer(name, weight)
    graph.value_info.pop(item.tensor, None)
    if name != item.tensor:
        graph.replace_uses(item.tensor, name)
    if item.tensor in graph.outputs:
        graph.outputs[item.tensor].type.tensor_type.elem_type = weight.data_type
        graph.append(Node("Identity", [name], [item.tensor], graph.node_name(f"{item.tensor}_identity")))
    return name


def _report_weight(item: QuantizedConstant, baked: BakedConstant, diagnostics: Diagnostics, by_max: bool) -> None:
    if baked.saturated:
        diagnostics.info(
            "W1",
            f"{counted(baked.saturated, 'code')} -128 of weight '{item.name}' became -127, the lowest that TensorRT's weights have.",
            tensor=item.name,
            node=item.node,
            data={"saturated": baked.saturated},
        )
    if by_max and baked.float_scale_off:
        percent = 100 * (baked.float_scale_error or 0)
        diagnostics.warning(
            "W3",
            f"{counted(baked.float_scale_off, 'scale')} of weight '{item.name}' {'is' if baked.float_scale_off == 1 else 'are'} not max|w|/127 (up to {percent:.3g}% off).",
            tensor=item.name,
            node=item.node,
            hint="If the weights were calibrated by histogram or learned, say so with --calibration_type histogram.",
            data={"channels": baked.float_scale_off, "largest_relative": baked.float_scale_error},
        )


# -------------------------------------------------------------------- activations


class _Stripper:
    def __init__(self, network: Network) -> None:
        self.network, self.graph, self.scales = network, network.graph, network.scales
        self.real: dict[str, str] = {}
        """Tensor that is gone (codes, or a DQ's output) -> the float tensor that stands for it."""
        self.clamped: dict[tuple[str, Optional[float], Optional[float]], str] = {}
        self.floats: dict[tuple[str, np.dtype], str] = {}
        self.ends: dict[str, tuple[Node, float]] = {}
        """Graph output that a node is gone from -> the node, and the scale of its pair."""
        self.clamps: list[tuple[Node, str]] = []
        """Each clamp that stays and the quantizer that it came from."""

    def apply(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Quantize):
                self._quantize(step)
            elif isinstance(step, ClampCodes):
                self._clamp_codes(step)
            elif isinstance(step, Move):
                self._move(step)
            elif isinstance(step, Dequantize):
                self._dequantize(step)
            elif isinstance(step, QuantizedInput):
                self.graph.inputs[step.name].type.tensor_type.elem_type = TensorProto.FLOAT
                if step.real != np.float32:  # the network behind it has that type (rule F9)
                    self.real[step.name] = self._as_float(step.name, step.real)
                self.scales.observe(step.name, step.scale, Origin("Q6", "", step.name, "graph input was int8"))
            else:
                self._output(step)
        self._name_outputs()

    def name_now(self, name: str) -> str:
        """The float tensor that stands for `name` now."""
        while name in self.real:
            name = self.real[name]
        return name

    def _quantize(self, step: Quantize) -> None:
        node, graph = step.node, self.graph
        source = self.name_now(node.inputs[0])
        graph.remove(node)
        if step.integer:
            source = self._as_float(source, step.params.real)
        origin = Origin("Q1", node.name, source)
        if step.clamp is not None and self._cuts(source, step.clamp):
            source = self._clamp(source, step.clamp, step.scale, node, step.params.real)
        else:
            self.scales.observe(source, step.scale, origin)
        self._replace(node, source, step.scale)

    def _as_float(self, source: str, real: np.dtype) -> str:
        """A Cast to the type of the scale behind integers that a quantizer reads; quantizers share it."""
        key = (source, real)
        if key not in self.floats:
            name = self.graph.unique_name(f"{source}_float")
            cast = Node("Cast", [source], [name], self.graph.unique_name(f"{name}_cast"), to=_element(real))
            self.graph.insert_after(cast, self.graph.producer.get(source))
            self.floats[key] = name
        return self.floats[key]

    def _cuts(self, source: str, clamp: Bounds) -> bool:
        """False for a clamp at 0 behind what cannot be negative: the network's Relu is still there."""
        return not (clamp == (0, None) and is_non_negative(self.graph, source))

    def _clamp(
        self,
        source: str,
        clamp: Bounds,
        scale: float,
        quantizer: Node,
        real: np.dtype,
    ) -> str:
        """Rule Q9: the clamp that the pair did survives as a node behind `source`; equal clamps are shared."""
        key = (source, *clamp)
        if key not in self.clamped:
            graph = self.graph
            name = graph.unique_name(f"{source}_clamp")
            node_name = graph.node_name(f"{quantizer.name or source}_clamp")
            node = make_clamp(graph, source, name, clamp, node_name, real)
            producer = graph.producer.get(source)
            graph.insert_after(node, producer)
            self.clamped[key] = name
            self.clamps.append((node, quantizer.label))
        name = self.clamped[key]
        self.scales.observe(name, scale, Origin("Q9", quantizer.name, source))
        return name

    def _clamp_codes(self, step: ClampCodes) -> None:
        node, graph = step.node, self.graph
        source = self.name_now(node.inputs[0])
        graph.remove(node)
        if step.clamp is not None and self._cuts(source, step.clamp):
            source = self._clamp(source, step.clamp, step.scale, node, step.real)
        self._replace(node, source, step.scale)

    def _move(self, step: Move) -> None:
        node, graph = step.node, self.graph
        graph.set_inputs(node, [self.name_now(name) for name in node.inputs])
        if node.is_op("Pad"):  # its constant, if it has one, was a code
            value = ""
            if step.pad_value:
                value = graph.add_initializer(
                    graph.unique_name(f"{node.outputs[0]}_pad"), np.asarray(step.pad_value, step.real)
                )
            graph.set_input(node, 2, value)
        for name in step.moved:
            graph.value_info.pop(name, None)
            self.scales.observe(name, step.scale, Origin("Q10", node.name, node.inputs[0]))

    def _dequantize(self, step: Dequantize) -> None:
        node = step.node
        source = self.name_now(node.inputs[0])
        if step.cast is not None:
            before = node.prev
            self.graph.remove(node)
            cast = Node("Cast", [source], node.outputs, node.name, to=_element(step.cast))
            self.graph.insert_after(cast, before)
            self.scales.observe(node.outputs[0], step.scale, Origin("Q1", node.name, source))
            return
        self.graph.remove(node)
        self._replace(node, source, step.scale)

    def _replace(self, node: Node, source: str, scale: float) -> None:
        """`node` is gone; the readers of what it made get `source`."""
        graph, gone = self.graph, node.outputs[0]
        graph.value_info.pop(gone, None)
        self.real[gone] = source
        graph.replace_uses(gone, source)
        if gone in graph.outputs:
            self.ends[gone] = node, scale

    def _name_outputs(self) -> None:
        """Rule Q7: a graph output keeps its name. Where several are one tensor, that is called as the first of them, in the order
        in which the model declares them."""
        graph = self.graph
        for gone in [name for name in graph.outputs if name in self.ends]:
            node, scale = self.ends[gone]
            source = self.name_now(gone)
            if source not in graph.producer or source in graph.outputs:
                self._identity(source, gone, Origin("Q7", node.name, source), scale)
                continue
            self.network.rename_tensor(source, gone)
            del self.real[gone]
            self.real[source] = gone

    def _identity(self, source: str, output: str, origin: Origin, scale: float) -> None:
        """A graph output that is a graph input or another output: both names stay (fact 4.2). The output has the
        scale of this pair alone, whatever else quantizes the source."""
        node = Node("Identity", [source], [output], self.graph.node_name(f"{output}_identity"))
        self.graph.insert_after(node, self.graph.producer.get(source))
        self.scales.observe(output, scale, origin)
        del self.real[output]

    def _output(self, step: QuantizedOutput) -> None:
        graph = self.graph
        graph.outputs[step.name].type.tensor_type.elem_type = TensorProto.FLOAT
        producer = graph.producer.get(step.name)
        if step.real != np.float32 and producer is not None:
            inside = graph.unique_name(f"{step.name}_float")
            graph.rename_output(producer, step.name, inside)
            cast = Node("Cast", [inside], [step.name], graph.node_name(f"{inside}_cast"), to=TensorProto.FLOAT)
            graph.insert_after(cast, producer)


def _element(real: np.dtype) -> int:
    """The ONNX element type."""
    return int(helper.np_dtype_to_tensor_dtype(real))


def make_clamp(
    graph: Graph,
    source: str,
    output: str,
    clamp: Bounds,
    name: str,
    real: np.dtype,
) -> Node:
    """Relu for [0, inf), else Clip with initializers of type `real` as bounds."""
    if clamp == (0.0, None):
        return Node("Relu", [source], [output], name)
    bounds = []
    for which, bound in zip(("min", "max"), clamp):
        if bound is None:
            bounds.append("")
        else:
            bounds.append(graph.add_initializer(graph.unique_name(f"{output}_{which}"), np.asarray(bound, real)))
    while bounds and not bounds[-1]:
        bounds.pop()
    return Node("Clip", [source, *bounds], [output], name)


_NON_NEGATIVE = (
    "Relu",
    "Sigmoid",
    "Softmax",
    "Abs",
    "Exp",
    "Sqrt",
    "HardSigmoid",
    "Softplus",
    "ReduceSumSquare",
    "ReduceL2",
)
_KEEPS_SIGN = (
    *(*operators.REARRANGES, *operators.PARTS, *operators.POOLING, *operators.SPATIAL_MEANS),
    *("GlobalMaxPool", "ReduceMax", "ReduceSum", "Dropout", "Expand", "Tile", "Cast"),
)
_KEEPS_SIGN_OF_ALL = ("Add", "Mul", "Concat", "Max", "Sum")


def is_non_negative(graph: Graph, name: str) -> bool:
    """True where no input of the network can make the tensor negative. Looks back through a bounded number of nodes."""
    stack, seen = [name], set()
    while stack:
        tensor = stack.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if len(seen) > 64:
            return False
        node = graph.producer.get(tensor)
        if node is None or not node.is_standard or node.is_op("Constant"):
            values = graph.array(tensor)
            if values is None or values.dtype.kind not in "fiu" or (values.size and values.min() < 0):
                return False
            continue
        if node.op_type in _NON_NEGATIVE:
            continue
        if node.op_type == "Clip":
            low, high = operators.clip_bounds(node, graph.array)
            if high is None or high < 0:
                return False
            if low is None or low < 0:
                stack.append(node.inputs[0])
        elif node.op_type == "Pad":
            value = operators.pad_value(node, graph.array)
            if operators.mode(node) == "constant" and (value is None or value < 0):
                return False
            stack.append(node.inputs[0])
        elif (
            node.op_type == "Resize" and operators.mode(node) in ("nearest", "linear")
        ) or node.op_type in _KEEPS_SIGN:
            stack.append(node.inputs[0])
        elif node.op_type in _KEEPS_SIGN_OF_ALL:
            stack.extend(node.inputs)
        else:
            return False
    return True


def _remove_leftovers(graph: Graph) -> None:
    """Quantizers that nothing reads go; one that is still read is an error (no Q/DQ node is left, ever)."""
    from qdq_translator.passes.cleanup import remove_dead_nodes

    remove_dead_nodes(graph)
    for node in graph.nodes:
        if is_quantize(node) or is_dequantize(node):
            raise UnsupportedQuantizer(
                f"{node.op_type} {node.label} could not be removed: {helper.printable_node(node.to_proto())}.",
                "Please report this model; no file was written.",
            )
