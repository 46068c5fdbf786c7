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
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.formats.layer_precisions import format_layer_precisions, fp16_layers
from qdq_translator.graph import Graph
from qdq_translator.layer_names import is_expressible
from qdq_translator.placement import COMMUTING, Placement
from qdq_translator.progress import Progress
from qdq_translator.simulate.implicit import ImplicitNetwork, Simulated, SimulationOptions, copy_model, simulate
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import Comparison, finite_or_none
from qdq_translator.simulate.run import Session
from qdq_translator.simulate.user_metric import UserMetric
from qdq_translator.types import TensorTypes

KEPT_IF_DB = 0.5
FAMILY_DB = 3.0
MOST_KEPT = 10
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
    """Of the worst output against float. metric: the user's own, where there is one."""

    sqnr_db: float
    cosine: float
    metric: Optional[float] = None

    @property
    def rank(self) -> tuple[float, float]:
        """The higher the better."""
        return (0.0 if self.metric is None else self.metric, self.sqnr_db)

    def gains_on(self, other: Quality) -> bool:
        """Worth keeping layers above INT8 for it."""
        if self.metric is not None and other.metric is not None:
            return self.metric > other.metric
        return self.sqnr_db >= other.sqnr_db + KEPT_IF_DB

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
                "gain_db": finite_or_none(quality.sqnr_db - self.baseline.sqnr_db),
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
    progress: Progress = lambda what, done, total: None,
    metric: Optional[UserMetric] = None,
    enough: Optional[float] = None,
) -> Sensitivity:
    """`time_limit` in seconds; the candidate being measured is finished. enough: a value of `metric` beyond which nothing more
    is kept above INT8. The progress is that of the candidates or of the time limit, whichever is further."""
    start = time.monotonic()
    graph = Graph.from_model(copy_model(network.model))
    judge = Judge(network, options, samples, float_model, TensorTypes(graph), metric)
    base = judge.simulated({})
    baseline = judge.of(base)

    def is_late() -> bool:
        return time.monotonic() - start > time_limit

    def tell(what: str, done: int, total: int) -> None:
        share = max(done / total, min(1.0, (time.monotonic() - start) / time_limit) if time_limit > 0 else 1.0)
        progress(f"{what}, {time_limit:.0f} s at most", round(1000 * share), 1000)

    def float_alone(candidate: Candidate) -> Quality:
        gone = set(candidate.tensors)
        placement = dataclasses.replace(
            base.placement,
            held={n: s for n, s in base.placement.held.items() if n not in gone},
            weights=base.placement.weights - set(candidate.weights),
        )
        return judge.of(judge.simulated({}, placement))

    rounded = dataclasses.replace(base.placement, weights=frozenset())
    weights_matter = judge.of(judge.simulated({}, rounded)).sqnr_db >= baseline.sqnr_db + KEPT_IF_DB
    noise = _own_noise(base, samples)
    found = sorted(_components(graph, base.placement, network), key=lambda c: -max(noise[n] for n in c.tensors))
    if weights_matter:
        found += [Candidate("", (), (node,), ((node, index),)) for node, index in sorted(base.placement.weights)]
    found = [candidate for candidate in found if candidate.layers and all(map(is_expressible, candidate.layers))]
    total, ranking = len(found) + MOST_KEPT, []
    for number, candidate in enumerate(found):
        if is_late():
            break
        tell("leaving one tensor float", number, total)
        ranking.append((candidate, float_alone(candidate)))
    left = len(found) - len(ranking)
    alone = {name: quality.sqnr_db for candidate, quality in ranking for name in candidate.tensors}
    for family in _families(found, network, graph):
        if is_late():
            break
        quality = float_alone(family)
        if quality.sqnr_db >= max(alone.get(name, baseline.sqnr_db) for name in family.tensors) + FAMILY_DB:
            ranking.append((family, quality))
    ranking.sort(key=lambda pair: (*(-value for value in pair[1].rank), len(pair[0].layers)))

    def tell_more(number: int) -> None:
        tell("keeping the best together", len(found) + number, total)

    chosen = _kept_together(judge, ranking, baseline, enough, is_late, tell_more)
    progress("keeping the best together", 1, 1)
    layers = dict.fromkeys(layer for candidate, _ in chosen for layer in candidate.layers)
    # what the translation asks for may hold patterns, which format_layer_precisions refuses
    argument = ",".join(f"{name}:{asked}" for name, asked in {**network.precisions, **fp16_layers(layers)}.items())
    kept = network.option.get("keep_fp16", [])
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
        if not alone_quality.gains_on(baseline) or best.reaches(enough) or is_late():
            break
        tell(number)
        quality = judge.with_layers([*(c for c, _ in chosen), candidate])
        if quality.gains_on(best):
            chosen.append((candidate, quality))
            best = quality
    for row in list(chosen[:-1]):
        others = [pair for pair in chosen if pair is not row]
        if is_late():
            break
        quality = judge.with_layers([c for c, _ in others])
        if quality.reaches(enough) or not best.gains_on(quality):
            chosen = others
    return chosen


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
    ) -> None:
        self.metric = metric
        self.network, self.options, self.samples, self.types = network, options, samples, types
        reference = Session(float_model if float_model is not None else network.model, "float")
        self.expected: list[list[np.ndarray]] = []
        for feed in samples:
            values = reference.run(feed)
            self.expected.append([values[n] for n in reference.outputs])

    def simulated(self, precisions: Mapping[str, str], placement: Optional[Placement] = None) -> Simulated:
        asked = {**self.network.precisions, **precisions}
        return simulate(self.network, self.options, asked, self.types, placement)

    def with_layers(self, candidates: Sequence[Candidate]) -> Quality:
        """With the layers of all of them kept above INT8."""
        return self.of(self.simulated(fp16_layers(layer for c in candidates for layer in c.layers)))

    def of(self, simulated: Simulated) -> Quality:
        session = Session(simulated.model, "simulated")
        rows = [Comparison() for _ in session.outputs]
        score = self.metric.start("simulated") if self.metric is not None else None
        for index, feed in enumerate(self.samples):
            values = session.run(feed)
            for row, name, wanted in zip(rows, session.outputs, self.expected[index]):
                row.add(wanted, values[name])
            if score is not None:
                score.add(values, self.samples.labels_of(index), self.samples.batch)
        metric = None if score is None else score.result()
        return Quality(min(row.sqnr_db for row in rows), min(row.cosine for row in rows), metric)


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
