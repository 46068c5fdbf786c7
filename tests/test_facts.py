"""Every fact that code, messages or pages cite stands in docs/facts.md, with a status; nothing cites what a user cannot open."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import reference
from qdq_translator.translation.targets.dla.limits import LIMITS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "facts.md"
NUMBER = r"\d+\.\d+[a-z]?"
CITED = re.compile(rf"\b[Ff]acts? ({NUMBER}(?:(?:, | and | to ){NUMBER})*)")
STATUS = re.compile(r"\[(?:[^\]]*\b)?(documented|read in source|tried|user report|inferred)\b[^\]]*\]")
FOLDERS = ("qdq_translator", "docs", "benchmarks", "e2e_workflow", "tests", "assets")
SUFFIXES = (".py", ".md", ".sh", ".js", ".j2", ".html")


def sources() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
    return [*found, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def entries() -> dict[str, str]:
    """Number -> text, up to the next entry or heading."""
    parts = re.split(rf'<a id="({NUMBER})"></a>', PAGE.read_text(encoding="utf-8"))
    return {number: text.split("\n## ")[0] for number, text in zip(parts[1::2], parts[2::2])}


def test_every_cited_fact_is_published() -> None:
    known = entries()
    missing = [
        f"{path.relative_to(ROOT)} cites fact {number}"
        for path in sources()
        for cited in CITED.findall(path.read_text(encoding="utf-8", errors="replace"))
        for number in re.findall(NUMBER, cited)
        if number not in known
    ]
    assert missing == []


def test_every_fact_has_a_status_and_its_own_anchor() -> None:
    page = PAGE.read_text(encoding="utf-8")
    anchors = re.findall(r'<a id="([^"]+)"></a>', page)
    assert len(anchors) == len(set(anchors)) > 90
    # numbered lists of observed values say where each was seen in their own words
    without = [number for number, text in entries().items() if not STATUS.search(text)]
    assert without == ["1.3"]


def test_nothing_cites_what_a_user_cannot_open() -> None:
    own = Path(__file__).name
    hidden = [
        str(path)
        for path in sources()
        if path.name != own and re.search(r"fact\s+sheet", path.read_text("utf-8", "replace"))
    ]
    assert hidden == []


def test_every_limit_of_the_dla_cites_a_source() -> None:
    for limit in LIMITS:
        assert limit.source and limit.status in ("documented", "inferred")
        assert not re.search(r"\(\d", limit.source), f"{limit.id}: say which fact"


def test_the_parts_of_the_pages_that_repeat_the_program_are_current() -> None:
    """`python -m tests.renew` writes them."""
    assert [path.name for path, text in reference.pages().items() if path.read_text(encoding="utf-8") != text] == []
    page = PAGE.read_text(encoding="utf-8")
    assert (
        "\n| P2 | AveragePool, MaxPool | window 1 to 8 | GPU |" in page
        and "| `jetpack-6.2` | 10.3.0 | 100300 | orin |" in page
    )
