"""`dataclasses.dataclass` for a program that starts in a quarter of a second.

A frozen dataclass has six functions written and compiled for it, 0.4 ms a class on every start, and this program has a
hundred of them before it translates anything. A record is a dataclass to everybody who asks (`fields`, `replace`, `asdict`, type
checkers), with `__init__` alone of its own. What differs: `frozen` is held by the type checker and not at run time.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls=None, *, frozen=False, eq=True):
        """As `dataclass(frozen=frozen, eq=eq)`; a method that the class has itself stays."""
        if cls is None:
            return lambda decorated: record(decorated, frozen=frozen, eq=eq)
        own = cls.__dict__
        compared = {"__eq__": _equal, "__hash__": _hash if frozen else None} if eq else {}
        methods = {"__repr__": _repr, **compared}
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        cls.__doc__ = (
            cls.__doc__ or cls.__name__
        )  # or dataclass asks for the signature, which takes longer than all else
        return dataclasses.dataclass(eq=False, repr=False)(cls)


def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in dataclasses.fields(self) if f.compare)


def _hash(self: Any) -> int:
    hashed = (f.name for f in dataclasses.fields(self) if (f.compare if f.hash is None else f.hash))
    return hash(tuple([getattr(self, name) for name in hashed]))
