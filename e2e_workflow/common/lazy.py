"""Modules that are imported when something of them is used for the first time: a workflow's --help needs no framework."""

from __future__ import annotations

import importlib
import types
from typing import Any


class _Later(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def later(name: str) -> Any:
    """Stands for the module `name`. What it lacks is said by the module that needs it, when it does."""
    return _Later(name)
