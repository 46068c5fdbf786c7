"""Layer by layer: differences of the simulated engine from the explicit model, and the translation's changes there.

Every tensor of the stripped model is compared twice: as its layer *makes* it (before it is rounded), and as its readers
*read* it (after). A wrong layer shows in the first comparison, a wrong scale in the second. If the explicit model
passes a tensor to its readers in several ways (one scale each, or float to some), the worst of these counts.

Noise adds up along a network. A row is a *jump* if its noise-to-signal ratio is over four times (6 dB) that of its
inputs, and worse than 50 dB; noise below 60 dB counts as 60 dB, because one quantized value that changes by a step
causes that much. A scale inferred backward through a Relu or data movement, from the tensor that the explicit model
rounds, is harmless: the same quantized values result. Its noise is neither a jump nor inherited. It is not a jump
either if all readers' outputs have 30 dB less noise than the tensor, or if the engine leaves a tensor unrounded that
the explicit model rounds: that difference is inherited like any other.

Jumps are ranked by the noise energy that they add, relative to the tensor's energy, but at most the noise in the
outputs of the layers after it: noise that a MaxPool removes ranks behind noise that reaches the outputs. Tensors are
fetched in groups whose values of one run stay below a given number of bytes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Iterator, Mapping, Optional, Sequence

from qdq_translator.core.formats.verify_rows import Jump, Layer, Layers
from qdq_translator.core.rules import STATED
from qdq_translator.core.words import listed
from qdq_translator.lab.simulate.account import Account
from qdq_translator.lab.simulate.calibration.observe import in_groups
from qdq_translator.lab.simulate.compare import EXPLICIT, SIMULATED, Comparing, Setup, Tensors
from qdq_translator.lab.simulate.metrics import Comparison, noise_to_db
from qdq_translator.translation.ir.constants import is_quantize
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.inference import pass_through
from qdq_translator.translation.targets.precision import float_activations

JUMP_DB = 6.0
JUMP_BELOW_DB = 50.0
FLOOR_NOISE = 1e-6
"""60 dB."""
_SAME_CODES = (*pass_through.DEFAULT_OPS, "Unsqueeze", "Identity", "Dropout", "Cast", "Clip")
HEALED = 1e-3
GROUP_BYTES, MOST_TENSORS = 256 * 2**20, 256


@dataclasses.dataclass
class Row:
    """One tensor. inherited: noise of its layer's inputs; notes: effects of the translation on the tensor or its layer.
    harmless: see the module; unrounded: it has a scale that the engine does not apply (see `placement`);
    behind_harmless: its layer reads a harmless tensor; passed_on: the largest noise of a reader's output."""

    tensor: str
    node: str
    op: str
    made: Optional[Comparison]
    read: Comparison
    scale: Optional[float]
    inherited: float = 0.0
    harmless: bool = False
    unrounded: bool = False
    behind_harmless: bool = False
    passed_on: float = math.inf
    notes: list[str] = dataclasses.field(default_factory=list)

    def drops(self) -> Iterator[tuple[str, float, float, float]]:
        """Where the tensor loses: ('made' or 'read', noise energy added there, dB lost there, SQNR in dB after it)."""
        before = self.inherited
        for where, row in (("made", self.made), ("read", self.read)):
            if row is None or (where == "made" and self.behind_harmless):
                continue
            if where == "read" and (self.harmless or self.unrounded):
                continue
            lost = noise_to_db(max(before, FLOOR_NOISE)) - noise_to_db(max(row.noise, FLOOR_NOISE))
            added = row.noise if math.isinf(row.noise) else max(row.noise - before, 0.0)
            yield where, min(added, self.passed_on), lost, row.sqnr_db
            before = row.noise

    @property
    def for_readers(self) -> float:
        """The noise that its readers inherit."""
        return self.read.noise if not self.harmless else 0.0 if self.made is None else self.made.noise

    def row(self) -> Layer:
        made = None if self.made is None else self.made.row()
        return Layer(self.tensor, self.node, self.op, self.scale, made, self.read.row(), tuple(self.notes))


@dataclasses.dataclass
class LayerComparison:
    rows: list[Row]

    @property
    def jumps(self) -> list[Jump]:
        """The places where the error jumps (see the module), in graph order."""
        found = []
        for row in self.rows:
            for where, added, lost, sqnr in row.drops():
                if lost >= JUMP_DB and sqnr < JUMP_BELOW_DB and row.passed_on > HEALED * row.read.noise:
                    found.append(Jump(row.tensor, row.node, row.op, where, added, lost, sqnr, tuple(row.notes)))
        return found

    def row(self, account: Optional[Account] = None) -> Layers:
        """The row of the JSON: jumps, those that add most first, and all layers. account: gives each jump its share of
        the noise."""
        jumps = self.jumps if account is None else [account.with_share(jump) for jump in self.jumps]
        ranked = sorted(jumps, key=lambda jump: -jump.added)
        return Layers(jumps[0] if jumps else None, tuple(ranked), tuple(row.row() for row in self.rows))


def compare_layers(setup: Setup, group_bytes: int = GROUP_BYTES) -> LayerComparison:
    """Every float tensor that both models have, in graph order."""
    names, samples, simulated = setup.names, setup.samples, setup.simulated
    stages = {EXPLICIT: setup.reference, SIMULATED: simulated.model}
    types = TensorTypes(names.stripped)
    tensors = [
        name
        for name in names.stripped.tensors()
        if types.is_float(name) and not names.stripped.is_constant(name) and names.aliases(name)
    ]
    notes, rows = Notes(setup), []
    groups = list(in_groups(tensors, types, samples.batch, group_bytes // 4, MOST_TENSORS))  # two models, made and read
    for number, group in enumerate(groups):
        tensors_of: Tensors = {}
        for name in group:
            seen = (simulated.made if names.is_moved(name) else simulated.read)[name]
            tensors_of[name, ""] = (EXPLICIT, names.base(name), SIMULATED, simulated.made[name])
            tensors_of.update(((name, way), (EXPLICIT, way, SIMULATED, seen)) for way in names.aliases(name))
        work = Comparing(stages, setup.explicit.ends, tensors_of, samples, setup.where.provider)
        found = setup.where.over(work, samples.runs, setup.progress, "comparing layers", (number, len(groups))).rows
        for name in group:
            made, *read = (found[name, way] for way in ("", *names.aliases(name)))
            if all(row.comparable for row in read):
                rows.append(notes.row(name, made, read))
    _relate(rows, names.stripped, types)
    return LayerComparison(rows)


def _relate(rows: list[Row], graph: Graph, types: TensorTypes) -> None:
    """Fill in the noise that each row inherits and passes on. A tensor without row (no equivalent in the explicit
    model) passes on its inherited noise."""
    by_tensor = {row.tensor: row for row in rows}
    for row in rows:
        row.passed_on = _passed_on(row, graph, by_tensor)
    handed_on = {row.tensor: (row.for_readers, row.harmless) for row in rows}
    for node in graph.nodes:
        noises = [handed_on.get(n, (0.0, False)) for n in float_activations(node.reads(), graph, types)]
        inherited, behind_harmless = sum(n for n, _ in noises), any(h for _, h in noises)
        for name in node.outputs:
            if name in by_tensor:
                by_tensor[name].inherited, by_tensor[name].behind_harmless = inherited, behind_harmless
            else:
                handed_on[name] = inherited, behind_harmless


def _passed_on(row: Row, graph: Graph, by_tensor: Mapping[str, Row]) -> float:
    """The largest noise of a reader's output; infinite if it is not known for every reader."""
    readers = graph.consumers(row.tensor)
    behind = [by_tensor[n].read.noise for r in readers for n in r.outputs if n in by_tensor]
    known = readers and row.tensor not in graph.outputs and len(behind) >= len(readers)
    return max(behind) if known else math.inf


class Notes:
    """Known effects of the translation, from its files and from the two graphs."""

    def __init__(self, setup: Setup) -> None:
        self.network, self.names, self.placement = setup.network, setup.names, setup.simulated.placement
        self.stripped, self.explicit = setup.names.stripped, setup.explicit.graph
        self.origins = setup.network.origins
        self.weights = {row["node"]: row for row in setup.network.report.get("weights", [])}
        self.requantized = {node for node, _ in self.placement.weights}

    def row(self, tensor: str, made: Comparison, read: Sequence[Comparison]) -> Row:
        """Compare one tensor. made: as its layer makes it. read: as each of its readers gets it, the worst of which
        counts."""
        node, placement = self.stripped.producer.get(tensor), self.placement
        has_made = made.comparable and node is not None and not self.names.is_clamped(tensor)
        row = Row(
            tensor,
            node.name if node is not None else "",
            node.op_type if node is not None else "input",
            made if has_made else None,
            max(read, key=lambda comparison: comparison.noise),
            placement.held.get(tensor),
            notes=[*filter(None, self._scale(tensor)), *(self._layer(node) if node is not None else ())],
            harmless=self.is_harmless(tensor),
            unrounded=tensor in placement.stay_float or tensor in placement.fused,
        )
        if tensor in self.network.unary and has_made and made.peak > INT8_MAX:
            row.notes.append(f"its values reach {made.peak:.4g}: where Conv and Add are not fused, 127 cuts them")
        return row

    def is_harmless(self, tensor: str) -> bool:
        """Whether the tensor's readers make the same quantized values without its rounding (see the module)."""
        scale = self.placement.held.get(tensor)
        readers = self.stripped.consumers(tensor)
        if scale is None or not readers or tensor in self.stripped.outputs:
            return False
        outputs = [r.outputs[0] for r in readers]
        return all(r.is_op(*_SAME_CODES) for r in readers) and all(
            self.names.stated(o) == [scale] or (self.placement.held.get(o) == scale and self.is_harmless(o))
            for o in outputs
        )

    def _scale(self, tensor: str) -> Iterator[str]:
        placement, scale, given = self.placement, self.placement.held.get(tensor), self.names.stated(tensor)
        if tensor in self.network.unary and tensor not in placement.stay_float:
            how = "taken for fused and not applied" if scale is None else "applied: values above 127 saturate"
            yield f"unary scale 1.0 (rule S9), {how}"
        elif scale is not None:
            yield self._stated(scale, given) if given else self._not_stated(tensor, scale)
            if not given and tensor in self.stripped.outputs:
                yield "it is a graph output, which should have no scale of its own (rule S2)"
            if given:
                yield self._read_as_float(tensor)
        elif tensor in placement.stay_float:
            yield "has a scale and stays float, because no INT8 layer reads it"
        elif tensor in placement.fused:
            yield "passes unrounded through a fusion (see --fuse)"
        elif given:
            yield f"the model quantizes it with {_numbers(given)}, the cache has no scale for it"

    def _stated(self, scale: float, given: list[float]) -> str:
        """How the scale differs from those that the model states (`given`), '' if it is the only one."""
        if len(given) > 1:
            return f"conflict (rule C1): the model quantizes it with {_numbers(given)}; the cache has {scale:.6g}"
        if scale == given[0]:
            return ""
        factor = f", {scale / given[0]:.4g} times" if given[0] else ""
        return f"the cache has {scale:.6g}, the model quantizes it with {given[0]:.6g}{factor}"

    def _not_stated(self, tensor: str, scale: float) -> str:
        origin = self.origins.get(tensor, {})
        rule, node, source = (origin.get(key, "") for key in ("rule", "node", "source"))
        if not rule or rule in STATED:
            return f"scale {scale:.6g}, which the model does not state"
        at, of = f" at '{node}'" if node else "", f" from '{source}'" if source else ""
        return f"scale {scale:.6g} inferred by rule {rule}{at}{of}"

    def _read_as_float(self, tensor: str) -> str:
        """'' if nothing reads it unrounded in the model."""
        base = self.names.base(tensor)
        if base not in self.names.aliases(tensor) or self.names.is_moved(tensor):
            return ""
        readers = [n.name for n in self.explicit.consumers(base) if not is_quantize(n)]
        who = [*readers[:3], *(["readers of the graph output"] if base in self.explicit.outputs else [])]
        return f"read as float by {', '.join(who)} in the model, rounded for them here (rule C2)"

    def _layer(self, node: Node) -> Iterator[str]:
        row = self.weights.get(node.name)
        if node.name in self.requantized and row is None and self.network.report:
            yield "weights rounded to INT8, which the model leaves in float"
        elif node.name in self.requantized and row is not None and not row.get("exact", True):
            share = f"{100 * row.get('share', 0):.4g}%"
            yield f"weights requantized: {share} of the quantized values stay as trained (rule W1)"
        twin = self.explicit.producer.get(self.names.base(node.outputs[0]))
        if twin is not None and twin.op_type == "BatchNormalization" and node.op_type != "BatchNormalization":
            yield f"BatchNormalization '{twin.name}' folded into it (rule F1)"
        if node.name in self.placement.higher:
            yield "runs above INT8"


def _numbers(values: list[float]) -> str:
    return listed([f"{v:.6g}" for v in values], 4)
