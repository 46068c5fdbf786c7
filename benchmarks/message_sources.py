"""Which patterns of `explain`'s messages stand in public source: `tests/data/message_sources.json`.

    python -m benchmarks.message_sources CLONE... [--write]

Each CLONE is a git repository (a bare one, too) of a program around TensorRT; its folder or the parent of it is named
`OWNER+NAME`. The texts of its C++ and Python statements are read: the string literals of a statement in one line, `1`
for what is printed between them, and the condition of an assertion. A pattern is listed with the first file that has a
text it matches, and the words that it matches there.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Iterator

from qdq_translator.board.engine.messages import _literals, _parser, messages, plain, recognize, rows

LISTED = Path(__file__).parents[1] / "tests" / "data" / "message_sources.json"
_SUFFIXES = (".cpp", ".cc", ".h", ".hpp", ".cu", ".py")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ASSERTS = re.compile(r"\b(?:ASSERT\w*|assert|CHECK\w*|TRT_CHECK)\s*\((.*)", re.DOTALL)
_OTHER = re.compile(r"(?:^|/)(?:tests?|docs?|third_party|tests?_\w+|demo|docstrings|quickstart)/")
_LONGEST = 300
"""Characters of the listed words."""


def files(clone: Path) -> Iterator[tuple[str, str]]:
    """(path, text) of each C++ and Python file of the newest commit, tests left out."""
    names = _git(clone, "ls-tree", "-r", "--name-only", "HEAD")
    for name in names.splitlines():
        if name.endswith(_SUFFIXES) and not _OTHER.search(name):
            yield name, _git(clone, "show", f"HEAD:{name}")


def _git(clone: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")


def texts(name: str, source: str) -> Iterator[str]:
    """The texts that a file prints, at most 2000 characters each."""
    for text in _of_python(source) if name.endswith(".py") else _of_cpp(source):
        text = " ".join(text.split())
        if " " in text.strip() and len(text) > 8:
            yield text[:2000]


def _of_cpp(source: str) -> Iterator[str]:
    source = re.sub(r"//[^\n\"]*\n|/\*.*?\*/", "\n", source, flags=re.DOTALL)
    for statement in re.split(r"[;{}]\s*\n", source):
        literals = list(_LITERAL.finditer(statement))
        if not literals:
            continue
        pieces = [literals[0][1]]
        for before, after in zip(literals, literals[1:]):
            pieces += ["1" if statement[before.end() : after.start()].strip() else "", after[1]]
        yield "".join(pieces).replace('\\"', '"').replace("\\n", " ") + "1"
        if asserted := _ASSERTS.search(statement):
            yield f"Assertion failed: {asserted[1]}"


def _of_python(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n\n" not in node.value:
            yield re.sub(r"\{\w*\}|%[sd]", "1", node.value)


def listed(clones: list[Path]) -> dict[str, list[str]]:
    """Pattern -> repository, file, matching words."""
    wanted = {
        text: (re.compile(text, re.IGNORECASE), _literals(_parser.parse(text)), row["id"])
        for row in rows()
        for text in row["patterns"]
    }
    found: dict[str, list[str]] = {}
    for clone in clones:
        repository = next(part for part in (clone.name, clone.parent.name) if "+" in part).replace("+", "/", 1)
        for name, source in files(clone):
            for text in texts(name, source):
                low = text.lower()
                for pattern, (compiled, keys, row) in wanted.items():
                    if pattern in found or (keys and not any(key in low for key in keys)):
                        continue
                    match = compiled.search(plain(text))
                    if match:
                        start = max(0, match.start() - 40)
                        shown = (plain(text)[start : match.end() + 60], plain(text))
                        words = next((some[:_LONGEST] for some in shown if _is_answer(some[:_LONGEST], row)), "")
                        if words:
                            found[pattern] = [repository, name, words]
    return found


def _is_answer(text: str, row: str) -> bool:
    """Whether the row alone explains the text."""
    answer = recognize(text)
    return answer is not None and answer.message.id == row and not answer.also


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("clones", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = listed(options.clones)
    print(
        f"{len(found)} of {sum(len(row['patterns']) for row in rows())} patterns of {len(messages())} rows are listed"
    )
    if options.write:
        whole = {"date": "2026-11", "patterns": dict(sorted(found.items()))}
        LISTED.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
