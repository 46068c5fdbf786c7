"""How the project writes: the length of its pages, and the habits that `benchmarks/words.py` counts."""

from __future__ import annotations

import re

from benchmarks.words import HABITS, ROOT, habits, pages, parts, prose, texts

MOST_WORDS = 16_000
"""Written by hand, README and CONTRIBUTING among them; without the facts."""
MOST_HABITS = {"docs": 20, "tables": 10, "help": 8, "messages": 10, "code": 20}
"""Of each text, code being docstrings and comments of the package, 'what' and 'where' left out, which are often right."""
REFERENCE = (
    "facts.md",
    "report_schema.md",
    "rules.md",
    "dla_rules.md",
    "symptoms.md",
    "security.md",
    "CONTRIBUTING.md",
)
"""Pages to look up, which may be longer."""
MOST_OF_A_HOW_TO = 800


def test_the_pages_are_short() -> None:
    words = {page.name: len(parts(page)[0].split()) for page in pages()}
    assert 10_000 < sum(words.values()) - words["facts.md"] <= MOST_WORDS
    assert {name: count for name, count in words.items() if name not in REFERENCE and count > MOST_OF_A_HOW_TO} == {}


def test_what_counts_as_a_habit() -> None:
    text = "Whoever mends it, `codes` aside, says so ([held against](stands.md)); it holds what was held against it."
    found = {name: count for name, count in habits(prose(text)).items() if count}
    assert found == {
        "whoever, nobody, somebody, whatever": 1,
        "anew, mend": 1,
        "beside, aside, for want of": 1,
        "says": 1,
        "held against": 2,
        "what": 1,
    }


def test_habits_stay_few() -> None:
    counted = {name: habits(text) for name, text in texts().items()}
    for name, most in MOST_HABITS.items():
        assert sum(count for habit, count in counted[name].items() if habit not in ("what", "where")) <= most, counted
        assert set(counted[name]) == set(HABITS)


def test_the_tests_of_every_folder_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in re.findall(r"^\| `.*", page.split("## Tests of a folder")[1], re.M)]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    assert [name for name in sorted(named) if not (ROOT / "tests" / f"test_{name}.py").exists()] == []
    folders = {name for row in rows for name in re.findall(r"`(\w+)/`", row[1])}
    code = {path.parent.name for path in (ROOT / "qdq_translator").glob("*/__init__.py")}
    assert code <= folders
