"""`qdq_translator.core.rules` and everything that names a rule agree: code, documentation, tests, terminal, page, options."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.rules import RULES, SAME_VALUE, STATED, described, inference_options
from qdq_translator.translation.passes import dla
from tests.records import cases

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [p for p in (ROOT / "qdq_translator").rglob("*.py") if "targets" not in p.parts]
"""The limits of the DLA (`targets`) have numbers and a table of their own."""
ELSEWHERE = {
    "F4": "test_onnxoptimizer.py", "F12": "dla/test_steps.py", "V1": "test_faithful.py", "U1": "test_unify.py",
    "K1": "test_calibrate.py", "K2": "test_audit.py", "A1": "test_annotate.py", "D0": "dla/test_rewrites.py",
}  # fmt: skip
"""Rules whose tests are a file, not `test_<rule>_...` in test_rules*.py or records of such a name."""


def test_every_rule_is_described() -> None:
    """In a row of the tables of docs/rules.md, whose cells `explain` prints, or in a sentence (rewrites for the DLA)."""
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \| ", page, re.M)
    assert sorted(rows) == sorted(row.id for row in RULES.values() if row.page == "rules.md")
    assert described("Q3") == ["int8 weight `const -> DQ`", "the same"]
    assert "per output channel `max|w| / 127`" in described("W1")[0]
    assert [rule for rule in RULES if not described(rule)] == []


def test_every_rule_that_the_code_names_has_a_row() -> None:
    """Numbers that reach a user: first arguments of diagnostics, origins of scales, RULE constants."""
    text = "\n".join(source.read_text(encoding="utf-8") for source in SOURCES)
    named = re.findall(r"(?:\.info|\.warning|info\)|warning\))\(\s*\"([A-Z]+\d+)\"", text)
    named += re.findall(r"Origin\(\s*\"([A-Z]+\d+)\"", text) + re.findall(r"^RULE = \"([A-Z]+\d+)\"", text, re.M)
    named += re.findall(r"\.give\([^\n]*?\"([A-Z]+\d+)\"", text)
    assert len(set(named)) > 25
    assert sorted(set(named) - set(RULES)) == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_tests(rule: str) -> None:
    """Or records that are named after it, whose function test_zoo_function.py compares."""
    folder = Path(__file__).parent
    if rule in ELSEWHERE:
        assert "def test_" in (folder / ELSEWHERE[rule]).read_text()
        return
    files = (folder / "dla").glob("test_*.py") if rule.startswith("D") else folder.glob("test_rules*.py")
    text = "\n".join(p.read_text() for p in files)
    pattern = rf"\b{rule}\b" if rule.startswith("D") else rf"def test_{rule.lower()}_"
    recorded = any(case.name.startswith(f"{rule.lower()}_") for case in cases())
    assert recorded or re.search(pattern, text)


def test_rewrites_for_the_dla_are_the_rows_of_the_registry() -> None:
    rewrites = ["D0", *(module.RULE for module in dla.RULES)]  # in the order in which they are tried
    assert sorted(rewrites, key=lambda rule: int(rule[1:])) == [rule for rule in RULES if rule.startswith("D")]
    page = (ROOT / "docs" / "dla_rules.md").read_text(encoding="utf-8")
    assert [m.RULE for m in dla.RULES if f"\n### {m.RULE}" not in page] == []


def test_flags_are_options_and_off_by_default() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(TranslateOptions)}
    for row in RULES.values():
        for option in row.options:
            assert defaults[option] is False, f"{row.id}: {option}"
    assert "add_unary_ew_scales_for_dla" in set(inference_options(markers=True)) - set(inference_options(markers=False))


def test_words_are_phrases_and_kinds_do_not_overlap() -> None:
    for row in RULES.values():
        assert row.words and not row.words.endswith("."), row.id
        assert (ROOT / "docs" / row.page).exists()
    assert not STATED & SAME_VALUE
