"""Verdict of `verify` on an output, relative to the expected cost of rounding (docs/verdict.md explains the verdicts
and their basis).

Except for clipping, rounding to a step s is like adding noise that is uniform between -s/2 and s/2 (Widrow: variance
s*s/12). So the expected difference of an output is measured between the explicit model and the translated one with such
noise in place of every rounding. The steps are not the engine's but those of `proper_scales`; scales that the model
specifies clip there too, other scales do not. Weights are rounded as in the engine.

An energy measured on n samples has the distribution chi-square(n)/n (a network's errors on one sample are correlated,
so a sample counts once). A correct translation exceeds the limit with a probability of 0.13% (three standard errors of
a single comparison), for any number of outputs and slices compared (Bonferroni).

A bad scale in the explicit model itself affects both, and a comparison of the two cannot detect it (`verify --float`
and `--audit` do). Further checks, against the given model and not against the translation:

- `float_twin`: the model without the rounding of its activation quantizers. Weights stay rounded, and a quantizer that
  clamps at zero (rule Q9) becomes a Relu. The translated network in float must compute the same.
- A tensor that the model quantizes has the scale that the model states, or one between them if it states several (rule
  C1). Scales that were replaced or raised on request (rules K2 and U1; with `--asymmetric data` all but stated ones)
  are not compared.
- For each scale that did not come from data, the rule that its origin names is applied again, to all other scales.
- A scale observed on data (rule K1) does not exceed the bound of its operator (rule B1).
- A layer that is planned in INT8 has the scales for it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Collection, Iterable, Iterator, Mapping, Optional

import numpy as np
import onnx

from qdq_translator.core.formats.verify_rows import Judged, Verdict
from qdq_translator.core.rules import MARKERS, RULES, STATED
from qdq_translator.ir.constants import Constants, is_dequantize, is_quantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import SIGMOIDS
from qdq_translator.ir.qparams import INT8_MAX, QuantParams
from qdq_translator.ir.types import FLOAT_TYPES, TensorTypes
from qdq_translator.ir.weights import to_array, weight_of
from qdq_translator.quantizers.parameters import known_parameters
from qdq_translator.scales.inference import ScaleRule, all_rules, rules_by_op
from qdq_translator.scales.inference.context import Context, Policy
from qdq_translator.scales.inference.formulas import WITHIN_ONE
from qdq_translator.scales.table import Origin, ScaleTable, TensorScale
from qdq_translator.simulate.calibration.methods import clipped, energy, mse, squared_error
from qdq_translator.simulate.calibration.observe import observe
from qdq_translator.simulate.compare import EXPLICIT, SIMULATED, Comparing, Setup, compare, outputs_of
from qdq_translator.simulate.counterparts import Counterparts
from qdq_translator.simulate.evaluation import Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, copy_model, simulate
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import Comparison, SlicedComparison, noise_to_db
from qdq_translator.simulate.run import CodedEnds, ExplicitNetwork, Sliced, folded
from qdq_translator.targets.precision import INT8

EQUAL, ROUNDING, SUSPICIOUS, BROKEN = VERDICTS = ("equal", "within expected rounding", "suspicious", "broken")
FALSE_ALARM = 0.00135
"""Probability that a correct translation is called suspicious: three standard errors."""
MEASURED_RUNS = 32
"""Runs of the network for measuring the expected noise."""
EQUAL_DB, SAME_DB, SAME_HALF_DB = 80.0, 40.0, 35.0
"""Least SQNR of two networks that compute the same function: in float32; in float32 if weights of -128 steps became
-127, or on random inputs of `--prove`; if one of them computes in float16."""
HARMLESS = 10**-4.5
"""Noise energy of 45 dB, that of a single rounding to INT8. Less is never suspicious."""
LAST_BIT_DB = 20.0
"""Another order of summation may cost this many dB more than a change in the last bit of every weight does. The
function of a network that amplifies its rounding (values that grow from layer to layer) is not defined more
precisely."""
INFERRED = 4.0
"""Largest step, as a multiple of the best one, of a rule that infers upper bounds without data (S7, S8, S11). Scales
from data have no such allowance."""
BRIEF_RUNS = 4


def float_twin(explicit: ExplicitNetwork) -> Graph:
    """The explicit model without the rounding of activations; quantized graph inputs and outputs become float32."""
    model = folded(explicit.model)
    graph = Graph.from_model(copy_model(model) if model is explicit.model else model)
    without_rounding(graph, explicit.ends)
    return graph


def without_rounding(graph: Graph, ends: CodedEnds) -> None:
    """`float_twin` in place, for a graph with these quantized inputs and outputs."""
    constants = Constants(graph)
    varying = set(graph.inputs)
    codes: dict[str, QuantParams] = {}
    for node in list(graph.nodes):
        if not varying.intersection(node.reads()):
            continue
        varying.update(node.outputs)
        source = node.inputs[0] if node.inputs else ""
        if is_quantize(node) or is_dequantize(node):
            read = known_parameters(constants, node)
            if is_quantize(node) and isinstance(read, QuantParams):
                codes[node.outputs[0]] = read
            _pass_on(graph, node, is_quantize(node) and _cuts_at_zero(read, None))
        elif source in codes and node.is_op("Clip"):
            _pass_on(graph, node, _cuts_at_zero(codes[source], graph.array(node.input(1))))
        elif source in codes:
            codes.update(dict.fromkeys(node.outputs, codes[source]))
    graph.value_info.clear()
    for name, value in (*graph.inputs.items(), *graph.outputs.items()):
        if name in ends.inputs or name in ends.outputs:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def _cuts_at_zero(params: object, lowest: Optional[np.ndarray]) -> bool:
    """Whether the smallest quantized value represents zero."""
    if not isinstance(params, QuantParams) or params.zero_point.size != 1:
        return False
    bound = params.code_range[0] if lowest is None else int(lowest.reshape(-1)[0])
    return bound == int(params.zero_point.reshape(-1)[0])


def _pass_on(graph: Graph, node: Node, clamps: bool) -> None:
    graph.set_inputs(node, node.inputs[:1])
    graph.set_operator(node, "Relu" if clamps else "Identity")
    node.domain = ""
    for key in list(node.attributes):
        node.unset(key)


def apart(
    reference: onnx.ModelProto, ends: CodedEnds, other: onnx.ModelProto, samples: Samples, runs: int, where: Evaluation
) -> dict[str, SlicedComparison]:
    """Common output -> comparison of two networks on the first runs. ends: of the reference."""
    given, pair = {value.name for value in reference.graph.output}, (EXPLICIT, SIMULATED)
    names = [value.name for value in other.graph.output if value.name in given]
    stages = dict(zip(pair, (reference, other)))
    work = Comparing(stages, ends, outputs_of([pair], names), samples, where.provider, names)
    found = where.over(work, min(samples.runs, runs)).rows
    return {name: found[EXPLICIT, SIMULATED, name] for name in names}


def other_function(given: Graph, other: Graph, samples: Samples, least: float = SAME_DB) -> dict[str, float]:
    """Output -> SQNR in dB of the translated float network `other` against the float twin `given`, if it is below
    `least` dB, and lower than the model's float rounding explains (`LAST_BIT_DB`). The first `BRIEF_RUNS` runs are
    compared. Raises UserError if one of the two cannot be run."""
    half = any(t.data_type == onnx.TensorProto.FLOAT16 for t in given.initializers.values())
    least = SAME_HALF_DB if half else least
    floats = {n for n, v in other.outputs.items() if v.type.tensor_type.elem_type in FLOAT_TYPES} & given.outputs.keys()
    found = {name: db for name, db in _decibels(given, other, floats, samples).items() if db < least}
    if found:
        own = _decibels(given, _last_bits_changed(given), found, samples)
        found = {name: db for name, db in found.items() if db < own[name] - LAST_BIT_DB}
    return found


def _decibels(given: Graph, other: Graph, names: Collection[str], samples: Samples) -> dict[str, float]:
    """Output -> SQNR of two float networks, computed in slices: neither is in memory as a whole."""
    one, two = (Sliced(g, TensorTypes(g), what, names) for g, what in ((given, "given"), (other, "translated")))
    rows = {name: Comparison() for name in names}
    for run in range(min(samples.runs, BRIEF_RUNS)):
        feed = samples.feed(run)
        wanted = dict(one.run(feed))
        for name, values in two.run(feed):
            compare(rows[name], wanted[name], values, name, "given", "translated")
    return {name: row.sqnr_db for name, row in rows.items()}


def _last_bits_changed(given: Graph) -> Graph:
    """The network with its constants computed, and every float32 weight moved to one of its two neighbours in float32,
    at random.
    """
    graph, random = Graph.from_model(folded(given.to_model())), np.random.default_rng(0)
    for name, tensor in list(graph.initializers.items()):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = to_array(tensor)
            towards = np.where(random.random(values.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
            graph.set_initializer(name, weight_of(name, np.nextafter(values, towards)))
    return graph


def _stated(network: ImplicitNetwork, names: Counterparts) -> dict[str, list[float]]:
    """Tensor -> scales that the model states for it, [] for none; without tensors whose scale was replaced or raised on
    request.
    """
    rules, by_data = network.rules, network.option.get("asymmetric") == "data"
    chosen = {name for name, rule in rules.items() if rule in CHOSEN or (by_data and rule not in STATED)}
    return {tensor: names.stated(tensor) for tensor in names.stripped.tensors() if tensor not in chosen}


@dataclasses.dataclass
class Proper:
    """stated: tensor -> scale that the model states. others: scales of the other rounded tensors. tight: tensor ->
    (share of the values that its calibrated range clips, its SQNR in dB)."""

    stated: dict[str, float]
    others: dict[str, float]
    tight: dict[str, tuple[float, float]]


def proper_scales(setup: Setup) -> Proper:
    """The scales for measuring the expected rounding: those that the model states, and for all other tensors the range
    with the least squared error on the data, or up to `INFERRED` times that if a rule inferred it. Random inputs do not
    determine a range: with them, the translation's range counts."""
    network, graph = setup.network, setup.names.stripped
    planned, rules = {**network.scales, **network.config.get("int8_tensor_scales", {})}, network.rules
    stated: dict[str, float] = {}
    for tensor, found in _stated(network, setup.names).items():
        if found:
            stated[tensor] = min(max(planned.get(tensor, found[-1]), found[0]), found[-1])
        elif rules.get(tensor) in STATED and tensor in planned:
            stated[tensor] = planned[tensor]  # a clamp's output, or an input of data movement on quantized values
    gates = {n.outputs[0] for n in graph.nodes if setup.options.sigmoid_fp16 and n.is_op(*SIGMOIDS)}
    held = setup.simulated.placement.held.keys() & planned.keys() - gates - stated.keys()
    proper = Proper(stated, {name: planned[name] for name in setup.simulated.placement.held if name in held}, {})
    if not setup.random:
        _limit_to_data(setup, proper)
    return proper


def _limit_to_data(setup: Setup, proper: Proper) -> None:
    """A calibrated range that clips so much that its error is `INFERRED`**2 times that of the best one is `tight`."""
    graph, others = setup.names.stripped, proper.others
    few = setup.samples.some(BRIEF_RUNS * 2)
    observed = observe(graph, TensorTypes(graph), proper.stated, list(others), few, where=setup.where)
    for name, histogram in observed.histograms.items():
        if not 0 < histogram.amax < math.inf:
            continue
        best, amax = mse(histogram), others[name] * INT8_MAX
        noise, least = (float(e) for e in squared_error(histogram, np.array([amax, best])))
        calibrated = setup.network.rules.get(name) == CALIBRATED
        if calibrated and amax < best and noise > max(INFERRED**2 * least, HARMLESS * energy(histogram)):
            proper.tight[name] = clipped(histogram, amax), noise_to_db(noise / energy(histogram))
        others[name] = min(others[name], (1.0 if calibrated else INFERRED) * best / INT8_MAX)


SAME = 1e-3
"""Relative difference of two scales that count as equal: float16 has 11 bits."""
CHOSEN = ("K2", "U1")
"""Origins of scales that the user requested in place of the model's."""
BEYOND = 1.02
"""Range of an output bounded by 1, plus the width of a histogram's last bin."""
CALIBRATED = "K1"
_NOT_DERIVED = frozenset((*STATED, *CHOSEN, *MARKERS, CALIBRATED))


class _Table(ScaleTable):
    """All scales; that of one tensor can be removed, to see which scales rules would give it."""

    def __init__(self, scales: Mapping[str, float]) -> None:
        super().__init__((name, TensorScale(value, Origin(""))) for name, value in scales.items())
        self._tensor = ""
        self._given: list[tuple[float, str, str]] = []

    def infer(self, tensor: str, value: float, origin: Origin) -> bool:
        if tensor == self._tensor:
            self._given.append((value, origin.rule, origin.source))
        return True

    def given_to(
        self, tensor: str, node: Node, rules: Iterable[ScaleRule], context: Context
    ) -> list[tuple[float, str, str]]:
        """(scale, rule, source) that rules give the tensor at a node, from all other scales. context: has this
        table."""
        own, self._tensor, self._given = self.pop(tensor), tensor, []
        for rule in rules:
            for apply in filter(None, (rule.forward, rule.backward)):
                apply(node, context)
        self[tensor] = own
        return self._given


def _underived(network: ImplicitNetwork, graph: Graph) -> Iterator[str]:
    """Sentences about scales that differ from the one that their rule gives. graph: of the stripped network."""
    origins, policy = network.origins, _policy(network)
    named = {node.name: node for node in graph.nodes}
    rules, table = rules_by_op(all_rules(policy)), _Table(network.scales)
    context = Context(graph, TensorTypes(graph), table, policy)
    chosen = {name for name, origin in origins.items() if origin.get("rule") in CHOSEN}
    for tensor, origin in origins.items():
        node, scale = named.get(origin.get("node", "")), network.scales.get(tensor)
        rule, source = origin["rule"], origin.get("source", "")
        if node is None or scale is None or rule in _NOT_DERIVED or not chosen.isdisjoint(source.split(", ")):
            continue
        given = table.given_to(tensor, node, rules.get(node.op_type, ()), context)
        due = [value for value, by, of in given if (by, of) == (rule, source)]
        if due and not any(abs(scale - value) <= SAME * value for value in due):
            yield f"Tensor '{tensor}' has the scale {scale:.6g}; by rule {rule} from '{source}' it is {due[0]:.6g}."


def _policy(network: ImplicitNetwork) -> Policy:
    """All rules are on: the origins record which ones were applied."""
    flags = frozenset(flag for row in RULES.values() for flag in row.options)
    passed = tuple(network.option.get("addtl_ops_to_infer_adjacent_scales") or ())
    return Policy(flags, passed, network.option.get("inference") or "sound")


def _beyond_bounds(network: ImplicitNetwork, graph: Graph) -> Iterator[str]:
    """Sentences on calibrated scales beyond their operator's bound, unless a neighbour shares the range."""
    rules = network.rules
    for node in graph.of(*WITHIN_ONE):
        tensor = node.outputs[0]
        scale = network.scales.get(tensor, 0.0)
        if rules.get(tensor) != CALIBRATED or scale * INT8_MAX <= BEYOND:
            continue
        ends = {name for one in (node, *graph.consumers(tensor)) for name in (*one.inputs, *one.outputs)} - {tensor}
        if not any(abs(network.scales.get(name, 0.0) - scale) <= SAME * scale for name in ends):
            amax = scale * INT8_MAX
            bound = f"the output of {node.op_type} cannot exceed 1"
            yield f"Tensor '{tensor}' was calibrated and has the range {amax:.4g}; {bound}."


# ---------------- verdicts


def expected_rounding(setup: Setup, proper: Proper) -> dict[str, SlicedComparison]:
    """Output -> difference caused by rounding alone, on the first runs."""
    placement = setup.simulated.placement
    scales = {**placement.held, **proper.stated, **proper.others}
    held = {name: scales[name] for name in placement.held}
    noisy = dataclasses.replace(setup.options, rounding="noise", unclipped=frozenset(held) - proper.stated.keys())
    model = simulate(setup.network, noisy, placement=dataclasses.replace(placement, held=held)).model
    return apart(setup.reference, setup.explicit.ends, model, setup.samples, MEASURED_RUNS, setup.where)


def judge(
    found: SlicedComparison, expected: SlicedComparison, samples: int, random: bool = False, outputs: int = 1
) -> Verdict:
    """found: explicit model against simulated engine. samples: number on which both were measured. random: whether the
    inputs were. outputs: number of outputs that are judged in total."""
    granted = most_of_usual(samples, outputs * (1 + sum(piece.compared for piece in found.slices)))
    word, noise, usual, where = _word(found, expected, granted, random)
    return Verdict(word, noise_to_db(noise), noise_to_db(usual), noise_to_db(granted * usual), where)


def _word(
    found: SlicedComparison, expected: SlicedComparison, granted: float, random: bool
) -> tuple[str, float, float, str]:
    """The verdict, and the noise, the expected noise and the slice ('': the whole) that decide it. granted: largest
    multiple of the expected noise. random: such inputs reach ranges that the network was not trained for."""
    worst = SUSPICIOUS if random else BROKEN
    if found.identical:
        return EQUAL, found.noise, expected.noise, ""
    if found.non_finite:
        return BROKEN, found.noise, expected.noise, ""
    if expected.non_finite:  # values that the engine clips exceed the range of FP16
        word = ROUNDING if found.noise <= HARMLESS else SUSPICIOUS if found.noise < 1 else worst
        return word, found.noise, math.inf, ""
    parts = list(_parts(found, expected))
    beyond = [part for part in parts if part[0] > max(granted * part[1], HARMLESS)]
    if not beyond:
        return (ROUNDING, *parts[0])
    lost = [part for part in beyond if part[0] >= 1 and not random]
    return (BROKEN if lost else SUSPICIOUS, *max(lost or beyond, key=_excess))


def _excess(part: tuple[float, float, str]) -> float:
    return part[0] / part[1] if part[1] else math.inf


def _parts(found: SlicedComparison, expected: SlicedComparison) -> Iterator[tuple[float, float, str]]:
    """(noise, expected noise, name) of the whole and of each slice."""
    yield found.noise, expected.noise, ""
    for piece in found.slices:
        usual = expected.noise_of(piece.axis, piece.index)
        if usual is not None:
            yield 10 ** (-piece.sqnr_db / 10), usual, str(piece)


def most_of_usual(samples: int, compared: float) -> float:
    """Quantile of chi-square(n)/n, by Wilson and Hilferty (1931), that one of `compared` comparisons on n samples
    exceeds with the probability FALSE_ALARM."""
    errors = statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / compared)
    return float((1 - 2 / (9 * samples) + errors * math.sqrt(2 / (9 * samples))) ** 3)


def worst(verdicts: Iterable[str]) -> str:
    """The worst verdict of several outputs."""
    return max(verdicts, key=VERDICTS.index, default=EQUAL)


def judge_all(setup: Setup, found: Mapping[str, SlicedComparison]) -> Judged:
    """found: output -> explicit model against simulated engine."""
    proper = proper_scales(setup)
    usual = expected_rounding(setup, proper)
    measured = min(setup.samples.runs, MEASURED_RUNS) * setup.samples.batch
    outputs = {name: judge(row, usual[name], measured, setup.random, len(found)) for name, row in found.items()}
    function, seen = _another_function(setup)
    reasons = [*function, *_wrong_records(setup, proper)]
    overall = worst([seen, SUSPICIOUS if reasons else EQUAL, *(row.verdict for row in outputs.values())])
    return Judged(overall, outputs, tuple(reasons))


def _another_function(setup: Setup) -> tuple[list[str], str]:
    """Sentences about outputs that the two networks compute differently in float, and the resulting verdict."""
    network = setup.network
    if network.option.get("dla_rewrites") == "approximate":
        return [], EQUAL
    saturated = any(row.get("saturated") for row in network.report.get("weights", ()))
    least = SAME_DB if saturated else EQUAL_DB
    found = other_function(float_twin(setup.explicit), setup.names.stripped, setup.samples, least)
    lost = not setup.random and any(db <= 0 for db in found.values())
    return [
        f"In float, without any rounding of activations, output '{name}' is {db:.1f} dB away from the model as given: "
        "a weight, an attribute or a connection is not the model's."
        for name, db in found.items()
    ], BROKEN if lost else EQUAL


def _wrong_records(setup: Setup, proper: Proper) -> Iterator[str]:
    """Sentences about scales that differ from the model's, cannot be inferred from it, or do not fit the data."""
    network, graph = setup.network, setup.names.stripped
    for tensor, stated in _stated(network, setup.names).items():
        scale = network.scales.get(tensor, 0.0)
        if not stated or graph.is_constant(tensor) or stated[0] * (1 - SAME) <= scale <= stated[-1] * (1 + SAME):
            continue
        given = f"has the scale {scale:.6g}" if scale else "has no scale"
        wanted = f"{stated[0]:.6g}" + (f" to {stated[-1]:.6g}" if len(stated) > 1 else "")
        yield f"Tensor '{tensor}' {given}; the model states {wanted}."
    yield from _underived(network, graph)
    yield from _beyond_bounds(network, graph)
    for row in network.plan:
        lacking = [name for name in (*row.inputs, *row.outputs) if name not in network.scales]
        if row.precision == INT8 and row.name in setup.simulated.placement.higher and lacking:
            yield f"Layer '{row.name}' is planned in INT8, but '{lacking[0]}' has no scale."
    for tensor, (share, db) in proper.tight.items():
        yield (
            f"The calibrated range of '{tensor}' clips {100 * share:.3g}% of its values on these inputs "
            f"(SQNR {db:.1f} dB): calibrate on data like these."
        )
