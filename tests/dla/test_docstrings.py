"""The docstring of a rewrite is its contract: each numbered case and each clause of its "Not:" has a test that says so.

A test of tests/dla/test_NAME.py names what it is about with `covers`, by the number of the case or the words of the clause:

    @covers(1, "a value other than 0")
    case("negative padding", ...)

A case may have a record instead, which has its number in the name (`max_pool-cases_4_and_5-12`); test_recorded.py runs it.

Clauses stand between "Not:" and the first full stop, with semicolons between them.
"""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any, Iterator, Union

import pytest

from qdq_translator.translation.passes.dla import RULES
from tests.dla.test_recorded import rewritten


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


def recorded(name: str) -> Iterator[int]:
    """The cases of a module that records of rewritten networks are named after: `case_4`, `cases_1_to_3`, `cases_1_2_and_4`."""
    for case in rewritten():
        found = re.match(rf"{name}-cases?((?:_(?:\d+|and|to))+)", case.name)
        numbers = [int(word) for word in re.findall(r"\d+", found[1])] if found else []
        yield from range(numbers[0], numbers[-1] + 1) if found and "_to_" in found[1] else numbers


@pytest.mark.parametrize("module", RULES, ids=lambda module: module.RULE)
def test_every_case_and_every_not_has_a_test(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    tests = importlib.import_module(f"tests.dla.test_{name}")
    functions = [value for name, value in vars(tests).items() if name.startswith("test_")]
    covered = {
        what for function in functions for mark in marks(function) if mark.name == "covers" for what in mark.args
    }
    without = promised(module) - covered - set(recorded(name))
    assert {"without a test": without, "not in the docstring": covered - promised(module)} == {
        "without a test": set(),
        "not in the docstring": set(),
    }
