"""Messages about a translation for the user, one value object each."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Iterator, Mapping, Optional

from qdq_translator.core.formats.report_rows import DiagnosticRow

RENAMED_NODES = "renamed"
"""Key of `data`: current name of a node -> its former name."""
_NAMED = {
    RENAMED_NODES: ("node", ""),
    "layers": ("node", ""),
    "casts": ("node", ""),
    "nodes": ("", "node"),
    "float_readers": ("", "node"),
    "rewritten": ("", "node"),
    "tensors": ("", "tensor"),
    "new_tensors": ("", "tensor"),
    "tensor_scales": ("tensor", ""),
}
"""Key of `data` -> the kind of name in the keys of its mapping, and in its values (names, or lists of them); '' for
removed items and for anything that is not a name."""


class Diagnostic(DiagnosticRow):
    """`code`: severity letter and rule (`W-C1`); `rule`: the number in docs/rules.md; `data`: the figures behind the
    sentence (JSON types only)."""

    def __str__(self) -> str:
        return f"{self.code} {self.message}" + (f" {self.hint}" if self.hint else "")

    def follow(self, nodes: Mapping[str, str], tensors: Mapping[str, str]) -> Diagnostic:
        """A copy with the current names of nodes and tensors; each mapping accepts any name.

        The sentence is unchanged: it describes the finding at the time.
        """
        names: dict[str, Optional[Mapping[str, str]]] = {"node": nodes, "tensor": tensors, "": None}
        data = {}
        for key, value in self.data.items():
            of_keys, of_values = _NAMED.get(key, ("", ""))
            data[key] = _follow(value, names[of_keys], names[of_values])
        return dataclasses.replace(self, node=nodes[self.node], tensor=tensors[self.tensor], data=data)


class Diagnostics:
    """A list of diagnostics in the order in which they were found."""

    def __init__(self) -> None:
        self._items: list[Diagnostic] = []

    def info(self, rule: str, message: str, **more: Any) -> None:
        self._items.append(Diagnostic(f"I-{rule}", "info", rule, message, **more))

    def warning(self, rule: str, message: str, **more: Any) -> None:
        self._items.append(Diagnostic(f"W-{rule}", "warning", rule, message, **more))

    def extend(self, items: Iterable[Diagnostic]) -> None:
        self._items.extend(items)

    def follow(self, nodes: Mapping[str, str], tensors: Mapping[str, str]) -> None:
        """See `Diagnostic.follow`."""
        self._items = [item.follow(nodes, tensors) for item in self._items]

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def of_rule(self, rule: str) -> list[Diagnostic]:
        return [d for d in self._items if d.rule == rule]

    @property
    def renamed_nodes(self) -> dict[str, list[str]]:
        """Former node name -> current node names."""
        found: dict[str, list[str]] = {}
        for item in self._items:
            for new, old in item.data.get(RENAMED_NODES, {}).items():
                found.setdefault(old, []).append(new)
        return {old: new for old, new in found.items() if old}

    @property
    def warnings(self) -> list[Diagnostic]:
        return [d for d in self._items if d.severity == "warning"]


def _follow(value: Any, keys: Optional[Mapping[str, str]], values: Optional[Mapping[str, str]]) -> Any:
    if isinstance(value, dict):
        return {keys[key] if keys else key: _follow(item, None, values) for key, item in value.items()}
    if values is None:
        return value
    return values[value] if isinstance(value, str) else [values[name] for name in value]
