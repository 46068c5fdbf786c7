"""Rules Q1 to Q11: all quantizers are removed; their scales enter the scale table, the weights are baked.

Requires: the quantizers found in this very graph. Ensures: no QuantizeLinear or DequantizeLinear, every quantized
tensor is float, graph inputs and outputs under their own names.
"""

from __future__ import annotations

from onnx import helper

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.words import counted, others
from qdq_translator.ir.constants import Constants, is_dequantize, is_quantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.weights import Initializer
from qdq_translator.passes.strip_activations import Stripper
from qdq_translator.quantizers.activations import SYMMETRICALLY, ActivationQuantizers, Approximated, Found
from qdq_translator.quantizers.constants import (
    BakedConstant,
    Bakery,
    QuantizedConstant,
    find_constant_quantizers,
)
from qdq_translator.quantizers.refused import cost_of, other_quantized_operators, quantizers_in_bodies, refusal
from qdq_translator.quantizers.steps import Dequantize, Link, Quantize, in_series
from qdq_translator.scales.network import Network, TrainedWeight
from qdq_translator.targets.settings import Settings


def strip(network: Network, settings: Settings) -> None:
    """Remove all quantizers; quantized values of baked weights are in `network.trained`.

    Raises UnsupportedQuantizer with every reason found.
    """
    graph, diagnostics = network.graph, network.diagnostics
    constants = Constants(graph)
    found = ActivationQuantizers(
        graph, constants, settings.asymmetric, settings.per_channel_activations, settings.missing_zero_point
    ).run()
    weights, rejected = find_constant_quantizers(
        graph, constants, asymmetric=settings.asymmetric, missing_zero_point=settings.missing_zero_point
    )
    rejected = [*found.rejected, *rejected, *other_quantized_operators(graph), *quantizers_in_bodies(graph)]
    if rejected:
        raise refusal(rejected, found.approximated)
    if not found.steps and not weights and not settings.float_model:
        raise UnsupportedQuantizer(
            "The model has no QuantizeLinear or DequantizeLinear node, so there is nothing to translate.",
            "Quantize it first (QAT or PTQ in QDQ format), or give inputs to calibrate it on with --calibrate.",
        )
    if settings.keep_model and (found.steps or weights):
        raise UnsupportedQuantizer(
            "The model contains QuantizeLinear or DequantizeLinear, which cannot be combined with a calibration cache.",
            "Give the float model, or translate this one without --keep_model.",
        )
    mixed = _mixed_readers(graph, found)
    # what may share nodes with others is replaced when all are computed
    baked: list[tuple[BakedConstant, str]] = []
    for item in weights:
        result = Bakery(graph, constants, item, settings.missing_zero_point).bake(settings.weights)
        baked.append((result, _replace_constant(graph, item, result.weight) if _alone(graph, constants, item) else ""))
    for item, (result, name) in zip(weights, baked):
        name = name or _replace_constant(graph, item, result.weight)
        if item.kind == "weight":
            _report_weight(item, result, diagnostics, settings.calibration_type == "max")
            network.trained[name] = TrainedWeight(result.codes, item.node, item.params.per_channel, result.saturated)
    stripper = Stripper(network)
    steps, series = in_series(graph, found.steps)
    stripper.apply(steps)
    _report_series(series, stripper, diagnostics)
    kept = settings.asymmetric == "keep"
    _report_approximated([n for n in found.approximated if not (kept and n.asymmetric)], stripper, diagnostics)
    for tensor, readers in mixed.items():
        names = ", ".join(f"'{n}'" for n in readers[:3]) + (", ..." if len(readers) > 3 else "")
        diagnostics.info(
            "C2",
            f"Tensor '{tensor}' is quantized for some consumers and read as float by {names}; "
            "in implicit mode one scale applies to all of them.",
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


def _report_approximated(found: list[Approximated], stripper: Stripper, diagnostics: Diagnostics) -> None:
    """Report each one, and for zero points, possibly many, one warning with their total cost."""
    for note in found:
        (diagnostics.info if note.asymmetric else diagnostics.warning)(
            "Q1",
            f"{note.what} Translated because of {note.option}.",
            node=note.node,
            tensor=stripper.name_now(note.tensor),
            data={"coarser": round(note.coarser, 4)},
        )
    cost = cost_of(found)
    if cost:
        option = next(note.option for note in found if note.asymmetric)
        words = "ranges come from the data, because " if option == "--asymmetric data" else ""
        diagnostics.warning("Q1", f"{option}: {words}{cost}.", hint=f"{SYMMETRICALLY}.")


def _report_series(series: list[Link], stripper: Stripper, diagnostics: Diagnostics) -> None:
    """Rule Q8, in one line."""
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
        f"Tensor '{first}'{others(scales, ' (and {} more)')} passes through several quantizers with different scales, which act as one: "
        f"{', '.join(f'{scale:.6g}' for scale in scales[first])}; the smallest scale is used.",
        tensor=first,
        hint="Quantize it once in the model.",
        data={"tensor_scales": scales},
    )


def _mixed_readers(graph: Graph, found: Found) -> dict[str, list[str]]:
    """Rule C2: tensors that some consumers read quantized and others, whose names are given, as float."""
    dequantized = {step.node.outputs[0] for step in found.steps if isinstance(step, Dequantize)}
    sources = dict.fromkeys(step.source for step in found.steps if isinstance(step, Quantize))
    mixed = {}
    for source in sources:
        readers = [n.name for n in graph.consumers(source) if not is_quantize(n)] if source not in dequantized else []
        if readers:
            mixed[source] = readers
    return mixed


def _alone(graph: Graph, constants: Constants, item: QuantizedConstant) -> bool:
    """True for the float weights of one `Q -> DQ`, which they replace, if no other constant is computed from them."""
    if item.name == item.tensor or item.tensor in graph.outputs:
        return False
    made = [name for node in graph.consumers(item.tensor) for name in node.outputs]
    return not any(map(constants.is_constant, made))


def _replace_constant(graph: Graph, item: QuantizedConstant, weight: Initializer) -> str:
    """Puts one initializer in the place of a constant expression, whose nodes become dead; returns its name.

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
            hint="If the weights were calibrated by histogram or learned, use --calibration_type histogram.",
            data={"channels": baked.float_scale_off, "largest_relative": baked.float_scale_error},
        )


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
