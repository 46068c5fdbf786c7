"""Noise account: sources of the error at a network's outputs.

The unit is noise energy at the outputs: the squared difference, relative to the output's own energy, summed over the
outputs. It answers two questions, with the network cut after each tensor (`segments`), so that only the part after it
is recomputed:

- How much does each rounding alone add to the float network? Independent roundings add up, so these energies are the
  account: its sum is checked against the whole simulation, and `remainder` is the share of the whole that the sum
  misses (negative: exceeds).
- How much does the INT8 network gain without one of them (`Judge.without`)? If several causes act together, each gains
  nothing.

An entry of the account is a set rounded together: tensors of one scale with only Relu or data movement between them, or
the weights of a layer. The account costs at most `PASSES` passes of the network over the samples, for any number of
entries: it uses as many samples, evenly spread, as that allows; if it does not allow two, neighbours are measured
together, and the noisiest of these sets are halved until the passes are used up.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import (
    Any,
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

import numpy as np
import onnx

from qdq_translator.core.formats.layer_precisions import is_expressible
from qdq_translator.core.formats.report_rows import INT8, LayerPlan
from qdq_translator.core.formats.verify_rows import FITS, Audit, AuditedScale, AuditedWeight, Jump, Rounding
from qdq_translator.core.formats.verify_rows import Account as AccountRow
from qdq_translator.core.workers.work import Work
from qdq_translator.lab.simulate.calibration.audit import audit_scales, audit_weights
from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.lab.simulate.compare import Compared, in_shapes, matched_rows, scoring
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import (
    ImplicitNetwork,
    Simulated,
    SimulationOptions,
    copy_model,
    simulate,
)
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import Comparison, noise_to_db
from qdq_translator.lab.simulate.segments import PLAIN, Change, Segments
from qdq_translator.lab.simulate.user_metric import UserMetric
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.placement import COMMUTING, Placement
from qdq_translator.translation.scales.inference.unify import OTHER_READERS, SHARES, SHARING
from qdq_translator.translation.targets import precision

PASSES = 8
LEAST_RUNS = 2
MACS_A_VALUE = 16
"""MACs of a convolution that a processor computes while an element-wise operator makes one value."""
_MOST_NOISE = 1e6
"""Noise energy of an output that is not finite, or not zero although it should be."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Candidate to stay float. tensor: its name for a reader, '' for weights; tensors: all rounded together; weights:
    (node, input index) of weights; layers: names of the layers to keep above INT8 for it."""

    tensor: str
    tensors: tuple[str, ...]
    layers: tuple[str, ...]
    weights: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        return self.tensor or f"weights of {self.weights[0][0] if self.weights else self.layers[0]}"

    @classmethod
    def joined(cls, rows: Sequence[Candidate], tensor: str = "") -> Candidate:
        def every(part: str) -> tuple[Any, ...]:
            return tuple(dict.fromkeys(one for row in rows for one in getattr(row, part)))

        name = tensor or next((row.tensor for row in rows if row.tensor), "")
        return cls(name, every("tensors"), every("layers"), every("weights"))


@dataclasses.dataclass(frozen=True)
class Entry:
    """A set of tensors that are rounded together. noise: energy that the rounding of the set adds alone to the float
    network. rule: that gave the scale, '' for weights. price: see `price`, of its layers. members: candidates that were
    measured together. causes: in the words of `verify --audit`, of the tensors and weights that do not fit. excess: the
    share (0 to 1) of its own rounding noise that a better range would take away, of a range that clips or leaves unused
    more than the audit allows."""

    candidate: Candidate
    noise: float
    rule: str = ""
    price: Optional[float] = None
    members: int = 1
    causes: tuple[str, ...] = ()
    excess: float = 0.0


_Row = TypeVar("_Row", bound=Union[AuditedScale, AuditedWeight, Jump])


@dataclasses.dataclass(frozen=True)
class Account:
    """The noise of the outputs by what causes it. entries: largest first. whole: noise energy of the whole simulation,
    on the same samples. passes: of the network over all samples, that the account needed. sources: tensor -> tensors
    that its layer only passes on (data movement, Concat): with one scale, they are rounded once."""

    entries: tuple[Entry, ...]
    whole: float
    samples: int
    passes: float
    sources: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(entry.noise for entry in self.entries)

    @property
    def remainder(self) -> float:
        """Share of the whole that the sum misses; negative if the sum exceeds it."""
        return (self.whole - self.total) / self.whole if self.whole else 0.0

    def share(self, noise: float) -> float:
        """Share of the sum (0 to 1)."""
        return noise / self.total if self.total else 0.0

    def entry(self, tensor: str = "", layer: str = "") -> Optional[Entry]:
        """The entry that has the tensor, or the weights of the layer; None if it is not rounded."""
        for entry in self.entries:
            if tensor in entry.candidate.tensors or any(layer == node for node, _ in entry.candidate.weights):
                return entry
        return None

    def within(self, candidate: Candidate) -> list[Entry]:
        """The entries that have some of the candidate's tensors or weights."""
        tensors, weights = set(candidate.tensors), set(candidate.weights)
        return [
            e
            for e in self.entries
            if tensors.intersection(e.candidate.tensors) or weights.intersection(e.candidate.weights)
        ]

    def with_share(self, row: _Row) -> _Row:
        """The row with its share (0 to 1) of the sum of noise energies; a jump has the causes of its entry as well."""
        tensor = "" if isinstance(row, AuditedWeight) or getattr(row, "where", "") == "made" else row.tensor
        entry = self.entry(tensor, "" if isinstance(row, AuditedScale) or tensor else row.node)
        more: dict[str, Any] = {}
        if isinstance(row, Jump):
            more["notes"] = tuple(dict.fromkeys((*row.notes, *(entry.causes if entry is not None else ()))))
        return dataclasses.replace(row, noise_share=self.share(entry.noise) if entry is not None else 0.0, **more)

    def candidates(self, held: Mapping[str, float]) -> list[tuple[Candidate, float]]:
        """Entries that layers above INT8 can leave out, with their share (0 to 1) of the noise, largest first. Included
        are sets under one scale joined by a Concat, because each rounds values that the others have rounded. held:
        rounded tensor -> scale."""
        noise = {e.candidate: e.noise for e in self.entries if e.candidate.layers}
        noise.update(
            (Candidate.joined(rows), sum(noise[row] for row in rows)) for rows in self._joined(list(noise), held)
        )
        found = [(one, self.share(value)) for one, value in noise.items() if all(map(is_expressible, one.layers))]
        return sorted(found, key=lambda pair: -pair[1])

    def _joined(self, rows: Sequence[Candidate], held: Mapping[str, float]) -> list[tuple[Candidate, ...]]:
        """Sets of candidates whose tensors have one scale on both sides of a Concat or of data movement."""
        of_tensor = {name: candidate for candidate in rows for name in candidate.tensors}
        joined: dict[str, list[Candidate]] = {}
        for name, sources in self.sources.items():
            same = [n for n in (name, *sources) if n in of_tensor and held.get(n) == held.get(name)]
            members = list(dict.fromkeys(c for n in same for c in joined.get(n, [of_tensor[n]])))
            joined.update((n, members) for candidate in members for n in candidate.tensors)
        return sorted({tuple(members) for members in joined.values() if len(members) > 1}, key=lambda row: row[0].label)

    def row(self) -> AccountRow:
        """The account as `verify --json` and the results of a search have it."""
        rows = []
        for entry in self.entries:
            one, weights = entry.candidate, tuple(node for node, _ in entry.candidate.weights)
            share, alone = self.share(entry.noise), noise_to_db(entry.noise)
            figures = share, alone, entry.causes, entry.rule, entry.price
            rows.append(Rounding(one.label, one.tensors, weights, one.layers, *figures))
        decibels = noise_to_db(self.whole), noise_to_db(self.total)
        return AccountRow(*decibels, self.remainder, self.samples, self.passes, tuple(rows))


def price(plan: Sequence[LayerPlan], layers: Collection[str]) -> tuple[Optional[float], float]:
    """Milliseconds that the layers take more in FP16 than in INT8 on a DLA, None without an estimate, and the share of
    MACs (0 to 1) that are in INT8 then."""
    times = [row.saved_by_int8 for row in plan if row.name in layers and row.precision == INT8]
    known = [time for time in times if time is not None]
    left = precision.add_macs(row for row in plan if row.precision == INT8 and row.name not in layers)
    return sum(known) if known else None, precision.share(left, precision.add_macs(plan)) or 0.0


# ---------------- measuring


@dataclasses.dataclass(frozen=True)
class Quality:
    """SQNR and cosine of the worst output against float. metric: the user's own, if there is one. gain_db, metric_gain:
    over the baseline on the same samples; samples: how many those are."""

    sqnr_db: float
    cosine: float
    metric: Optional[float] = None
    gain_db: float = 0.0
    metric_gain: Optional[float] = None
    samples: int = 0

    def over(self, other: Quality) -> Quality:
        """This quality with its gains over another one."""
        gain = 0.0 if self.sqnr_db == other.sqnr_db else self.sqnr_db - other.sqnr_db
        both = self.metric is not None and other.metric is not None
        metric_gain = self.metric - other.metric if both else None  # type: ignore[operator]
        return dataclasses.replace(self, gain_db=gain, metric_gain=metric_gain)

    def reaches(self, metric: Optional[float]) -> bool:
        return metric is not None and self.metric is not None and self.metric >= metric


class Judge:
    """Simulations of one network, measured against float on the same samples. float_model: default the stripped one."""

    def __init__(
        self,
        network: ImplicitNetwork,
        options: SimulationOptions,
        samples: Samples,
        float_model: Optional[onnx.ModelProto] = None,
        types: Optional[TensorTypes] = None,
        metric: Optional[UserMetric] = None,
        where: Evaluation = HERE,
    ) -> None:
        self.network, self.options, self.samples, self.metric, self.where = network, options, samples, metric, where
        self.types = types or TensorTypes(Graph.from_model(copy_model(network.model)))
        self._float = float_model if float_model is not None else network.model

    @functools.cached_property
    def expected(self) -> list[list[np.ndarray]]:
        """The float outputs of every run."""
        work = _Varying(self._float, (PLAIN,), self.samples, self.where.provider, keep=True)
        found = self.where.over(work, self.samples.runs)
        return [list(outputs[0].values()) for outputs in found.outputs]

    def simulated(self, precisions: Mapping[str, str], placement: Optional[Placement] = None) -> Simulated:
        asked = {**self.network.precisions, **precisions}
        return simulate(self.network, self.options, asked, self.types, placement, unrounded=True)

    def of(self, simulated: Simulated) -> Quality:
        (quality,) = self._varied(simulated.model, (PLAIN,))
        return quality

    @property
    def noise(self) -> float:
        """Energy at the worst output, relative to its own, of the whole simulation."""
        return float(10 ** (-self.of(self.simulated({})).sqnr_db / 10))

    def without(self, base: Simulated, candidates: Sequence[Candidate]) -> list[Quality]:
        """The quality of `base` with each candidate alone left float, with its gain over `base`."""
        targets = Targets(base, Graph.from_model(copy_model(self.network.model)))
        first, *found = self._varied(base.model, (PLAIN, *map(targets.floated, candidates)))
        return [quality.over(first) for quality in found]

    def noises(self, model: onnx.ModelProto, changes: Sequence[Change], ground: Change) -> np.ndarray:
        """(changes, runs): noise energy at the outputs with each change in place of the ground."""
        provider, runs = self.where.provider, range(self.samples.runs)
        work = _Varying(model, tuple(changes), self.samples, provider, self.expected, ground=ground)
        parts = self.where.engine.parts(work, [range(run, run + 1) for run in runs])
        return np.transpose([list(map(_energy, part.rows.values())) for part in parts])

    def _varied(self, model: onnx.ModelProto, changes: tuple[Change, ...]) -> list[Quality]:
        """One for each change of the model."""
        metric, numbers = self.metric, range(len(changes))
        scores = {number: metric.start("simulated") for number in numbers} if metric is not None else {}
        work = _Varying(model, changes, self.samples, self.where.provider, self.expected, keep=bool(scores))
        found = self.where.over(work, self.samples.runs, watch=scoring(scores, self.samples))
        return [
            Quality(
                min(row.sqnr_db for row in rows.values()),
                min(row.cosine for row in rows.values()),
                scores[number].result() if scores else None,
                samples=len(self.samples),
            )
            for number, rows in found.rows.items()
        ]


def account(judge: Judge, passes: float = PASSES, audit: Optional[Audit] = None) -> Account:
    """Account for the roundings of the network of `judge`. passes: maximum, of the network over all samples (see the
    module). audit: names the causes, on all samples."""
    graph = Graph.from_model(copy_model(judge.network.model))
    accounting = _Accounting(judge, judge.simulated({}), graph, passes * judge.samples.runs, audit)
    entries = sorted(accounting.entries(), key=lambda entry: -entry.noise)
    sources = {o: tuple(n.inputs) for n in graph.nodes if n.is_op(*COMMUTING, "Concat") for o in n.outputs}
    few = len(accounting.ranges) * judge.samples.batch
    return Account(tuple(entries), accounting.whole, few, accounting.spent / judge.samples.runs, sources)


class Targets:
    """Changes of a simulation that leave something float. all: everything that it rounds."""

    def __init__(self, base: Simulated, graph: Graph) -> None:
        self._base, self._graph = base, graph
        weights = tuple(sorted(base.placement.weights))
        self.all = self.floated(Candidate("", tuple(base.placement.held), (), weights))

    def floated(self, candidate: Candidate) -> Change:
        base, tensors = self._base, {}
        for name in candidate.tensors:
            made, read = base.made[name], base.read[name]
            tensors.update({target: made for target in (read, base.wide.get(read, read)) if target != made})
        chosen = set(candidate.weights)
        weights = {
            (node.name, index): name
            for node in (self._graph.nodes if chosen else ())
            for index, name in enumerate(node.inputs)
            if (node.name, index) in chosen
        }
        return Change(tensors, weights)

    def rounded(self, candidate: Candidate) -> Change:
        """Everything float except this."""
        without = self.floated(candidate)
        tensors = {read: made for read, made in self.all.tensors.items() if read not in without.tensors}
        return Change(tensors, {w: name for w, name in self.all.weights.items() if w not in without.weights})


class _Accounting:
    """One account in progress. ranges: the runs that it is measured on; spent, budget: runs of the network."""

    def __init__(self, judge: Judge, base: Simulated, graph: Graph, budget: float, audit: Optional[Audit]) -> None:
        self._judge, self._base, self._graph, self._budget, self._audit = judge, base, graph, budget, audit
        self._targets = Targets(base, graph)
        self._behind = _behind(base.graph)
        found = [*components(graph, base.placement, judge.network), *_weights(base.placement)]
        self._items = sorted(filter(self._price, found), key=self._price, reverse=True)
        self.whole = self.spent = 0.0
        runs = judge.samples.runs
        few, size, least = self._runs(1, budget), 1, min(LEAST_RUNS, runs)
        while few < least and size < len(self._items):
            size *= 2
            few = min(least, self._runs(size, budget / 2))
        self._size, few = size, max(1, min(few, runs))
        self.ranges = [range(int(i), int(i) + 1) for i in np.linspace(0, runs - 1, few).round()]

    def _price(self, candidate: Candidate) -> float:
        """Share of the network after the candidate."""
        change = self._targets.floated(candidate)
        return max((self._behind[n] for n in (*change.tensors, *(node for node, _ in change.weights))), default=0.0)

    def _sets(self, size: int) -> list[list[Candidate]]:
        return [self._items[first : first + size] for first in range(0, len(self._items), size)]

    def _runs(self, size: int, budget: float) -> int:
        """Runs that fit the budget, with so many neighbours together: the float network and the whole simulation cost
        one each.
        """
        return int(budget / (2 + sum(self._price(rows[0]) for rows in self._sets(size))))

    def entries(self) -> Iterator[Entry]:
        sets = self._sets(self._size)
        noise, histograms = self._measured(sets, whole=True)
        found = list(zip(noise, sets))
        while True:
            found.sort(key=lambda pair: -pair[0])
            loud = [pair for pair in found if len(pair[1]) > 1 and pair[0] >= found[0][0] / 10]
            halves: list[list[Candidate]] = []
            left = self._budget - self.spent - len(self.ranges)
            for pair in loud:
                left -= 2 * self._price(pair[1][0]) * len(self.ranges)
                if left >= 0:
                    half = len(pair[1]) // 2
                    halves += [pair[1][:half], pair[1][half:]]
                    found.remove(pair)
            if not halves:
                break
            found += zip(self._measured(halves)[0], halves)
        causes, excess = self._misfits(histograms)
        for value, rows in found:
            one = Candidate.joined(rows)
            names = (*one.tensors, *((node,) for node, _ in one.weights))
            words = dict.fromkeys(causes[name] for name in names if name in causes)
            most = max((excess.get(name, 0.0) for name in names), default=0.0)
            rule, time = self._judge.network.rules.get(one.tensor, ""), price(self._judge.network.plan, one.layers)[0]
            yield Entry(one, value, rule, time, len(rows), tuple(words), most)

    def _misfits(self, histograms: Mapping[str, Histogram]) -> tuple[dict[Hashable, str], dict[Hashable, float]]:
        """Tensor, or (layer,) for its weights -> cause, and -> excess, of ranges that do not fit the computed
        values."""
        placement, rules = self._base.placement, self._judge.network.rules
        scales = {name: (scale, rules.get(name, "")) for name, scale in placement.held.items()}
        own = audit_scales(scales, histograms)
        weights = audit_weights(self._graph, self._judge.types, placement.weights)
        excess: dict[Hashable, float] = {row.tensor: row.excess for row in own.tensors if not row.fits}
        excess.update(((row.node,), 1.0) for row in weights if row.cause != FITS)
        said = self._audit or dataclasses.replace(own, weights=tuple(weights))
        causes: dict[Hashable, str] = {
            row.tensor: row.cause + self._offer(row) for row in said.tensors if row.cause != FITS
        }
        causes.update(((row.node,), row.cause) for row in said.weights if row.cause != FITS)
        return causes, excess

    def _offer(self, row: AuditedScale) -> str:
        """Suffix of the cause of a tensor whose range is too wide because layers of a DLA share it, if others read it
        too.
        """
        network, readers = self._judge.network, self._graph.consumers(row.tensor)
        wide = network.origins.get(row.tensor, {}).get("note", "").startswith(SHARES) and row.best < row.scale
        share = {reader.is_op(*SHARING) for reader in readers}
        tried = network.option.get("unify_scales") == "requantize"
        return f"; {OTHER_READERS}" if wide and len(share) == 2 and not tried else ""

    def _measured(
        self, sets: Sequence[list[Candidate]], whole: bool = False
    ) -> tuple[list[float], dict[str, Histogram]]:
        """Noise energies of the sets, and tensor contents; with `whole`, also of the whole simulation."""
        judge, base = self._judge, self._base
        changes = [self._targets.rounded(Candidate.joined(rows)) for rows in sets]
        self.spent += len(self.ranges) * (1 + sum(self._price(rows[0]) for rows in sets))
        if whole:
            changes.append(PLAIN)
            self.spent += len(self.ranges)
        rounded = set(self._targets.all.tensors.values())
        counted = {base.made[n]: n for n in base.placement.held if whole and base.made[n] in rounded}
        work = _Varying(
            base.model, tuple(changes), judge.samples, judge.where.provider, ground=self._targets.all, counted=counted
        )
        found = judge.where.engine.run(work, self.ranges)
        noise = list(map(_energy, found.rows.values()))
        if whole:
            self.whole = noise.pop()
        return noise, found.counts


def _behind(graph: Graph) -> dict[str, float]:
    """Node or tensor -> share (0 to 1) of the network's time from its node on, by MACs and the values that each node
    makes; by the number of nodes where a size is unknown."""
    types = TensorTypes(graph)
    sizes = [[types.static_shape(name) for name in node.outputs if name] for node in graph.nodes]
    macs = [precision.layer_macs(node, types) for node in graph.nodes]
    known = all(count is not None for count in macs) and all(shape is not None for row in sizes for shape in row)
    costs = [1.0] * len(macs)
    if known:
        costs = [(n or 0) / MACS_A_VALUE + sum(math.prod(s or ()) for s in row) for n, row in zip(macs, sizes)]
    left, behind = sum(costs), {}
    for node, cost in zip(graph.nodes, costs):
        behind.update(dict.fromkeys((node.name, *node.outputs), left / sum(costs)))
        left -= cost
    return behind


def _energy(outputs: Mapping[str, Comparison]) -> float:
    return sum(min(row.noise, _MOST_NOISE) for row in outputs.values())


@dataclasses.dataclass
class _Varying(Work):
    """Every change of a model. expected: of every run; None for the outputs with `ground`. keep: the outputs too.
    counted: tensor of the model -> its name among the histograms."""

    model: onnx.ModelProto
    changes: tuple[Change, ...]
    samples: Samples
    provider: str
    expected: Optional[list[list[np.ndarray]]] = None
    keep: bool = False
    ground: Change = PLAIN
    counted: dict[str, str] = dataclasses.field(default_factory=dict)

    def open(self) -> Callable[[int], Compared]:
        segments = Segments(self.model, (self.ground, *self.changes), self.provider)

        def compared(run: int) -> Compared:
            base = segments.base(self.samples.feed(run), self.ground)
            found = Compared({}, {name: Histogram() for name in self.counted.values()}, [{}] if self.keep else [])
            for tensor, name in self.counted.items():
                found.counts[name].add(base.made[tensor])
            wanted = self.expected[run] if self.expected is not None else [base.read[n] for n in segments.outputs]
            for number, change in enumerate(self.changes):
                values = segments.changed(base, change)
                found.rows[number] = {name: Comparison() for name in segments.outputs}
                for name, reference in zip(segments.outputs, wanted):
                    found.rows[number][name].add(reference, matched_rows(reference, values[name]))
                if self.keep:  # for a metric, in the shapes of the model as given
                    found.outputs[0][number] = in_shapes(values, dict(zip(segments.outputs, wanted)))
            return found

        return compared


# ---------------- sets that are rounded together


def components(graph: Graph, placement: Placement, network: ImplicitNetwork) -> Iterator[Candidate]:
    """Quantized tensors that are rounded together, in graph order: of one scale, with only a Relu or data movement
    between them.

    TensorRT leaves a tensor float if no INT8 layer reads it. So the layers of a candidate are all INT8 layers that read
    it, except a Relu or data movement whose output belongs to it; for a graph output also the one that makes it."""
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
    origins = network.origins
    stated = [name for name in group if not origins.get(name, {}).get("source")]
    return Candidate((stated or group)[0], tuple(group), tuple(layers))


def _weights(placement: Placement) -> Iterator[Candidate]:
    """One candidate for the rounded weights of each layer."""
    for node in dict.fromkeys(node for node, _ in sorted(placement.weights)):
        yield Candidate("", (), (node,), tuple(sorted(place for place in placement.weights if place[0] == node)))
