"""The docstring of a rewrite is its contract: each numbered case and each clause of its "Not:" has a test that says so.

A test of tests/dla/test_NAME.py names what it is about with `covers`, by the number of the case or the words of the clause:

    @covers(1, "a value other than 0")
    case("negative padding", ...)

Clauses stand between "Not:" and the first full stop, with semicolons between them.
"""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any, Iterator, Union

import pytest

from qdq_translator.translation.passes.dla import RULES


def promised(module: ModuleType) -> set[Union[int, str]]:
    """The cases and the clauses of "Not:"."""
    text = module.__doc__ or ""
    clauses = re.findall(r"^Not: (.*?)\.(?:\s|$)", text, re.M | re.S)
    assert len(clauses) == 1, f"{module.__name__}: one paragraph 'Not:'"
    return {
        *map(int, re.findall(r"^(\d+)\. ", text, re.M)),
        *(" ".join(clause.split()) for clause in clauses[0].split(";")),
    }


def marks(function: Any) -> Iterator[Any]:
    """Those of a test function, and of each of its parameters."""
    for mark in getattr(function, "pytestmark", []):
        yield mark
        if mark.name == "parametrize":
            yield from (inner for row in mark.args[1] for inner in getattr(row, "marks", ()))


@pytest.mark.parametrize("module", RULES, ids=lambda module: module.RULE)
def test_every_case_and_every_not_has_a_test(module: ModuleType) -> None:
    tests = importlib.import_module(f"tests.dla.test_{module.__name__.rpartition('.')[2]}")
    functions = [value for name, value in vars(tests).items() if name.startswith("test_")]
    covered = {
        what for function in functions for mark in marks(function) if mark.name == "covers" for what in mark.args
    }
    assert {"without a test": promised(module) - covered, "not in the docstring": covered - promised(module)} == {
        "without a test": set(),
        "not in the docstring": set(),
    }
