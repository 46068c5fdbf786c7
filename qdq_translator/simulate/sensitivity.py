"""Which tensors cost accuracy, and the fewest layers to keep above INT8 (`--layerPrecisions`) so that they stay float.

The reference is the float model where one is given, else the stripped model run in float (its weights are the trained ones).

1. Every tensor that the engine rounds is left float for once, nothing else changed, and ranked by what the worst output
   gains. Tensors of one scale with only Relu or data movement between them go together. So do, as one more candidate, all
   tensors whose scales were inferred from one of them, where that gains `FAMILY_DB` more than any of them alone: a scale
   that is wrong in the model is wrong in all of them. Where TensorRT's own rounding of the weights costs anything, the
   weights of every layer are candidates too.
2. TensorRT leaves a tensor float when no INT8 layer reads it. So its layers are all INT8 layers that read it, but a Relu
   or data movement whose output goes with it; for a graph output also the one that makes it.
3. Down the ranking, a candidate's layers are kept above INT8 if the worst output gains `KEPT_IF_DB`; then each candidate
   that the others made needless is dropped.
4. With a metric of the user's own that decides instead: the ranking is by the metric and then by SQNR, a candidate is kept if
   the metric rises, and none is tried any more once it has reached what was asked for.

The order in which candidates are tried is that of the noise that their rounding makes in the tensor itself, so that what a
time limit cuts off is what matters least; how many were cut off is reported.

A candidate costs what lies behind its tensor: the network is cut there (`segments`), and what comes before is reused. All
are tried on an eighth of the samples, at least `LEAST_RUNS`, evenly spread; those that gain half of `KEPT_IF_DB` there, at
most `MOST_KEPT`, on all of them. With a metric, which few samples say little of, all are tried on all. A gain is always
that over the baseline on the same samples.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.formats.layer_precisions import format_layer_precisions, fp16_layers
from qdq_translator.core.layer_names import is_expressible
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.types import TensorTypes
from qdq_translator.planning.placement import COMMUTING, Placement
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, Simulated, SimulationOptions, copy_model, simulate
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import Comparison, finite_or_none
from qdq_translator.simulate.run import Session
from qdq_translator.simulate.segments import Change, Segments
from qdq_translator.simulate.user_metric import UserMetric

KEPT_IF_DB = 0.5
FAMILY_DB = 3.0
MOST_KEPT = 10
LEAST_RUNS = 4
_FETCHED_TOGETHER = 64


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What may stay float. tensor: its name for a reader, '' for weights; tensors: all that go together; weights: (node,
    input index) of weights; layers: names of the layers to keep above INT8 for it."""

    tensor: str
    tensors: tuple[str, ...]
    layers: tuple[str, ...]
    weights: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        return self.tensor or f"weights of {self.layers[0]}"


@dataclasses.dataclass(frozen=True)
class Quality:
    """Of the worst output against float. metric: the user's own, where there is one. gain_db, metric_gain: over the baseline on
    the same samples; samples: how many those are."""

    sqnr_db: float
    cosine: float
    metric: Optional[float] = None
    gain_db: float = 0.0
    metric_gain: Optional[float] = None
    samples: int = 0

    @property
    def rank(self) -> tuple[float, float]:
        """The higher the better."""
        return (self.metric_gain or 0.0, self.gain_db)

    def over(self, other: Quality) -> Quality:
        """With its gains over another one."""
        gain = 0.0 if self.sqnr_db == other.sqnr_db else self.sqnr_db - other.sqnr_db
        both = self.metric is not None and other.metric is not None
        metric_gain = self.metric - other.metric if both else None  # type: ignore[operator]
        return dataclasses.replace(self, gain_db=gain, metric_gain=metric_gain)

    @property
    def gains(self) -> bool:
        """Worth keeping layers above INT8 for it."""
        return self.gain_db >= KEPT_IF_DB if self.metric_gain is None else self.metric_gain > 0

    def reaches(self, metric: Optional[float]) -> bool:
        return metric is not None and self.metric is not None and self.metric >= metric


@dataclasses.dataclass
class Sensitivity:
    """ranking: (candidate, quality with it alone float, everything else in INT8), best first. chosen: (candidate, quality
    with its layers and those before it kept above INT8). left: candidates that the time limit cut off. layer_argument: the
    complete one, with what the translation names already. kept: what --keep_fp16 named already. enough: the user's metric
    is what was asked for before anything is kept."""

    baseline: Quality
    ranking: list[tuple[Candidate, Quality]]
    chosen: list[tuple[Candidate, Quality]]
    left: int
    seconds: float
    layer_argument: str
    kept: Sequence[str] = ()
    enough: bool = False

    @property
    def layers(self) -> list[str]:
        """What the chosen candidates need, each once."""
        return list(dict.fromkeys(layer for candidate, _ in self.chosen for layer in candidate.layers))

    def as_dict(self) -> dict[str, Any]:
        def row(candidate: Candidate, quality: Quality) -> dict[str, Any]:
            return {
                "tensor": candidate.label,
                "tensors": list(candidate.tensors),
                "layers": list(candidate.layers),
                "sqnr_db": finite_or_none(quality.sqnr_db),
                "cosine": quality.cosine,
                "gain_db": finite_or_none(quality.gain_db),
                "samples": quality.samples,
                "metric": quality.metric,
            }

        return {
            "baseline_db": finite_or_none(self.baseline.sqnr_db),
            "baseline_cosine": self.baseline.cosine,
            "baseline_metric": self.baseline.metric,
            "ranking": [row(*pair) for pair in self.ranking],
            "chosen": [row(*pair) for pair in self.chosen],
            "layer_argument_addition": format_layer_precisions(fp16_layers(self.layers)),
            "layer_argument": self.layer_argument,
            "layers": self.layers,
            "keep_fp16": list(dict.fromkeys([*self.kept, *self.layers])) if self.chosen else [],
            "enough": self.enough,
            "candidates_left_out": self.left,
            "seconds": self.seconds,
        }


def measure_sensitivity(
    network: ImplicitNetwork,
    options: SimulationOptions,
    samples: Samples,
    float_model: Optional[onnx.ModelProto],
    time_limit: float,
    progress: Progress = silent,
    metric: Optional[UserMetric] = None,
    enough: Optional[float] = None,
    where: Evaluation = HERE,
) -> Sensitivity:
    """`time_limit` in seconds; the candidates of one look at the samples are finished. enough: a value of `metric` beyond which
    nothing more is kept above INT8. The progress is that of the work or of the time limit, whichever is further."""
    start = time.monotonic()
    graph = Graph.from_model(copy_model(network.model))
    judge = Judge(network, options, samples, float_model, TensorTypes(graph), metric, where)
    base = judge.simulated({})
    baseline = judge.of(base)

    def is_late() -> bool:
        return time.monotonic() - start > time_limit

    def tell(what: str, done: int, total: int) -> None:
        share = max(done / total, min(1.0, (time.monotonic() - start) / time_limit) if time_limit > 0 else 1.0)
        progress(f"{what}, {time_limit:.0f} s at most", round(1000 * share), 1000)

    rounded = dataclasses.replace(base.placement, weights=frozenset())
    weights_matter = judge.of(judge.simulated({}, rounded)).sqnr_db >= baseline.sqnr_db + KEPT_IF_DB
    noise = _own_noise(base, samples)
    found = sorted(_components(graph, base.placement, network), key=lambda c: -max(noise[n] for n in c.tensors))
    if weights_matter:
        found += [Candidate("", (), (node,), ((node, index),)) for node, index in sorted(base.placement.weights)]
    found = [candidate for candidate in found if candidate.layers and all(map(is_expressible, candidate.layers))]
    tell("leaving one tensor float", 0, 1)
    alone = _Alone(judge, base, graph)
    fit = found[: alone.fit(found, time_limit - (time.monotonic() - start))]
    tried = dict(zip(fit, alone.qualities(fit, few=True)))
    families = list(_families(found, network, graph)) if not is_late() and fit else []
    tried.update(zip(families, alone.qualities(families, few=True)))
    promising = sorted(tried, key=lambda c: -tried[c].gain_db)[:MOST_KEPT]
    promising = [candidate for candidate in promising if tried[candidate].gain_db >= KEPT_IF_DB / 2]
    if alone.has_more and not is_late():
        tried.update(zip(promising, alone.qualities(promising, few=False)))
    gains = {name: tried[candidate].gain_db for candidate in fit for name in candidate.tensors}
    ranking = [(candidate, tried[candidate]) for candidate in fit] + [
        (family, tried[family])
        for family in families
        if tried[family].gain_db >= max(gains.get(name, 0.0) for name in family.tensors) + FAMILY_DB
    ]
    ranking.sort(key=lambda pair: (*(-value for value in pair[1].rank), len(pair[0].layers)))

    def tell_more(number: int) -> None:
        tell("keeping the best together", len(found) + number, len(found) + MOST_KEPT)

    chosen = _kept_together(judge, ranking, baseline, enough, is_late, tell_more)
    progress("keeping the best together", 1, 1)
    layers = dict.fromkeys(layer for candidate, _ in chosen for layer in candidate.layers)
    # what the translation asks for may hold patterns, which format_layer_precisions refuses
    argument = ",".join(f"{name}:{asked}" for name, asked in {**network.precisions, **fp16_layers(layers)}.items())
    kept = network.option.get("keep_fp16", [])
    left = len(found) - len(fit)
    return Sensitivity(
        baseline, ranking, chosen, left, time.monotonic() - start, argument, kept, baseline.reaches(enough)
    )


def _kept_together(
    judge: Judge,
    ranking: Sequence[tuple[Candidate, Quality]],
    baseline: Quality,
    enough: Optional[float],
    is_late: Callable[[], bool],
    tell: Callable[[int], None],
) -> list[tuple[Candidate, Quality]]:
    """3 and 4 of the module."""
    chosen: list[tuple[Candidate, Quality]] = []
    best = baseline
    for number, (candidate, alone_quality) in enumerate(ranking[:MOST_KEPT]):
        if not alone_quality.gains or best.reaches(enough) or is_late():
            break
        tell(number)
        quality = judge.with_layers([*(c for c, _ in chosen), candidate])
        if quality.over(best).gains:
            chosen.append((candidate, quality.over(baseline)))
            best = quality
    for row in list(chosen[:-1]):
        others = [pair for pair in chosen if pair is not row]
        if is_late():
            break
        quality = judge.with_layers([c for c, _ in others])
        if quality.reaches(enough) or not best.over(quality).gains:
            chosen = others
    return chosen


def rank(
    network: ImplicitNetwork, options: SimulationOptions, samples: Samples, runs: int, where: Evaluation = HERE
) -> list[tuple[Candidate, float]]:
    """Every candidate of one tensor (or some of one scale), and the share (0 to 1) of the noise energy at the worst output that
    goes with it alone, largest first. Measured on `runs` runs, evenly spread; the float network is the stripped one.
    """
    few = samples.some(runs)
    graph = Graph.from_model(copy_model(network.model))
    judge = Judge(network, options, few, None, TensorTypes(graph), where=where)
    base = judge.simulated({})
    found = [c for c in _components(graph, base.placement, network) if c.layers and all(map(is_expressible, c.layers))]
    rows = _Alone(judge, base, graph).qualities(found, few=False)
    shares = [(candidate, max(0.0, 1 - 10 ** (-row.gain_db / 10))) for candidate, row in zip(found, rows)]
    return sorted(shares, key=lambda pair: -pair[1])


@dataclasses.dataclass(frozen=True)
class Account:
    """Noise energy at the worst output, relative to its own, that each rounding alone adds to the float network. tensors: of
    those with a scale, whether they are held or pass unrounded; weights: of the rounded weights of a layer.

    Independent roundings add up, so `of` is a first estimate of any other choice of layers. How the whole simulation differs from
    the sum is what `tune` measures and reports (`additivity`).
    """

    tensors: dict[str, float]
    weights: dict[str, float]
    sources: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Tensor -> those that its layer only hands on (data movement, Concat): with one scale, they are rounded once."""

    def of(self, placement: Placement) -> float:
        """The sum over what a placement rounds; a tensor that the account does not have counts as the loudest."""
        loudest = max(self.tensors.values(), default=0.0)
        layers = {node for node, _ in placement.weights}
        held = placement.held
        total = sum(self.weights.get(layer, 0.0) for layer in layers)
        for name, scale in held.items():
            before = sum(self.tensors.get(n, loudest) for n in self.sources.get(name, ()) if held.get(n) == scale)
            total += max(0.0, self.tensors.get(name, loudest) - before)
        return total


def account(
    network: ImplicitNetwork, options: SimulationOptions, samples: Samples, runs: int, where: Evaluation = HERE
) -> Account:
    """On `runs` runs, evenly spread: a pass of the network for each tensor and each layer with weights."""
    graph = Graph.from_model(copy_model(network.model))
    judge = Judge(network, options, samples.some(runs), None, TensorTypes(graph), where=where)
    base = judge.simulated({}).placement
    handing_on = [node for node in graph.nodes if node.is_op(*COMMUTING, "Concat")]

    def added(held: Mapping[str, float], weights: frozenset[tuple[str, int]]) -> float:
        one = dataclasses.replace(base, held=dict(held), weights=weights)
        return float(10 ** (-judge.of(judge.simulated({}, one)).sqnr_db / 10))

    silent = added({}, frozenset())
    known = {**base.held, **{name: network.scales[name] for name in (*base.fused, *base.stay_float)}}
    tensors = {name: max(0.0, added({name: scale}, frozenset()) - silent) for name, scale in known.items()}
    layers = dict.fromkeys(node for node, _ in sorted(base.weights))
    weights = {
        node: max(0.0, added({}, frozenset(w for w in base.weights if w[0] == node)) - silent) for node in layers
    }
    return Account(tensors, weights, {name: tuple(node.inputs) for node in handing_on for name in node.outputs})


def noise(
    network: ImplicitNetwork, options: SimulationOptions, samples: Samples, runs: int, where: Evaluation = HERE
) -> float:
    """Noise energy at the worst output relative to its own, against the stripped network in float, on the runs that `rank`
    takes."""
    types = TensorTypes(Graph.from_model(copy_model(network.model)))
    judge = Judge(network, options, samples.some(runs), None, types, where=where)
    return float(10 ** (-judge.of(judge.simulated({})).sqnr_db / 10))


class Judge:
    """Simulations of one network, measured against float on the same samples."""

    def __init__(
        self,
        network: ImplicitNetwork,
        options: SimulationOptions,
        samples: Samples,
        float_model: Optional[onnx.ModelProto],
        types: TensorTypes,
        metric: Optional[UserMetric] = None,
        where: Evaluation = HERE,
    ) -> None:
        self.network, self.options, self.samples, self.types = network, options, samples, types
        self.metric, self.where = metric, where
        running = _Running(float_model if float_model is not None else network.model, samples, where.provider)
        self.expected: list[list[np.ndarray]] = where.engine.run(running, shards(samples.runs))

    def simulated(self, precisions: Mapping[str, str], placement: Optional[Placement] = None) -> Simulated:
        asked = {**self.network.precisions, **precisions}
        return simulate(self.network, self.options, asked, self.types, placement, unrounded=True)

    def with_layers(self, candidates: Sequence[Candidate]) -> Quality:
        """With the layers of all of them kept above INT8."""
        return self.of(self.simulated(fp16_layers(layer for c in candidates for layer in c.layers)))

    def of(self, simulated: Simulated) -> Quality:
        (quality,) = self.varied(simulated.model, (Change({}),), shards(self.samples.runs))
        return quality

    def varied(self, model: onnx.ModelProto, changes: tuple[Change, ...], ranges: Sequence[range]) -> list[Quality]:
        """One for each change of the model, on these runs."""
        scores = [self.metric.start("simulated") for _ in changes] if self.metric is not None else []
        runs = iter([run for shard in ranges for run in shard])

        def score(part: _Varied) -> None:
            """Here and in the order of the samples, whoever ran them."""
            for outputs in part.outputs:
                labels = self.samples.labels_of(next(runs))
                for one, values in zip(scores, outputs):
                    one.add(values, labels, self.samples.batch)
            part.outputs.clear()

        work = _Varying(model, changes, self.samples, self.expected, self.where.provider, bool(scores))
        found = self.where.engine.run(work, ranges, watch=score)
        count = sum(map(len, ranges)) * self.samples.batch
        metrics: list[Optional[float]] = [one.result() for one in scores] if scores else [None] * len(changes)
        return [
            Quality(min(row.sqnr_db for row in rows), min(row.cosine for row in rows), metric, samples=count)
            for rows, metric in zip(found.rows, metrics)
        ]


@dataclasses.dataclass
class _Running(Work):
    """A list of the outputs of every run."""

    model: onnx.ModelProto
    samples: Samples
    provider: str

    def open(self) -> Callable[[int], list[list[np.ndarray]]]:
        session = Session(self.model, "float", one_thread=True, provider=self.provider)
        return lambda run: [list(session.run(self.samples.feed(run)).values())]

    def merge(self, total: list[list[np.ndarray]], part: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        return total + part


@dataclasses.dataclass
class _Varied:
    """rows: for every change a comparison of each output. outputs: of each run, for every change, where a metric needs them."""

    rows: list[list[Comparison]]
    outputs: list[list[dict[str, np.ndarray]]]


@dataclasses.dataclass
class _Varying(Work):
    """Every change of a model. expected: of every run. keep: the outputs too."""

    model: onnx.ModelProto
    changes: tuple[Change, ...]
    samples: Samples
    expected: list[list[np.ndarray]]
    provider: str
    keep: bool

    def open(self) -> Callable[[int], _Varied]:
        segments = Segments(self.model, self.changes, self.provider)

        def compared(run: int) -> _Varied:
            base = segments.base(self.samples.feed(run))
            found = _Varied([], [[]] if self.keep else [])
            for change in self.changes:
                values = segments.changed(base, change)
                rows = [Comparison() for _ in segments.outputs]
                for row, name, wanted in zip(rows, segments.outputs, self.expected[run]):
                    row.add(wanted, values[name])
                found.rows.append(rows)
                if self.keep:
                    found.outputs[0].append(values)
            return found

        return compared

    def merge(self, total: _Varied, part: _Varied) -> _Varied:
        for rows, others in zip(total.rows, part.rows):
            for row, other in zip(rows, others):
                row.merge(other)
        total.outputs += part.outputs
        return total


class _Alone:
    """Candidates, each left float by itself while everything else is rounded."""

    def __init__(self, judge: Judge, base: Simulated, graph: Graph) -> None:
        self._judge, self._base, self._graph = judge, base, graph
        runs = judge.samples.runs
        few = runs if judge.metric is not None else min(runs, max(LEAST_RUNS, -(-runs // 8)))
        self._few = [range(int(i), int(i) + 1) for i in np.linspace(0, runs - 1, few).round()]
        self.has_more = few < runs

    def fit(self, candidates: Sequence[Candidate], seconds: float) -> int:
        """How many of them the time allows, by what the first ones take."""
        if seconds <= 0 or not candidates:
            return 0
        begun = time.monotonic()
        self._measure(candidates[:1], self._few[:1])
        each = (time.monotonic() - begun) * len(self._few) / 2  # half a pass on the average
        return max(1, min(len(candidates), int(seconds / max(each, 1e-9))))

    def qualities(self, candidates: Sequence[Candidate], few: bool) -> list[Quality]:
        """few: on some of the samples."""
        if not candidates:
            return []
        everything = shards(self._judge.samples.runs)
        baseline, *found = self._measure(candidates, self._few if few and self.has_more else everything)
        return [quality.over(baseline) for quality in found]

    def _measure(self, candidates: Sequence[Candidate], ranges: Sequence[range]) -> list[Quality]:
        """Of the baseline, then of each candidate."""
        changes = (Change({}), *map(self._change, candidates))
        return self._judge.varied(self._base.model, changes, ranges)

    def _change(self, candidate: Candidate) -> Change:
        base, tensors = self._base, {}
        for name in candidate.tensors:
            made, read = base.made[name], base.read[name]
            tensors[read] = made
            if read in base.wide:
                tensors[base.wide[read]] = made
        nodes = {node for node, _ in candidate.weights}
        weights = {
            (node.name, index): node.inputs[index]
            for node in (self._graph.nodes if nodes else ())
            for index in range(len(node.inputs))
            if (node.name, index) in candidate.weights
        }
        return Change(tensors, weights)


def _own_noise(base: Simulated, samples: Samples) -> dict[str, float]:
    """Held tensor -> noise-to-signal ratio of its own rounding, on the first samples."""
    held = list(base.placement.held)
    noise: dict[str, float] = {}
    for first in range(0, len(held), _FETCHED_TOGETHER):
        part = held[first : first + _FETCHED_TOGETHER]
        session = Session(base.model, "simulated", [t for n in part for t in (base.made[n], base.read[n])])
        values = session.run(samples.feed(0))
        for name in part:
            row = Comparison()
            row.add(values[base.made[name]], values[base.read[name]])
            noise[name] = row.noise
    return noise


def _components(graph: Graph, placement: Placement, network: ImplicitNetwork) -> Iterator[Candidate]:
    """Held tensors that go together (1 and 2 of the module), in graph order."""
    held = placement.held
    leader: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for name, scale in held.items():
        producer = graph.producer.get(name)
        source = producer.inputs[0] if producer is not None and producer.is_op(*COMMUTING) else ""
        leader[name] = leader[source] if held.get(source) == scale else name
        members.setdefault(leader[name], []).append(name)
    for group in members.values():
        yield _candidate(graph, placement, group, network)


def _candidate(graph: Graph, placement: Placement, group: list[str], network: ImplicitNetwork) -> Candidate:
    within = set(group)
    layers: dict[str, None] = {}
    for name in group:
        if name in graph.outputs and name in graph.producer:
            layers[graph.producer[name].name] = None
        for reader in graph.consumers(name):
            hands_on = (
                reader.is_op(*COMMUTING)
                and reader.outputs[0] in within
                and placement.held[name] == placement.held[reader.outputs[0]]
            )
            if reader.name in placement.int8 and not hands_on:
                layers[reader.name] = None
    origins = network.config.get("scale_origins", {})
    stated = [name for name in group if not origins.get(name, {}).get("source")]
    return Candidate((stated or group)[0], tuple(group), tuple(layers))


def _families(found: Sequence[Candidate], network: ImplicitNetwork, graph: Graph) -> Iterator[Candidate]:
    """All candidates whose scales come from one tensor, where those are several."""
    origins = network.config.get("scale_origins", {})
    of_tensor = {name: candidate for candidate in found for name in candidate.tensors}

    def root(name: str) -> str:
        seen = {name}
        while True:
            source = origins.get(name, {}).get("source", "")
            if not source or source in seen or source not in origins:
                return name
            seen.add(source)
            name = source

    families: dict[str, dict[int, Candidate]] = {}
    for name, candidate in of_tensor.items():
        families.setdefault(root(name), {})[id(candidate)] = candidate
    for name, parts in families.items():
        if len(parts) > 1:
            tensors = dict.fromkeys(tensor for part in parts.values() for tensor in part.tensors)
            layers = dict.fromkeys(layer for part in parts.values() for layer in part.layers)
            yield Candidate(name, tuple(tensors), tuple(layers))
