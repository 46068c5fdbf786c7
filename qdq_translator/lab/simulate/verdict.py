"""Verdict of `verify` on an output, relative to the expected cost of rounding (docs/verdict.md explains the verdicts
and their basis).

The metric decides if there is one. Without one, clear decisions (`metrics.decisions`) and noise energy decide, and two
floors hold regardless of the expectation (`thresholds`).

The expected noise is measured between the explicit model and the translated one with all its roundings, in steps a
little apart from the proper ones: equal values round alike, as in the engine, so that errors that add up are expected,
and each realization rounds them to something else. The steps are not the engine's but those of `proper_scales`; scales
that the model specifies clip there too, other scales do not. Weights are rounded as in the engine.

An energy measured on n samples has the distribution chi-square(n)/n (a network's errors on one sample are correlated,
so a sample counts once). The limit is its quantile times the noisiest realization. A correct translation exceeds it
with a probability of at most 0.13% (three standard errors of a single comparison), for any number of outputs and slices
compared (Bonferroni).

A bad scale in the explicit model itself affects both, and a comparison of the two cannot detect it (`verify --float`
and `--audit` do). Further checks, against the given model and not against the translation:

- `float_twin`: the model without the rounding of its activation quantizers, which saturate as before (rule Q9); weights
  stay rounded. The translated network in float, saturated at the scales that the model states, must compute the same.
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
from typing import Collection, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.verify_rows import BROKEN, EQUAL, ROUNDING, SUSPICIOUS, VERDICTS, Judged, Verdict
from qdq_translator.core.rules import MARKERS, RULES, STATED
from qdq_translator.lab.simulate.calibration.methods import clipped, energy, mse, squared_error
from qdq_translator.lab.simulate.calibration.observe import observe
from qdq_translator.lab.simulate.compare import (
    EXPLICIT,
    SIMULATED,
    Comparing,
    Measured,
    Setup,
    compare,
    outputs_of,
    scoring,
)
from qdq_translator.lab.simulate.counterparts import Counterparts
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, copy_model, simulate
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import Comparison, SlicedComparison, noise_to_db
from qdq_translator.lab.simulate.run import CodedEnds, ExplicitNetwork, Sliced, folded
from qdq_translator.lab.simulate.thresholds import (
    CALIBRATED_LEAST,
    CALIBRATED_MOST,
    CHANGED,
    EQUAL_DB,
    FALSE_ALARM,
    HARMLESS_DB,
    INFERRED,
    KEPT,
    LAST_BIT_DB,
    LEAST_CHANGED,
    LOST_DB,
    MEASURED_RUNS,
    METRIC_DROP,
    METRIC_LOST,
    METRIC_USUAL,
    MOST_CHANGED,
    REALIZATIONS,
    SAME_DB,
    SAME_HALF_DB,
    SAME_SCALE,
    SPREAD,
    UNSTABLE_DB,
    USABLE_DB,
)
from qdq_translator.lab.simulate.user_metric import UserMetric
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import SIGMOIDS
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.ir.types import FLOAT_TYPES, TensorTypes
from qdq_translator.translation.ir.weights import to_array, weight_of
from qdq_translator.translation.quantizers.saturation import saturate, saturate_both
from qdq_translator.translation.scales.inference import ScaleRule, all_rules, rules_by_op
from qdq_translator.translation.scales.inference.context import Context, Policy
from qdq_translator.translation.scales.inference.formulas import WITHIN_ONE
from qdq_translator.translation.scales.table import Origin, ScaleTable, TensorScale
from qdq_translator.translation.targets.precision import INT8

BRIEF_RUNS = 4
_SIZED = ("Resize", "Upsample", "Reshape", "Expand", "Slice", "Tile", "Pad", "TopK", "OneHot")
"""Operators whose further inputs decide about the shape of their output."""


def float_twin(explicit: ExplicitNetwork, symmetric: bool = True) -> Graph:
    """The explicit model with its activation quantizers replaced by their saturation; `symmetric` ones optionally."""
    graph = _folded(explicit)
    saturate(graph, symmetric=symmetric)
    return graph


def _folded(explicit: ExplicitNetwork) -> Graph:
    """A copy of the model with its constants computed."""
    model = folded(explicit.model)
    return Graph.from_model(copy_model(model) if model is explicit.model else model)


class Rounded(NamedTuple):
    """Rounding alone, measured. outputs: common output -> comparisons of a network and one that rounds, one for each
    realization. drop: the most that a metric falls; 0 without one."""

    outputs: dict[str, list[SlicedComparison]]
    drop: float


def apart(
    reference: onnx.ModelProto,
    ends: CodedEnds,
    other: onnx.ModelProto,
    samples: Samples,
    runs: int,
    where: Evaluation,
    realizations: int = 1,
    metric: Optional[UserMetric] = None,
) -> Rounded:
    """Two networks on the first runs, with several realizations of jittered steps. ends: of the reference."""
    given = {value.name for value in reference.graph.output}
    seeds = {f"{SIMULATED} {seed}": seed for seed in range(realizations)}
    names = [value.name for value in other.graph.output if value.name in given]
    stages, pairs = {EXPLICIT: reference, **dict.fromkeys(seeds, other)}, [(EXPLICIT, stage) for stage in seeds]
    keep, scores = metric is not None, {stage: metric.start(stage) for stage in stages} if metric is not None else {}
    tensors = outputs_of(pairs, names)
    work = Comparing(stages, ends, tensors, samples, where.provider, names, keep=keep, seeds=seeds)
    found = where.over(work, min(samples.runs, runs), watch=scoring(scores, samples)).rows
    drop = scores[EXPLICIT].result() - min(scores[seed].result() for seed in seeds) if scores else 0.0
    return Rounded({name: [found[a, b, name] for a, b in pairs] for name in names}, drop)


def other_function(given: Graph, other: Graph, samples: Samples, least: float) -> dict[str, float]:
    """Output -> SQNR in dB of the translated float network `other` against the float twin `given`, if it is below
    `least` dB, and lower than the model's float rounding explains (`LAST_BIT_DB`). The first `BRIEF_RUNS` runs are
    compared. Raises UserError if one of the two cannot be run."""
    half = any(t.data_type == onnx.TensorProto.FLOAT16 for t in given.initializers.values())
    least = SAME_HALF_DB if half else least
    floats = {n for n, v in other.outputs.items() if v.type.tensor_type.elem_type in FLOAT_TYPES} & given.outputs.keys()
    found = {name: db for name, db in _decibels(given, other, floats, samples).items() if db < least}
    if found:
        own = _decibels(given, last_bits_changed(given), found, samples)
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


def last_bits_changed(given: Graph) -> Graph:
    """The network with its constants computed, and every float32 weight moved to one of its two neighbours in float32,
    at random.
    """
    graph, random = Graph.from_model(folded(given.to_model())), np.random.default_rng(0)
    sizes = set(_sizing(graph))
    for name, tensor in list(graph.initializers.items()):
        if tensor.data_type == onnx.TensorProto.FLOAT and name not in sizes:
            values = to_array(tensor)
            towards = np.where(random.random(values.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
            graph.set_initializer(name, weight_of(name, np.nextafter(values, towards)))
    return graph


def _sizing(graph: Graph) -> Iterator[str]:
    """Tensors that decide about shapes, such as the factors of a Resize: another last bit may be another shape."""
    pending = [name for node in graph.of(*_SIZED) for name in node.inputs[1:]]
    pending += [name for node in graph.of("Range", "ConstantOfShape") for name in node.inputs]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        yield name
        maker = graph.producer.get(name)
        if maker is not None and not maker.is_op("Shape", "Size"):
            pending += maker.inputs


def _stated(network: ImplicitNetwork, names: Counterparts) -> dict[str, list[float]]:
    """Tensor -> scales that the model states for it, [] for none; without tensors whose scale was replaced or raised on
    request.
    """
    rules, by_data = network.rules, network.option.get("asymmetric") == "data"
    chosen = {name for name, rule in rules.items() if rule in CHOSEN or (by_data and rule not in STATED)}

    def own(tensor: str) -> bool:
        """Whether the range is the tensor's, and not that of the clamp (rule Q9) that it is the input or a part of."""
        model = tensor in names.graph.producer or tensor in names.graph.inputs
        return rules.get(tensor) in STATED or (model and not names.is_moved(tensor))

    return {n: names.stated(n) if own(n) else [] for n in names.stripped.tensors() if n not in chosen}


@dataclasses.dataclass
class Proper:
    """The scales by which the files are judged. stated: tensor -> scale that the model states. others: scales of the
    other rounded tensors. tight: tensor -> (share of the values that its calibrated range clips, its SQNR in dB)."""

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
    for name, histogram in observed.items():
        if not 0 < histogram.amax < math.inf:
            continue
        best, amax = mse(histogram), others[name] * INT8_MAX
        noise, least = (float(e) for e in squared_error(histogram, np.array([amax, best])))
        calibrated = setup.network.rules.get(name) == CALIBRATED
        if calibrated and amax < best and noise > max(INFERRED**2 * least, _noise(HARMLESS_DB) * energy(histogram)):
            proper.tight[name] = clipped(histogram, amax), noise_to_db(noise / energy(histogram))
        most = CALIBRATED_MOST if calibrated else INFERRED
        others[name] = min(max(amax, CALIBRATED_LEAST * best), most * best) / INT8_MAX


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
        if due and not any(abs(scale - value) <= SAME_SCALE * value for value in due):
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
        if not any(abs(network.scales.get(name, 0.0) - scale) <= SAME_SCALE * scale for name in ends):
            amax = scale * INT8_MAX
            bound = f"the output of {node.op_type} cannot exceed 1"
            yield f"Tensor '{tensor}' was calibrated and has the range {amax:.4g}; {bound}."


# ---------------- verdicts


def expected_rounding(setup: Setup, proper: Proper) -> Rounded:
    """The differences that rounding alone causes, on the first runs, each with other steps."""
    placement = setup.simulated.placement
    scales = {**placement.held, **proper.stated, **proper.others}
    held = {name: scales[name] for name in placement.held}
    jittered = dataclasses.replace(setup.options, rounding="jittered")
    model = simulate(setup.network, jittered, placement=dataclasses.replace(placement, held=held)).model
    ends, runs = setup.explicit.ends, MEASURED_RUNS
    return apart(setup.reference, ends, model, setup.samples, runs, setup.where, REALIZATIONS, setup.metric)


class _Part(NamedTuple):
    """An output as a whole (where: ''), or its worst slice along an axis. usual: noise of rounding alone, on average
    and at most."""

    noise: float
    usual: float
    most: float
    where: str = ""


def judge(
    found: SlicedComparison,
    expected: Sequence[SlicedComparison],
    samples: int,
    random: bool = False,
    outputs: int = 1,
    own_db: float = math.inf,
) -> Verdict:
    """The verdict of an output. found: explicit model against simulated engine. expected: against rounding alone.
    samples: number on which those were measured. random: whether the inputs were. outputs: number of outputs that are
    judged in total. own_db: see `floor_of`."""
    word, part, granted = _word(found, expected, samples, random, outputs, own_db)
    limit = max(granted * part.most, _noise(HARMLESS_DB))
    limit = limit if part.where else min(limit, _noise(_floors(own_db)[0]))
    figures = noise_to_db(part.noise), noise_to_db(part.usual), noise_to_db(limit)
    return Verdict(word, *figures, part.where, found.decided, found.changed)


def _noise(db: float) -> float:
    return float(10 ** (-db / 10))


def _word(
    found: SlicedComparison,
    expected: Sequence[SlicedComparison],
    samples: int,
    random: bool,
    outputs: int,
    own_db: float,
) -> tuple[str, _Part, float]:
    """The verdict, the part that decides it, and the largest multiple of the expected noise. Random inputs reach ranges
    that the network was not trained for."""
    parts, compared = _parts(found, expected)
    granted = most_of_usual(samples, outputs * compared)
    if found.identical:
        return EQUAL, parts[0], granted
    floor = floor_of(found, max(row.changed / max(row.decided, 1) for row in expected), own_db)
    if found.non_finite or (floor != ROUNDING and not math.isinf(parts[0].most)):
        return SUSPICIOUS if random and not found.non_finite else floor, parts[0], granted
    beyond = _beyond(found, parts, granted)
    if not beyond:
        return ROUNDING, parts[0], granted
    lost = [part for part in beyond if part.noise >= 1 and not random]
    return BROKEN if lost else SUSPICIOUS, max(lost or beyond, key=_excess), granted


def _beyond(found: SlicedComparison, parts: Iterable[_Part], granted: float) -> list[_Part]:
    """The parts that differ more than rounding explains; no slice of an output whose clear decisions are kept."""
    kept = found.of_classes and found.decided >= LEAST_CHANGED and found.changed <= KEPT * found.decided
    return [part for part in parts if _is_beyond(part, granted) and not (part.where and kept)]


def _is_beyond(part: _Part, granted: float) -> bool:
    """Whether it is more than rounding explains: nothing is explained if values that the engine clips leave the range
    of FP16."""
    usual = 0.0 if math.isinf(part.most) else granted * part.most
    return part.noise > max(usual, _noise(HARMLESS_DB))


def _floors(own_db: float) -> tuple[float, float]:
    """SQNR in dB below which an output is suspicious, and broken, regardless of the expectation."""
    if own_db < USABLE_DB:  # the model as given has no function that a translation could keep
        return -math.inf, -math.inf
    return (LOST_DB if own_db < UNSTABLE_DB else USABLE_DB), LOST_DB


def floor_of(found: SlicedComparison, usual: float = 0.0, own_db: float = math.inf) -> str:
    """The verdict on an output regardless of the expectation: by its SQNR, and by clear decisions that changed. usual:
    share of them that rounding alone changes. own_db: SQNR of the model as given against its own float function."""
    changed, decided = found.changed, found.decided
    share = changed / decided if changed >= LEAST_CHANGED else 0.0
    least, lost = map(_noise, _floors(own_db))
    if found.non_finite or found.weighed >= lost or share > MOST_CHANGED:
        return BROKEN
    return SUSPICIOUS if found.weighed >= least or share > max(CHANGED, 2 * usual) else ROUNDING


def _excess(part: _Part) -> float:
    return part.noise / part.most if part.most else math.inf


def _parts(found: SlicedComparison, expected: Sequence[SlicedComparison]) -> tuple[list[_Part], int]:
    """The whole, and for each axis the slice that exceeds its expected noise the most; and how many are compared."""
    usual = [row.weighed if not row.non_finite else math.inf for row in expected]
    most = math.inf if math.inf in usual else float(_most(np.array(usual)))
    parts, compared = [_Part(found.weighed, float(np.mean(usual)), most)], 1
    others = [row.noises() for row in expected]
    for axis, noises in found.noises().items():
        rows = [row[axis] for row in others if axis in row and row[axis].shape == noises.shape]
        if len(rows) < len(expected) or np.isnan(noises).all():
            continue
        limits = _most(np.array(rows))
        index = int(np.argmax(np.nan_to_num(noises / np.maximum(limits, _noise(HARMLESS_DB)))))
        compared += int(np.count_nonzero(~np.isnan(noises)))
        figures = float(noises[index]), float(np.mean([row[index] for row in rows])), float(limits[index])
        parts.append(_Part(*figures, f"slice {index} of {len(noises)} along axis {axis}"))
    return parts, compared


def _most(realizations: np.ndarray) -> np.ndarray:
    """The most noise that rounding causes, by some realizations (first axis): the noisiest, and half their standard
    deviation in decibels more, which is next to nothing unless errors add up."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(realizations, 1e-30))
    return np.asarray(realizations.max(axis=0) * np.exp(SPREAD * logs.std(axis=0, ddof=min(1, len(logs) - 1))))


def most_of_usual(samples: int, compared: float) -> float:
    """Quantile of chi-square(n)/n, by Wilson and Hilferty (1931), that one of `compared` comparisons on n samples
    exceeds with the probability FALSE_ALARM."""
    errors = statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / compared)
    return float((1 - 2 / (9 * samples) + errors * math.sqrt(2 / (9 * samples))) ** 3)


def worst(verdicts: Iterable[str]) -> str:
    """The worst verdict of several outputs."""
    return max(verdicts, key=VERDICTS.index, default=EQUAL)


def judge_all(setup: Setup, measured: Measured, allowed: Optional[float]) -> Judged:
    """The verdict of all outputs. measured: every stage's. allowed: loss of the metric that
    the user accepts. The reason is one that the files alone show, or ''."""
    proper = proper_scales(setup)
    usual = expected_rounding(setup, proper)
    samples, rows = min(setup.samples.runs, MEASURED_RUNS) * setup.samples.batch, measured.simulated
    own = _own_decibels(setup, rows)
    outputs = {
        name: judge(row, usual.outputs[name], samples, setup.random, len(rows), own.get(name, math.inf))
        for name, row in rows.items()
    }
    function, seen = _another_function(setup, {name for name, row in rows.items() if row.identical})
    decides = measured.drop is not None and (measured.drop.before > 0 or allowed is not None)
    lost, words = _lost(setup, measured, allowed, decides, usual.drop)
    known, tight = [*_wrong_records(setup), *function], _clipping(proper)
    if decides:  # an error that the metric does not count is none
        words += [BROKEN if row.non_finite else EQUAL if row.identical else ROUNDING for row in rows.values()]
    else:
        words += [row.verdict for row in outputs.values()]
    overall = worst([seen, SUSPICIOUS if known or tight else EQUAL, *words])
    return Judged(overall, outputs, (*known, *lost, *tight), reason=known[0] if known else "")


def _own_decibels(setup: Setup, rows: Mapping[str, SlicedComparison]) -> dict[str, float]:
    """Output below USABLE_DB -> SQNR in dB of the model as given against its own float function: low in networks with
    random weights, where it decides nothing."""
    names = [name for name, row in rows.items() if row.weighed >= _noise(USABLE_DB)]
    if not names or setup.explicit.ends.inputs:
        return {}
    model, twin = Graph.from_model(copy_model(setup.reference)), float_twin(setup.explicit)
    return _decibels(twin, model, names, setup.samples)


def _lost(
    setup: Setup, measured: Measured, allowed: Optional[float], decides: bool, usual: float
) -> tuple[list[str], list[str]]:
    """Sentences on a metric that falls and on outputs that are not the float model's any more, and their verdicts.
    decides: whether the metric does; one that is 0 or a loss (below 0) has no scale for what may be lost. usual: the
    most that rounding alone costs."""
    drop, sentences, words = measured.drop, [], []
    if drop is not None and decides:
        most = METRIC_LOST * abs(drop.before)
        least = min(max(METRIC_DROP * abs(drop.before), METRIC_USUAL * usual), most) if allowed is None else allowed
        sure = drop.lost - (drop.error if allowed is None else 0.0)
        if sure > least:
            sentences.append(f"The metric '{drop.name}' falls from {drop.before:.6g} to {drop.after:.6g}.")
            words.append(BROKEN if sure > max(least, most) else SUSPICIOUS)
        return sentences, words
    for name, row in measured.against_float.items():
        word = SUSPICIOUS if setup.random and floor_of(row) != ROUNDING else floor_of(row)
        if word != ROUNDING:
            sentences.append(f"Output '{name}' is not the float model's: {_figures(row)}.")
            words.append(word)
    return sentences, words


def _figures(row: SlicedComparison) -> str:
    changed = f", {row.changed} of {row.decided} clear decisions change" if row.changed else ""
    return f"{row.sqnr_db:.1f} dB{changed}"


def _another_function(setup: Setup, identical: Collection[str]) -> tuple[list[str], str]:
    """Sentences about outputs that the two networks compute differently in float, and the resulting verdict. identical:
    outputs of which the engine makes the model's own values."""
    network = setup.network
    if network.option.get("dla_rewrites") == "approximate":
        return [], EQUAL
    saturated = any(row.get("saturated") for row in network.report.get("weights", ()))
    least = SAME_DB if saturated else EQUAL_DB
    written, source = network.graph(), _folded(setup.explicit)
    saturate_both(source, written, _saturating(network, written), saturating=network.clamping, idle=network.idle)
    found = other_function(source, written, setup.samples, least)
    found = {name: db for name, db in found.items() if name not in identical}
    lost = not setup.random and any(db <= 0 for db in found.values())
    first = _first_difference(source, written, setup.samples.some(1), least) if found else ""
    return [
        f"In float, without any rounding of activations, output '{name}' is {db:.1f} dB away from the model as given: "
        f"a weight, an attribute or a connection is not the model's{first}."
        for name, db in found.items()
    ], BROKEN if lost else EQUAL


def _first_difference(given: Graph, other: Graph, samples: Samples, least: float) -> str:
    """The first layer whose output differs, and does not only saturate elsewhere, in words; '' if none can be told."""
    types = TensorTypes(other)
    names = [name for name in other.producer if name in given.producer and types.is_float(name)]
    try:
        found = _decibels(given, other, names, samples)
    except UserError:  # the rewrites of a DLA turned a tensor
        return ""
    differ = {name for name, db in found.items() if db < least}
    for node in other.nodes:
        behind = [name for reader in other.consumers(node.outputs[0]) for name in reader.outputs if name in found]
        if node.outputs[0] in differ and (node.outputs[0] in other.outputs or not differ.isdisjoint(behind)):
            return f", from {node.op_type} '{node.name}' (tensor '{node.outputs[0]}') on"
    return ""


def _saturating(network: ImplicitNetwork, graph: Graph) -> dict[str, float]:
    """Tensor -> scale of each that has the range of a quantizer of the model: stated, passed on forward (S3), or taken
    over from a tensor that a rewrite removed (rule D... without a source). graph: of the written network."""
    origins, scales = network.origins, network.scales
    stated = {name for name, rule in network.rules.items() if rule in STATED}
    stated.update(n for n, o in origins.items() if stated and o["rule"].startswith("D") and not o.get("source"))
    found = {}
    for name, scale in scales.items():
        root, seen = name, {""}
        while root not in seen and root not in stated:
            seen.add(root)
            source = origins.get(root, {}).get("source", "")
            backward = any(source in reader.outputs for reader in graph.consumers(root))
            root = source if not backward and abs(scales.get(source, 0.0) - scale) <= SAME_SCALE * scale else ""
        if root not in seen:
            found[name] = scale
    return found


def _between(scale: float, stated: Sequence[float]) -> bool:
    return stated[0] * (1 - SAME_SCALE) <= scale <= stated[-1] * (1 + SAME_SCALE)


def _clipping(proper: Proper) -> list[str]:
    """Sentences about calibrated ranges that do not fit the data."""
    return [
        f"The calibrated range of '{tensor}' clips {100 * share:.3g}% of its values here (SQNR {db:.1f} dB): "
        "neither the data of the calibration nor its method fit them."
        for tensor, (share, db) in proper.tight.items()
    ]


def _wrong_records(setup: Setup) -> Iterator[str]:
    """Sentences about scales that differ from the model's or cannot be inferred from it."""
    network, graph = setup.network, setup.names.stripped
    for tensor, stated in _stated(network, setup.names).items():
        scale = network.scales.get(tensor, 0.0)
        if not stated or graph.is_constant(tensor) or _between(scale, stated):
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
