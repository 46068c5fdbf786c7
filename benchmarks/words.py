"""How long the documentation is, and how often its sentences fall into habits that read translated.

    python -m benchmarks.words
    python -m benchmarks.words --list qdq_translator/ir     # habits in docstrings and comments of these files

Words of each page: of its text, and of tables between markers, which a script makes or `explain` reads. The pages in docs/tables are made. Habits are
counted in the pages, in the tables that are made from docstrings, in the help of every command, in the messages (`tests/data/sentences.txt`) and in
the docstrings and comments of the package.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import tokenize
from pathlib import Path
from typing import Iterator
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
MADE = re.compile(
    r"<!-- (?P<part>[^>]+) -->\n.*?<!-- end of (?P=part) -->"  # as benchmarks/dla_rewrites.py writes them
    r"|<!-- [^>]+ -->\n+(?:\|[^\n]*\n)+",  # as benchmarks/growth.py does
    re.S,
)
CODE = re.compile(r"```.*?```|`[^`\n]*`|\[[^\]\n]*\]\(([^)\n]*)\)", re.S)
HABITS = {
    "whoever, nobody, somebody, whatever": r"whoever|nobody|somebody|whatever",
    "anew, mend": r"anew|mend(?:s|ed|ing)?",
    "stands, lies": r"stands?|stood|lies?|lay",
    "beside, aside, for want of": r"besides?|aside|for want of",
    "held against": r"(?:held|holds?) (?:\w+ ){0,3}against",
    "goes, takes": r"goes|went|takes",
    "codes": r"codes",
    "says": r"says?|said",
    "the house": r"the house|doings",
    "what": r"what",
    "where": r"where",
}
"""Name -> pattern of whole words."""


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def parts(page: Path) -> tuple[str, str]:
    """The text of a page, and its tables between markers."""
    text = page.read_text(encoding="utf-8")
    return MADE.sub("\n", text), "\n".join(match[0] for match in MADE.finditer(text))


def prose(text: str) -> str:
    """Without code, commands and the targets of links."""
    return CODE.sub(lambda match: match[0].split("]")[0] if match[1] is not None else " ", text)


def helps() -> str:
    """The help of every command."""
    from qdq_translator.cli import main
    from qdq_translator.commands import COMMANDS

    out = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="100"):
        for name in COMMANDS:
            with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
                main([name, "--help", "--all"])
    return out.getvalue()


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and comment of a module, without names in backquotes."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], prose(token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, prose(node.value.value)


def package() -> str:
    """All docstrings and comments of the package."""
    return "\n".join(text for path in sorted((ROOT / "qdq_translator").rglob("*.py")) for _, text in comments(path))


def habits(text: str) -> dict[str, int]:
    return {name: len(re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE)) for name, pattern in HABITS.items()}


def texts() -> dict[str, str]:
    """What is read for habits."""
    messages = (ROOT / "tests" / "data" / "sentences.txt").read_text(encoding="utf-8")
    by_hand, made = zip(*map(parts, pages()))
    pages_and_tables = {"docs": prose("\n".join(by_hand)), "tables": prose("\n".join(made))}
    return {**pages_and_tables, "help": helps(), "messages": messages, "code": package()}


def listed(place: Path) -> None:
    """Print each habit in the comments of a file or folder, with its surroundings."""
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        for line, text in comments(path):
            for pattern in HABITS.values():
                for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
                    print(f"{path}:{line}: {' '.join(text[max(0, match.start() - 60) : match.end() + 60].split())}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="+", type=Path, default=[], help="files and folders of the package")
    options = parser.parse_args()
    if options.list:
        for place in options.list:
            listed(place)
        return
    by_hand = made = 0
    for page in pages():
        hand, table = (len(text.split()) for text in parts(page))
        print(f"{hand:7,} {table:7,}  {page.relative_to(ROOT).as_posix()}")
        by_hand, made = by_hand + hand, made + table
    tables = sum(
        len(page.read_text(encoding="utf-8").split()) for page in sorted((ROOT / "docs" / "tables").glob("*.md"))
    )
    print(
        f"{by_hand:7,} {made:7,}  words by hand, words made by scripts\n{tables:15,}  words in docs/tables, made by scripts\n"
    )
    counted = {name: habits(text) for name, text in texts().items()}
    print(f"{'':38}" + "".join(f"{name:>10}" for name in counted))
    for habit in HABITS:
        print(f"{habit:38}" + "".join(f"{count[habit]:10}" for count in counted.values()))


if __name__ == "__main__":
    main()
