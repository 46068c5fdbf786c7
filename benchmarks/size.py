"""How large the package is and how complicated: lines, folders, imports between them, functions above the limits.

    python -m benchmarks.size                       # this checkout
    python -m benchmarks.size CHECKOUT ...          # also others, for a table of before and after
    python -m benchmarks.size --functions           # functions above the limits

Complexity is counted as radon does, lambdas left out: 1, and 1 more for each if, for, while, except, assert, conditional expression, comprehension, condition in
one, further operand of `and` and `or`, and nested function.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from pathlib import Path
from typing import Iterator, NamedTuple, Union

ROOT = Path(__file__).resolve().parents[1]
MOST_COMPLEX, MOST_LINES, WIDEST = 15, 50, 120
_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
_ONE_MORE = (
    *(ast.If, ast.For, ast.While, ast.ExceptHandler, ast.Assert, ast.IfExp, ast.comprehension),
    *(ast.FunctionDef, ast.AsyncFunctionDef),
)


def complexity(function: _Function) -> int:
    """Cyclomatic complexity, see the module."""
    inner = [node for node in ast.walk(function) if node is not function]
    operands = sum(len(node.values) - 1 for node in inner if isinstance(node, ast.BoolOp))
    conditions = sum(len(node.ifs) for node in inner if isinstance(node, ast.comprehension))
    return 1 + operands + conditions + sum(isinstance(node, _ONE_MORE) for node in inner)


class Function(NamedTuple):
    """name: `package/module.py:function`."""

    name: str
    complexity: int
    lines: int
    documented: bool


def functions(package: Path) -> Iterator[Function]:
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{path.relative_to(package.parent)}:{node.name}"
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Function(name, complexity(node), lines, ast.get_docstring(node) is not None)


def lines_of_code(source: str) -> int:
    """Lines with code: neither blank nor part of a comment or docstring."""
    found: set[int] = set()
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            begins = True
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
            if not (begins and token.type == tokenize.STRING):
                found.update(range(token.start[0], token.end[0] + 1))
            begins = False
    return len(found)


class Structure(NamedTuple):
    """Folders of the package (modules at its top count as one each), the longest way down, pairs of them with an import, imports across."""

    folders: int
    floors: int
    arrows: int
    imports: int


def structure(package: Path) -> Structure:
    names = {".".join(path.relative_to(package).with_suffix("").parts): path for path in package.rglob("*.py")}
    modules = {name.replace(".__init__", ""): path for name, path in names.items()}
    below: dict[str, set[str]] = {name.split(".")[0]: set() for name in modules}
    crossing = 0
    for name, path in modules.items():
        read = {other for other in _imported(path) if other in modules and other.split(".")[0] != name.split(".")[0]}
        crossing += len(read)
        below[name.split(".")[0]] |= {other.split(".")[0] for other in read}

    def depth(folder: str, above: tuple[str, ...] = ()) -> int:
        return 1 + max((depth(other, (*above, folder)) for other in below[folder] if other not in above), default=0)

    return Structure(len(below), max(map(depth, below)), sum(map(len, below.values())), crossing)


def _imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qdq_translator"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.partition(".")[2] for name in found if name.startswith("qdq_translator.")}


def rows(checkout: Path) -> dict[str, int]:
    """The figures of a checkout by name."""
    package = checkout / "qdq_translator"
    sources = [path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))]
    found, drawn = list(functions(package)), structure(package)
    return {
        "lines": sum(source.count("\n") for source in sources),
        "lines of code": sum(map(lines_of_code, sources)),
        "modules": len(sources),
        "modules at the top": len(list(package.glob("*.py"))),
        "folders and modules at the top": drawn.folders,
        "floors": drawn.floors,
        "arrows": drawn.arrows,
        "imports across folders": drawn.imports,
        "functions": len(found),
        f"functions with complexity above {MOST_COMPLEX}": sum(one.complexity > MOST_COMPLEX for one in found),
        f"functions above {MOST_LINES} lines": sum(one.lines > MOST_LINES for one in found),
        "public functions without docstring": sum(
            not one.documented and not one.name.rpartition(":")[2].startswith("_") for one in found
        ),
        f"lines above {WIDEST} characters": sum(
            len(line) > WIDEST for source in sources for line in source.splitlines()
        ),
        "literal keys in brackets": sum(source.count('["') for source in sources),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, help="further checkouts, as columns before this one")
    parser.add_argument("--functions", action="store_true", help="list the functions above the limits instead")
    options = parser.parse_args()
    if options.functions:
        for one in sorted(functions(ROOT / "qdq_translator"), key=lambda one: -one.complexity):
            if one.complexity > MOST_COMPLEX or one.lines > MOST_LINES:
                print(f"{one.complexity:>4} {one.lines:>4}  {one.name}")
        return
    columns = [rows(checkout) for checkout in (*options.checkouts, ROOT)]
    print("| | " + " | ".join([*(str(path) for path in options.checkouts), "now"]) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name in columns[-1]:
        print(f"| {name} | " + " | ".join(f"{column[name]:,}" for column in columns) + " |")


if __name__ == "__main__":
    main()
