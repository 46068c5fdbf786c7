"""docs/dla_rewrites.md is what benchmarks/dla_rewrites.py makes of the program as it is."""

from __future__ import annotations

from benchmarks.dla_rewrites import PAGE, models_of, page, rules, table
from qdq_translator.passes.dla import RULES
from tests.conftest import ZOO, need_shared


def test_rules_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, "rules", rules()) == text
    assert all(f"\n### {module.RULE}" in text for module in RULES)
    assert [module.RULE for module in RULES] == [f"D{n}" for n in range(1, len(RULES) + 1)]


def test_table_is_up_to_date() -> None:
    need_shared(ZOO)
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, "table", table(models_of(ZOO / "mini"))) == text
