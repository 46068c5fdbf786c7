"""Every sentence that the program says of a model, a file or an option, read off its source, for one file to proofread.

`python -m tests.sentences` writes `tests/data/sentences.txt` anew; `tests/test_sentences.py` holds the source against it, so
that a changed sentence is seen as a sentence. All other tests compare rules, names and numbers, never wording.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "qdq_translator"
GOLDEN = Path(__file__).resolve().parent / "data" / "sentences.txt"
_SAID_BY = {
    **dict.fromkeys(("UserError", "UsageError", "ModelError", "UnsupportedQuantizer", "MissingDependency"), "error"),
    **dict.fromkeys(("Rejected", "reject", "needed"), "error"),
    "warning": "warning",
    "info": "info",
    "leave": "left",
    **dict.fromkeys(("Stays", "stay_if", "known"), "left"),
}
"""What is called -> what kind of sentence its arguments are. 'left': why a rewrite left a node."""


def text(node: ast.expr) -> str:
    """A string as it is written, with {names} for what is filled in and (this|that) for a choice."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "{}"
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text, node.values))
    if isinstance(node, ast.FormattedValue):
        return text(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left) + text(node.right)
    if isinstance(node, ast.IfExp):
        return f"({text(node.body)}|{text(node.orelse)})"
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return f"{{{name}}}"


def sentences() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        found, rewrites = [], path.parent.name == "dla" and path.parent.parent.name == "passes"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if rewrites and isinstance(node, ast.Assign) and text(node.targets[0]) == "{why}":
                found.append((node.lineno, f"left: {text(node.value)}"))  # said in several places
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _SAID_BY:
                hints = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
                said = [text(part) for part in (*node.args, *hints)]
                said = [part for part in said if " " in part]
                if said:
                    found.append((node.lineno, f"{_SAID_BY[called]}: {' // '.join(said)}"))
        if found:
            yield f"\n{path.relative_to(PACKAGE).as_posix()}"
            yield from (line for _, line in sorted(found))


def golden() -> str:
    return "Written by `python -m tests.sentences`. Sentence // what to do.\n" + "\n".join(sentences()) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
