"""A network during the passes: the graph, and all records that refer to its parts by name.

A pass edits the graph, and renames tensors and nodes only through `rename_tensor` and `rename_node`. Tables keyed by
tensor are updated at once; mentions of a name (origins of scales, the log of rewrites, messages) are updated between
passes, once for any number of renames. Code that only reads the finished network (inference, plan, causes, verdicts,
weight checks) gets the parts that it needs, not this object.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.words import others
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import VIEWS
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import Weight
from qdq_translator.translation.scales.inference.context import DerivedScale
from qdq_translator.translation.scales.table import ScaleTable


@dataclasses.dataclass(frozen=True)
class TrainedWeight:
    """Quantized values that a weight was trained with, in the layout of its new initializer (rule W1). codes: int8, or
    None if unknown; per_channel: whether the exporter had a scale per channel."""

    codes: Optional[Weight]
    source: str
    per_channel: bool
    saturated: int


@dataclasses.dataclass(frozen=True)
class Applied:
    """One application of a rewrite rule. before: (name, operator) of each removed node; after: (node, operator) of each
    added node, whose name is read on writing. tensors: removed tensors -> tensors that now hold their values (or parts
    of them). new: tensors that did not exist."""

    rule: str
    before: tuple[tuple[str, str], ...]
    after: tuple[tuple[Node, str], ...]
    tensors: dict[str, list[str]]
    new: tuple[str, ...]

    def row(self) -> rows.Applied:
        before = tuple(rows.NodeRow(name, op) for name, op in self.before)
        after = tuple(rows.NodeRow(node.name, op) for node, op in self.after)
        return rows.Applied(self.rule, before, after, self.tensors, self.new)


def report_applied(applied: Sequence[Applied], what: str, diagnostics: Diagnostics, **more: Any) -> None:
    """Report the applications of one rule in one line. more: further data."""
    first = applied[0].before[0][0]
    diagnostics.info(
        applied[0].rule,
        f"{what}: '{first}'{others(applied)}.",
        node=first,
        data={
            "nodes": {old: [node.name for node, _ in a.after] for a in applied for old, _ in a.before},
            **more,
            "new_tensors": [name for a in applied for name in a.new],
        },
    )


def report_kept(diagnostics: Diagnostics, rule: str, kept: Mapping[str, str]) -> None:
    """Report nodes that a rule could not fold. kept: node -> reason."""
    for name in list(kept)[:1]:
        diagnostics.info(
            rule, f"'{name}'{others(kept)} cannot be folded: {kept[name]}.", node=name, data={"layers": kept}
        )


class Network:
    """A network during the passes (see the module). trained: initializer -> its trained quantized values. applied: the
    log of rewrites, in order. derived, withheld: data for scale inference on tensors created by rewrites
    (`inference.Context`)."""

    def __init__(
        self,
        graph: Graph,
        diagnostics: Optional[Diagnostics] = None,
        input_shapes: Optional[Mapping[str, Sequence[int]]] = None,
    ) -> None:
        self.graph = graph
        self.diagnostics = diagnostics if diagnostics is not None else Diagnostics()
        self.input_shapes = dict(input_shapes or {})
        self.scales = ScaleTable()
        self.trained: dict[str, TrainedWeight] = {}
        self.baked: dict[str, Any] = {}
        """Constant -> what an earlier reading of the model made of it (`quantizers.constants.Bakery`)."""
        self.applied: list[Applied] = []
        self.undone: dict[str, list[str]] = {}
        """Node that a rewrite, perhaps one that is left out by now (rule R1), makes -> the nodes that it replaces."""
        self.derived: list[DerivedScale] = []
        self.withheld: dict[str, str] = {}
        self.original: Optional[Any] = None
        """Prices on the GPU before rewrites (`targets.cost.estimate.Original`)."""
        self.users: frozenset[str] = frozenset()
        """The tensors of the user's model, before its quantizers are removed."""
        self.before: Optional[TensorTypes] = None
        """Types of this graph before the edits of the current pass, if they are known."""
        self.opset_given = graph.opset()
        """The exporter's opset, before rule F6 lowers it."""
        self.clamps: list[tuple[Node, tuple[str, str]]] = []
        """Each clamp that rule Q9 added, with the name and operator of the quantizer that it was a part of."""
        self.unsaturated = False
        """Whether quantizers of the model saturate as nodes, because the plan leaves their tensors in float."""
        self.saturations: dict[str, tuple[str, tuple[Optional[float], Optional[float]]]] = {}
        """Tensor -> the quantizer with a zero point that became a clamp of it, and the bounds that act."""
        self._reasons: dict[int, tuple[Node, str]] = {}
        self._types: Optional[TensorTypes] = None
        self._planned_types: Optional[TensorTypes] = None
        self._types_of = -1
        self._was_called: dict[str, str] = {}
        self._renamed_tensors: dict[str, str] = {}
        self._renamed_nodes: dict[str, str] = {}

    # ---------------------------------------------------------------- types

    @property
    def types(self) -> TensorTypes:
        """Types and shapes from the first request of the current pass. After `changed` the next request sees its
        edits."""
        if self._types is None:
            self._types = TensorTypes(self.graph, self.input_shapes, before=self.before)
            self.before, self._types_of = None, self.graph.version
        return self._types

    def changed(self) -> None:
        """Discard types and shapes; they are inferred again on demand."""
        self.before, self._types, self._planned_types = self._types or self.before, None, None

    @property
    def planned_types(self) -> TensorTypes:
        """Types with a batch of 1 if only the batch is open, for DLA plans, because the DLA runs static shapes (fact
        2.10)."""
        types = self.types
        if self._planned_types is None:
            batches = types.open_batches()
            self._planned_types = TensorTypes(self.graph, {**self.input_shapes, **batches}) if batches else types
        return self._planned_types

    # ---------------------------------------------------------------- names

    def rename_tensor(self, old: str, new: str) -> None:
        """Rename an output of a node or an initializer; `new` must be free. Graph inputs and outputs keep their
        names."""
        if old in self.graph.initializers:
            self.graph.rename_initializer(old, new)
        else:
            self.graph.rename_output(self.graph.producer[old], old, new)
        self.scales.rename(old, new)
        tables: tuple[dict[str, Any], ...] = (self.trained, self.withheld, self.saturations)
        for table in tables:
            if old in table:
                table[new] = table.pop(old)
        self._was_called[new] = self._was_called.get(old, old)
        self._renamed_tensors[old] = new
        self._renamed_tensors.pop(new, None)

    def withhold(self, *tensors: str, why: str = "") -> None:
        """Give no scale by inference to these tensors: they represent a graph output (rule S2), or `why`."""
        self.withheld.update(dict.fromkeys(tensors, why))

    def merge_tensor(self, gone: str, kept: str) -> None:
        """Redirect readers of `gone`, whose producer was removed, to `kept` with the same values. The scale of `gone`
        moves to `kept`, unless `kept` has one or is constant."""
        self.graph.replace_uses(gone, kept)
        self.graph.value_info.pop(gone, None)
        why = self.withheld.pop(gone, None)
        if self.graph.is_constant(kept):
            self.scales.drop(gone)
        else:
            self.scales.rename(gone, kept)
            self.withheld.update({} if why is None else {kept: why})
        self._renamed_tensors[gone] = kept
        self._renamed_tensors.pop(kept, None)

    def users_names(self) -> Callable[[str], str]:
        """Map a tensor of the finished network to its equivalent in the user's model. That is itself, its former name,
        the tensor that it is a part or only a view of, or else the next one computed from it."""
        parts = {name: old for a in self.applied for old, new in a.tensors.items() for name in new}

        def users(tensor: str) -> str:
            found = self._was_called.get(tensor, tensor) if tensor not in self.users else tensor
            while found not in self.users:
                producer, readers = self.graph.producer.get(found), self.graph.consumers(found)
                if parts.get(found) in self.users:
                    return parts[found]
                if producer is not None and producer.is_op(*VIEWS, "Cast") and producer.inputs[0] in self.users:
                    return producer.inputs[0]
                if not readers:
                    return tensor
                found = readers[0].outputs[0]
            return found

        return users

    def users_nodes(self) -> dict[str, tuple[str, str]]:
        """Node of the finished network that the user's model does not have in this form -> (name, operator) of the node
        that it replaces; of several that were rewritten together the one with the same name, else the same operator,
        else the first. A clamp of rule Q9 replaces its quantizer."""
        known = {node.name: quantizer for node, quantizer in self.clamps}
        for one in self.applied:
            given = {name: known.get(name, (name, op)) for name, op in one.before}
            of_op = {op: given[name] for name, op in reversed(one.before)}  # the first of each
            for node, op in one.after:
                known[node.name] = given.get(node.name) or of_op.get(op) or next(iter(given.values()))
        called = {new: old for old, renamed in self.diagnostics.renamed_nodes.items() for new in renamed}
        found = {}
        for node in self.graph.nodes:
            name, op = known.get(node.name, (node.name, node.op_type))
            own = called.get(name, name), op
            if own != (node.name, node.op_type):
                found[node.name] = own
        return found

    def rename_node(self, node: Node, new: str) -> None:
        """`new` as `Graph.node_name` gives it."""
        self._renamed_nodes[node.name] = new
        self._renamed_nodes.pop(new, None)
        node.name = new

    # ---------------------------------------------------------------- nodes left as they are

    def leave(self, node: Node, why: str) -> None:
        """Record why a rewrite left a node as it is; the first reason stays."""
        self._reasons.setdefault(id(node), (node, why))

    @property
    def reasons(self) -> dict[str, str]:
        """Current name of a node -> why it was left."""
        return {node.name: why for node, why in self._reasons.values()}

    # ---------------------------------------------------------------- between passes

    def end_of_pass(self) -> None:
        """Update every mention of a renamed tensor or node: linear in the mentions, free without renaming. Types are
        inferred again if the graph has changed."""
        if self._types_of != self.graph.version:
            self.changed()
        if not self._renamed_tensors and not self._renamed_nodes:
            return
        tensors, nodes = _Names(self._renamed_tensors), _Names(self._renamed_nodes)
        self._renamed_tensors, self._renamed_nodes = {}, {}
        self.scales.follow(nodes, tensors)
        self.diagnostics.follow(nodes, tensors)
        self.derived = [derived.renamed(tensors) for derived in self.derived]
        self.applied = [
            dataclasses.replace(
                a,
                tensors={old: [tensors[name] for name in new] for old, new in a.tensors.items()},
                new=tuple(tensors[name] for name in a.new),
            )
            for a in self.applied
        ]


class _Names(Dict[str, str]):
    """Old name -> current name, through several renamings; any other name maps to itself."""

    def __init__(self, renamed: dict[str, str]) -> None:
        for old, new in renamed.items():
            while new in renamed:
                new = renamed[new]
            self[old] = new

    def __missing__(self, name: str) -> str:
        return name


def followed(steps: dict[str, list[str]]) -> dict[str, list[str]]:
    """Old name -> new names, through several steps. A name that leads back to itself was kept."""

    def ends(name: str, path: tuple[str, ...], done: set[str]) -> list[str]:
        if name not in steps or name in path:
            return [name]
        if name in done:
            return []
        done.add(name)
        return [end for new in steps[name] for end in ends(new, (*path, name), done)]

    return {old: list(dict.fromkeys(ends(old, (), set()))) for old in steps}
