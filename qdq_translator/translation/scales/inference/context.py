"""Input of all scale rules: the graph (read only), the types, and guarded access to the scale table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Iterable, Mapping, Optional, Sequence

import numpy as np

from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.table import Origin, ScaleTable

LOWER_BOUND = "a lower bound: larger values are clipped"
"""Note of every scale whose range the tensor's values may exceed."""
MOST_SLACK = 3.5
"""Bits by which a bound may probably be wider than the values: half of those of INT8."""


@dataclasses.dataclass(frozen=True)
class DerivedScale:
    """The scale of a tensor that a rewrite made: `max(factor * (scale of source + scales of more) + plus, least)`, as
    soon as `source`, `more` and `needs` have scales. plus, least: scales. rule, node: its origin."""

    tensor: str
    source: str
    rule: str
    node: Node
    factor: float = 1.0
    plus: float = 0.0
    least: float = 0.0
    more: Sequence[str] = ()
    needs: Sequence[str] = ()
    note: str = ""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor that the record names."""
        return (self.tensor, self.source, *self.more, *self.needs)

    def renamed(self, names: Mapping[str, str]) -> DerivedScale:
        """Copy with current names. `names`: old -> new."""
        return dataclasses.replace(
            self,
            tensor=names[self.tensor],
            source=names[self.source],
            more=tuple(names[name] for name in self.more),
            needs=tuple(names[name] for name in self.needs),
        )

    def apply(self, context: Context) -> bool:
        """Add the scale; True if it was added."""
        values = [context.scale(name) for name in (self.source, *self.more)]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or any(name not in context.scales for name in self.needs):
            return False
        value = max(self.factor * sum(known) + self.plus, self.least)
        return context.give(self.tensor, value, self.rule, self.node, ", ".join((self.source, *self.more)), self.note)


@dataclasses.dataclass
class Context:
    """Rules read through `scale` and write through `give`, which enforces rules S1 and S2. derived: scales of tensors
    created by rewrites for the DLA. withheld: tensors that get no scale by inference, and why; '' if they represent a
    graph output, so that rule S2 applies. slack: bits by which the range of a bound is probably wider than the tensor's
    values, also of tensors that got none for that reason."""

    graph: Graph
    types: TensorTypes
    scales: ScaleTable
    policy: Policy
    derived: tuple[DerivedScale, ...] = ()
    withheld: dict[str, str] = dataclasses.field(default_factory=dict)
    slack: dict[str, float] = dataclasses.field(default_factory=dict)

    def scale(self, tensor: str) -> Optional[float]:
        return self.scales.value(tensor)

    def amax(self, tensor: str) -> Optional[float]:
        """Largest magnitude by an activation's scale or a constant's values. None if neither is known or all values are
        0."""
        value = self.scales.value(tensor)
        if value is not None:
            return value * INT8_MAX
        magnitudes = self.magnitudes(tensor)
        return None if magnitudes is None else magnitudes[1]

    def magnitudes(self, constant: str) -> Optional[tuple[float, float]]:
        """Smallest and largest magnitude of a float constant's values. None for other tensors, and if all values are 0
        or one is NaN."""
        values = self.graph.array(constant)
        if values is None or values.size == 0 or values.dtype.kind != "f":
            return None
        found = np.abs(values.astype(np.float64))
        largest = float(found.max())
        return (float(found.min()), largest) if largest > 0 else None

    def may_have(self, tensor: str) -> bool:
        """Rule S2: graph outputs, constants and integers never get an inferred scale."""
        return (
            bool(tensor)
            and tensor not in self.graph.outputs
            and tensor not in self.withheld
            and not self.graph.is_constant(tensor)
            and self.types.is_float(tensor)
        )

    def lacks(self, tensor: str) -> bool:
        return tensor not in self.scales and self.may_have(tensor)

    def give(
        self,
        tensor: str,
        value: Optional[float],
        rule: str,
        node: Node,
        source: str,
        note: str = "",
        slack: Optional[float] = None,
    ) -> bool:
        """Add a scale by `rule` if it is known (not None) and rules S1 and S2 allow it; True if it was added. source:
        the tensors from which it is derived, separated by ', ' ('' for none). slack: of a bound; by default that of
        the source. A bound of more than MOST_SLACK gives none, and the layer reports it."""
        if value is None or not self.lacks(tensor):
            return False
        bits = self.slack_of(source) if slack is None else slack
        if bits > MOST_SLACK and self.policy.mode == "sound":
            self.withheld[tensor] = f"its bound by rule {rule} is probably {bits:.1f} bits wider than its values"
        if bits:
            self.slack[tensor] = bits
        return tensor not in self.withheld and self.scales.infer(tensor, value, Origin(rule, node.name, source, note))

    def slack_of(self, source: str) -> float:
        """The slack of a tensor, or of the first of several, separated by ', '."""
        return self.slack.get(source, self.slack.get(source.partition(", ")[0], 0.0)) if self.slack else 0.0

    def give_all(self, tensors: Iterable[str], value: Optional[float], rule: str, node: Node, source: str) -> bool:
        """`give` for each of them; True if one was added."""
        changed = False
        for tensor in tensors:
            changed |= self.give(tensor, value, rule, node, source)
        return changed


@dataclass(frozen=True)
class Policy:
    """Which rules may infer. on: the options of `rules.py` that are enabled (`infer_concat_scales`). passed: operators
    that keep the scale of their input, as declared by the user. mode: 'sound', or 'reference' for NVIDIA's order and
    formulas. target: as in --target. unify: treatment of tensors of one DLA layer that have different ranges ('off',
    'warn', 'max', 'data', 'requantize'), if none loses more than max_bits_lost. by_data: scales that no exact rule
    gives are observed on data (rule K1). keep_norms: rule P1 is on."""

    on: frozenset[str] = frozenset()
    passed: tuple[str, ...] = ()
    mode: str = "sound"
    target: str = "gpu"
    unify: str = "warn"
    max_bits_lost: float = 3.0
    by_data: bool = False
    keep_norms: bool = False

    @property
    def for_dla(self) -> bool:
        return self.target != "gpu"

    @property
    def unifies(self) -> bool:
        """Whether tensors that must share a range get one."""
        return self.unify in ("max", "data")
