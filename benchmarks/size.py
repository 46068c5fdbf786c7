"""How large the package is and how complicated: lines, folders, imports between them, functions above the limits.

    python -m benchmarks.size                       # this checkout
    python -m benchmarks.size CHECKOUT ...          # also others, for a table of before and after
    python -m benchmarks.size --functions           # functions above the limits
    python -m benchmarks.size --capabilities        # lines by what they are for

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
CAPABILITIES = {
    "a network with one scale a tensor from a Q/DQ model, and its files": "__init__ __main__ _version translation/",
    "quantizers in other forms: QOperator, arithmetic, QONNX, MCT, AMD, files of scales": "translation/quantizers/dialects/ translation/quantizers/sidecars translation/passes/dialects",
    "rewrites for the DLA": "translation/passes/dla/ translation/passes/rewrites translation/planning/earned translation/passes/pattern",
    "limits of the DLA, cost, placement on both devices, parts": "translation/targets/dla/ translation/targets/cost/ translation/planning/regions translation/planning/min_cut translation/planning/layers translation/planning/what_if translation/parts lab/parts",
    "names of TensorRT's own tensors": "translation/targets/parser_network translation/targets/auto_names",
    "explicit networks for TensorRT 11, and back from a cache": "translation/explicit translation/qdq/ lab/migrated",
    "the report: page, terminal, comparison": "translation/report/",
    "trtexec's request and its checks": "translation/files/trtexec/ translation/files/buffers",
    "options, command line and Python": "core/options core/command_options core/parsing core/boards cli commands/ api/",
    "rows of the JSON files, their schemas and readers": "core/formats/",
    "rules, errors, words, disk, budget": "core/",
    "processes and clusters": "core/workers/",
    "data sets, images, inputs": "lab/simulate/inputs lab/simulate/datasets lab/simulate/images lab/simulate/places lab/simulate/boxes",
    "the simulated engine": "lab/simulate/",
    "calibration: ranges from data": "lab/simulate/calibration/ lab/laboratory",
    "equalization, least error of the outputs, requantization": "lab/simulate/calibration/equalize lab/simulate/calibration/on_output lab/simulate/calibration/likeness lab/simulate/calibration/trial lab/simulate/calibration/requantize",
    "the check of each translation (V1)": "lab/simulate/faithful lab/simulate/segments",
    "verify: comparison, metrics, verdict": "lab/ lab/verification lab/verification_words lab/simulate/compare lab/simulate/metrics lab/simulate/named_metrics lab/simulate/user_metric lab/simulate/verdict lab/simulate/thresholds lab/simulate/evaluation",
    "lost accuracy: account, per layer, audit, sensitivity": "lab/simulate/account lab/simulate/per_layer lab/simulate/sensitivity lab/simulate/calibration/audit lab/simulate/counterparts",
    "the search for time within a budget of accuracy": "lab/tune/",
    "logs, removed features and programs explained": "board/engine/messages board/engine/migration board/engine/removed api/explaining commands/explain",
    "the builder and TensorRT's versions in Python": "board/engine/builder board/engine/versions",
    "engines checked against the plan, results of a board": "board/engine/ board/results",
    "bundles and their consumers": "board/",
}
"""What modules are for: the capability whose path is the longest that a module's path begins with."""
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


def by_capability(package: Path) -> dict[str, tuple[int, int, int]]:
    """Capability -> its modules, lines, and lines of code, the largest first."""
    of = {path: name for name, paths in CAPABILITIES.items() for path in paths.split()}
    found = dict.fromkeys(CAPABILITIES, (0, 0, 0))
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).with_suffix("").as_posix()
        name = of[max((begin for begin in of if module.startswith(begin)), key=len)]
        source, (modules, lines, code) = path.read_text(encoding="utf-8"), found[name]
        found[name] = modules + 1, lines + source.count("\n"), code + lines_of_code(source)
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, help="further checkouts, as columns before this one")
    parser.add_argument("--functions", action="store_true", help="list the functions above the limits instead")
    parser.add_argument("--capabilities", action="store_true", help="lines by what they are for")
    options = parser.parse_args()
    if options.capabilities:
        print("| what for | modules | lines | of code |\n| --- | ---: | ---: | ---: |")
        for name, (modules, lines, code) in by_capability(ROOT / "qdq_translator").items():
            print(f"| {name} | {modules} | {lines:,} | {code:,} |")
        return
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
