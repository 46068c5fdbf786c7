"""The benchmarks' command lines on a small network; the figures themselves are the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import readme
from benchmarks.translate import Result, made, measure


def test_measure(tmp_path: Path) -> None:
    path = made("chain", tmp_path, "5")
    result = measure(path, 1)
    assert (result.network, result.nodes, result.size) == ("chain-5", 35, path.stat().st_size)
    assert result.seconds > 0 and result.ratio is not None and result.ratio > 0.5
    assert result.peak > 10 * 2**20


def test_table_goes_into_the_readme() -> None:
    result = Result("chain-9", 1234, 3 * 2**20, 1.256, 2.04, 150 * 2**20)
    assert readme.row("chain of 9", result) == "| chain of 9 | 1,234 | 3.0 MiB | 1.26 s | 2.0 | 150 MiB | 50.0 |\n"
    old = f"# a\n\n{readme.HEADER}PERFORMANCE_TABLE\n\n| other | table |\n"
    table = readme.HEADER + readme.row("chain of 9", result)
    new = readme.with_table(old, table)
    assert new == f"# a\n\n{table}\n| other | table |\n"
    assert readme.with_table(new, table) == new
    with pytest.raises(ValueError, match="not one performance table"):
        readme.with_table("# a\n", table)


def test_the_readme_has_the_table() -> None:
    text = (readme.ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.with_table(text, "HERE\n").count("HERE") == 1
