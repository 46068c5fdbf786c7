"""Rules Q1 to Q11: remove all quantizers, add their scales to the scale table, and bake the weights.

Requires: the quantizers found in this very graph. Ensures: no QuantizeLinear or DequantizeLinear, every quantized
tensor is float, graph inputs and outputs under their own names.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Collection, Optional, Union

import numpy as np
from onnx import TensorProto, helper

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.words import counted, others, quoted
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.bounds import Range, value_range
from qdq_translator.translation.ir.constants import Constants, is_dequantize, is_quantize, is_quantizer
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.weights import Initializer, Weight
from qdq_translator.translation.passes.cleanup import remove_dead_nodes
from qdq_translator.translation.quantizers import parameters, steps
from qdq_translator.translation.quantizers.activations import SYMMETRICALLY, ActivationQuantizers
from qdq_translator.translation.quantizers.constants import Bakery, QuantizedConstant, find_constant_quantizers
from qdq_translator.translation.quantizers.saturation import become, clamp_node
from qdq_translator.translation.scales.network import Network, TrainedWeight
from qdq_translator.translation.scales.table import Origin
from qdq_translator.translation.targets.settings import Settings


def strip(network: Network, settings: Settings) -> None:
    """Remove all quantizers; quantized values of baked weights are in `network.trained`.

    Raises UnsupportedQuantizer with every reason found.
    """
    graph, diagnostics = network.graph, network.diagnostics
    constants = Constants(graph, settings.missing_zero_point)
    found = ActivationQuantizers(constants, settings.asymmetric, settings.per_channel_activations).run()
    weights, rejected = find_constant_quantizers(constants, settings.asymmetric)
    rejected = [*found.rejected, *rejected, *parameters.unusable_operators(graph)]
    if rejected:
        raise parameters.refusal(rejected, found.approximated)
    if not found.steps and not weights and not settings.float_model:
        raise UnsupportedQuantizer(
            "The model has no QuantizeLinear or DequantizeLinear node, so it has no scales.",
            "Give data to calibrate it on too, or give both to deploy, which does all steps; or quantize it first (QAT "
            "or PTQ in QDQ format).",
        )
    if settings.keep_model and (found.steps or weights):
        raise UnsupportedQuantizer(
            "The model contains QuantizeLinear or DequantizeLinear, which cannot be combined with a calibration cache.",
            "Give the float model, or translate this one without --keep_model.",
        )
    mixed = _mixed_readers(graph, found)
    _bake(network, constants, weights, settings)
    stripper = Stripper(network, settings.asymmetric == "keep", settings.saturating, settings.idle)
    settled, series = steps.in_series(graph, found.steps)
    stripper.apply(settled)
    _report_series(series, stripper, diagnostics)
    kept = settings.asymmetric == "keep"
    _report_approximated([n for n in found.approximated if not (kept and n.asymmetric)], stripper, diagnostics)
    for tensor, readers in mixed.items():
        diagnostics.info(
            "C2",
            f"Tensor '{tensor}' is quantized for some consumers and read as float by {quoted(readers)}; "
            "in implicit mode one scale applies to all of them.",
            tensor=stripper.name_now(tensor),
            data={"float_readers": readers},
        )
    _remove_leftovers(graph)
    stripper.settle_clamps()


def _bake(network: Network, constants: Constants, weights: list[QuantizedConstant], settings: Settings) -> None:
    graph = network.graph
    # constants may share nodes, so they are replaced after all are computed
    baked: list[tuple[Bakery, str]] = []
    for item in weights:
        result = network.baked.get(item.tensor) or Bakery(constants, item, settings.weights)
        if isinstance(result.weight, Weight):
            network.baked[item.tensor] = result
        baked.append((result, _replace_constant(graph, item, result.own()) if _alone(graph, constants, item) else ""))
    for item, (result, name) in zip(weights, baked):
        name = name or _replace_constant(graph, item, result.own())
        if item.kind == "weight":
            _report_weight(item, result, network.diagnostics, settings.calibration_type == "max")
            network.trained[name] = TrainedWeight(result.codes, item.node, item.params.per_channel, result.saturated)


def _report_approximated(found: list[parameters.Approximated], stripper: Stripper, diagnostics: Diagnostics) -> None:
    """Report each approximated quantizer; those with zero points, possibly many, in one warning with their total
    cost."""
    for note in found:
        (diagnostics.info if note.asymmetric else diagnostics.warning)(
            "Q1",
            f"{note.what} Translated because of {note.option}.",
            node=note.node,
            tensor=stripper.name_now(note.tensor),
            data={"coarser": round(note.coarser, 4)},
        )
    cost = parameters.cost_of(found)
    if cost:
        option = next(note.option for note in found if note.asymmetric)
        words = "ranges come from the data, because " if option == "--asymmetric data" else ""
        diagnostics.warning("Q1", f"{option}: {words}{cost}.", hint=f"{SYMMETRICALLY}.")


def _report_series(series: list[steps.Link], stripper: Stripper, diagnostics: Diagnostics) -> None:
    """Report quantizers in series (rule Q8) in one line."""
    if not series:
        return
    scales: dict[str, list[float]] = {}
    for link in series:
        assert link.before is not None
        seen = scales.setdefault(stripper.name_now(link.source), [])
        seen += [scale for scale in (link.before.scale, link.scale) if scale not in seen]
    first = next(iter(scales))
    diagnostics.info(
        "Q8",
        f"Tensor '{first}'{others(scales, ' (and {} more)')} passes through several quantizers with different scales, "
        f"which act as one: {', '.join(f'{scale:.6g}' for scale in scales[first])}; the smallest scale is used.",
        tensor=first,
        hint="Quantize it once in the model.",
        data={"tensor_scales": scales},
    )


def _mixed_readers(graph: Graph, found: ActivationQuantizers) -> dict[str, list[str]]:
    """Rule C2: tensors that some consumers read quantized and others, whose names are given, as float."""
    dequantized = {step.node.outputs[0] for step in found.steps if isinstance(step, steps.Dequantize)}
    sources = dict.fromkeys(step.node.inputs[0] for step in found.steps if isinstance(step, steps.Quantize))
    readers = {s: [n.name for n in graph.consumers(s) if not is_quantize(n)] for s in sources if s not in dequantized}
    return {source: names for source, names in readers.items() if names}


def _alone(graph: Graph, constants: Constants, item: QuantizedConstant) -> bool:
    """True for the float weights of one `Q -> DQ` if no other constant is computed from them: the new initializer may
    have their name."""
    if item.name == item.tensor or item.tensor in graph.outputs:
        return False
    made = [name for node in graph.consumers(item.tensor) for name in node.outputs]
    return not any(map(constants.is_constant, made))


def _replace_constant(graph: Graph, item: QuantizedConstant, weight: Initializer) -> str:
    """Replace a constant expression, whose nodes become dead, with one initializer; returns its name.

    A constant that is a graph output keeps that name behind an Identity: the parser requires a node there.
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


def _report_weight(item: QuantizedConstant, baked: Bakery, diagnostics: Diagnostics, by_max: bool) -> None:
    if baked.saturated:
        diagnostics.info(
            "W1",
            f"{counted(baked.saturated, 'code')} -128 of weight '{item.name}' became -127, the lowest that TensorRT's "
            "weights have.",
            tensor=item.name,
            node=item.node,
            data={"saturated": baked.saturated},
        )
    if by_max and baked.scales_off:
        percent = 100 * (baked.scale_error or 0)
        diagnostics.warning(
            "W3",
            f"{counted(baked.scales_off, 'scale')} of weight '{item.name}' {'is' if baked.scales_off == 1 else 'are'} "
            f"not max|w|/127 (up to {percent:.3g}% off).",
            tensor=item.name,
            node=item.node,
            hint="If the weights were calibrated by histogram or learned, use --calibration_type histogram.",
            data={"channels": baked.scales_off, "largest_relative": baked.scale_error},
        )


def _remove_leftovers(graph: Graph) -> None:
    """Remove quantizers without readers; one that is still read is an error, because no Q/DQ node may remain."""
    remove_dead_nodes(graph)
    for node in graph.nodes:
        if is_quantizer(node):
            raise UnsupportedQuantizer(
                f"{node.op_type} {node.label} could not be removed: {helper.printable_node(node.to_proto())}.",
                "Please report this model; no file was written.",
            )


# ---------------- the steps from Q to DQ (rules Q1, Q6, Q7, Q9, Q10)


class Stripper:
    """Removes the activation quantizers of a graph and observes their scales."""

    def __init__(
        self,
        network: Network,
        kept: bool,
        saturating: Collection[str],
        idle: Collection[tuple[str, int]],
    ) -> None:
        """Strip the quantizers of a graph. kept: zero points stay (`--asymmetric keep`). saturating: symmetric
        quantizers that saturate as a node, the first of those that are equal. idle: see `Settings`."""
        self.network, self.graph, self.scales = network, network.graph, network.scales
        self.kept, self.saturating, self.idle = kept, saturating, idle
        network.unsaturated = bool(saturating)
        self.first: dict[tuple[str, float], str] = {}
        """Tensor and symmetric scale -> the first quantizer of the two."""
        self.real: dict[str, str] = {}
        """Removed tensor (quantized values, or a DQ's output) -> the float tensor that replaces it."""
        self.clamped: dict[tuple[str, Optional[float], Optional[float]], str] = {}
        self.shared: set[str] = set()
        """Clamped tensors of several quantizers, whose DequantizeLinear may yet read them by another name."""
        self.floats: dict[tuple[str, np.dtype], str] = {}
        self.ends: dict[str, tuple[Node, float]] = {}
        """Graph output whose quantizer was removed -> that node, and the scale of its pair."""
        self.clamps: list[tuple[Node, str, str, float, Origin]] = []
        """Each clamp with the quantizer that it comes from, and that one's tensor, scale and origin."""

    def apply(self, found: list[steps.Step]) -> None:
        apply: dict[type, Callable[[Any], None]] = {
            steps.Quantize: self._quantize,
            steps.ClampCodes: self._clamp_codes,
            steps.Move: self._move,
            steps.Dequantize: self._dequantize,
            steps.End: self._end,
        }
        for step in found:
            apply[type(step)](step)
        self._name_outputs()

    def settle_clamps(self) -> None:
        """Report the clamps that stay. One that nothing read is gone: the scale is that of its tensor then."""
        for node, quantizer, source, scale, origin in self.clamps:
            if self.graph.producer.get(node.outputs[0]) is not node:
                if source in self.graph.producer or source in self.graph.inputs:
                    self.scales.observe(source, scale, origin)
            else:
                self.network.diagnostics.info(
                    "Q9",
                    f"The quantizer {quantizer} also clamped tensor '{node.inputs[0]}'; the clamp stays as "
                    f"{node.op_type} '{node.name}'.",
                    node=node.name,
                    tensor=node.outputs[0],
                    data={"quantizer": origin.node},
                )

    def name_now(self, name: str) -> str:
        """The float tensor that replaces `name`."""
        while name in self.real:
            name = self.real[name]
        return name

    def _quantize(self, step: steps.Quantize) -> None:
        node, graph = step.node, self.graph
        source = self.name_now(node.inputs[0])
        graph.remove(node)
        if step.integer:
            source = self._as_float(source, step.codes.params.real)
        origin = Origin("Q1", node.name, source, step.codes.note, step.codes.grid)
        first = self.first.setdefault((source, float(np.float32(step.scale))), node.name)
        low, high = step.codes.clamp(self.kept, first in self.saturating) or (None, None)
        bounds = None if (first, 0) in self.idle else low, None if (first, 1) in self.idle else high
        clamped = self._clamp(source, bounds, step, step.codes.params.real, origin)
        if clamped == source:
            self.scales.observe(source, step.scale, origin)
        self._replace(node, clamped, step.scale)

    def _as_float(self, source: str, real: np.dtype) -> str:
        """A Cast of integers that a quantizer reads to the type of the scale; quantizers share it."""
        key = (source, real)
        if key not in self.floats:
            name = self.graph.unique_name(f"{source}_float")
            cast = Node("Cast", [source], [name], self.graph.unique_name(f"{name}_cast"))
            cast.set("to", helper.np_dtype_to_tensor_dtype(real))
            self.graph.insert_after(cast, self.graph.producer.get(source))
            self.floats[key] = name
        return self.floats[key]

    def _clamp(
        self,
        source: str,
        clamp: Optional[steps.Bounds],
        step: Union[steps.Quantize, steps.ClampCodes],
        real: np.dtype,
        origin: Origin,
    ) -> str:
        """Rule Q9: keep the saturation of the pair as a node behind `source`; equal ones are shared, and one behind a
        Relu or Clip that nothing else reads replaces it. Returns `source` itself if no value exceeds the bounds."""
        graph, quantizer = self.graph, step.node
        values = value_range(graph, source)
        bounds = _acting(clamp or (None, None), values)
        if bounds == (None, None):
            return source
        if bounds[0] is None and values[0] >= 0:  # with an idle lower bound of 0 it is a clipped Relu, which a DLA has
            bounds = 0.0, bounds[1]
        key = (source, *bounds)
        if key in self.clamped:
            self.shared.add(self.clamped[key])
        else:
            node, name = graph.producer.get(source), source
            within = None if node is None or self._is_read(source) else _clamped_range(graph, node)
            if node is None or within is None:
                name = graph.unique_name(f"{source}_clamp")
                own = graph.node_name(f"{quantizer.name or source}_clamp")
                node = graph.insert_after(clamp_node(graph, source, name, *bounds, own, real), node)
                self.network.clamps.append((node, (quantizer.name, quantizer.op_type)))
                if origin.note == steps.ASYMMETRIC:
                    self.network.saturations[source] = self.first[source, float(np.float32(step.scale))], bounds
            else:
                self.clamped = {of: name for of, name in self.clamped.items() if name != source}  # it is another now
                both = _acting(_narrowed(within, bounds), (-math.inf, math.inf))
                become(graph, node, clamp_node(graph, node.inputs[0], source, *both, node.name, real))
            self.clamped[key] = name
            self.clamps.append((node, quantizer.label, source, step.scale, origin))
        name = self.clamped[key]
        self.scales.observe(name, step.scale, Origin("Q9", quantizer.name, source, origin.note, origin.grid))
        return name

    def _is_read(self, name: str) -> bool:
        """True if a node or a graph output reads the float tensor `name`, or if several quantizers were replaced by it.
        A clamp that makes such a tensor must not be narrowed for one of its readers."""
        return name in self.shared or self.graph.is_used(name) or name in map(self.name_now, self.graph.outputs)

    def _clamp_codes(self, step: steps.ClampCodes) -> None:
        source = self.name_now(step.node.inputs[0])
        self.graph.remove(step.node)
        self._replace(step.node, self._clamp(source, step.clamp, step, step.real, Origin("Q9")), step.scale)

    def _move(self, step: steps.Move) -> None:
        node, graph = step.node, self.graph
        graph.set_inputs(node, [self.name_now(name) for name in node.inputs])
        if node.is_op("Pad"):  # its constant, if any, was a quantized value
            value = ""
            if step.pad_value:
                constant = np.asarray(step.pad_value, step.codes.params.real)
                value = graph.constant(f"{node.outputs[0]}_pad", constant)
            graph.set_input(node, 2, value)
        for name in step.moved:
            graph.value_info.pop(name, None)
            origin = Origin("Q10", node.name, node.inputs[0], step.codes.note, step.codes.grid)
            self.scales.observe(name, step.scale, origin)

    def _dequantize(self, step: steps.Dequantize) -> None:
        node = step.node
        source = self.name_now(node.inputs[0])
        before = node.prev
        self.graph.remove(node)
        if step.cast is None:
            self._replace(node, source, step.scale)
        else:
            cast = Node("Cast", [source], node.outputs, node.name, to=helper.np_dtype_to_tensor_dtype(step.cast))
            self.graph.insert_after(cast, before)
            self.scales.observe(node.outputs[0], step.scale, Origin("Q1", node.name, source))

    def _replace(self, node: Node, source: str, scale: float) -> None:
        """Remove `node`; its readers read `source`. A DQ reader, nearly always the only one, is removed later."""
        graph, gone = self.graph, node.outputs[0]
        graph.value_info.pop(gone, None)
        self.real[gone] = source
        reader = graph.only_consumer(gone)
        if reader is None or not is_dequantize(reader):
            graph.replace_uses(gone, source)
        if gone in graph.outputs:
            self.ends[gone] = node, scale

    def _name_outputs(self) -> None:
        """Rule Q7: graph outputs keep their names. A tensor that serves as several outputs gets the name of the first
        in the order of the model."""
        graph = self.graph
        for gone in [name for name in graph.outputs if name in self.ends]:
            source = self.name_now(gone)
            del self.real[gone]
            if source in graph.producer and source not in graph.outputs:
                self.network.rename_tensor(source, gone)
                self.real[source] = gone
                continue
            # a graph input or another output: both names stay (fact 4.2), this one with the scale of its own pair
            node, scale = self.ends[gone]
            identity = Node("Identity", [source], [gone], graph.node_name(f"{gone}_identity"))
            graph.insert_after(identity, graph.producer.get(source))
            self.scales.observe(gone, scale, Origin("Q7", node.name, source))

    def _end(self, step: steps.End) -> None:
        graph, name = self.graph, step.name
        (graph.inputs if step.is_input else graph.outputs)[name].type.tensor_type.elem_type = TensorProto.FLOAT
        if step.is_input:
            graph.coded[name] = step.params
            if step.real != np.float32:  # the rest of the network has that type (rule F9)
                self.real[name] = self._as_float(name, step.real)
            self.scales.observe(name, step.scale, Origin("Q6", "", name, "graph input was int8"))
        elif step.real != np.float32 and name in graph.producer:
            inside = graph.before_output(name)
            cast = Node("Cast", [inside], [name], graph.node_name(f"{inside}_cast"), to=TensorProto.FLOAT)
            graph.insert_behind(inside, [cast])


def _acting(bounds: steps.Bounds, values: Range) -> steps.Bounds:
    """The bounds without those that these values do not exceed: by rounding at most."""
    low, high = bounds
    slack = _ROUNDING * max(abs(bound) for bound in (low or 0.0, high or 0.0))
    return (
        None if low is None or low - slack <= values[0] else low,
        None if high is None or high + slack >= values[1] else high,
    )


_ROUNDING = 1e-6
"""Bounds closer than this are one: a scale of 1/255 is a rounded number, and so is 255 times it."""


def _clamped_range(graph: Graph, node: Node) -> Optional[Range]:
    """The bounds of a Relu or Clip; None for another node, and if they are computed."""
    if node.is_op("Relu"):
        return 0.0, math.inf
    low, high = operators.clip_bounds(node, graph.array) if node.is_op("Clip") else (None, None)
    return None if low is None or high is None else (low, high)


def _narrowed(within: Range, bounds: steps.Bounds) -> steps.Bounds:
    """One clamp that does what two do, that of `within` first."""
    low, high = (-math.inf if bounds[0] is None else bounds[0], math.inf if bounds[1] is None else bounds[1])
    return min(max(within[0], low), high), min(max(within[1], low), high)
