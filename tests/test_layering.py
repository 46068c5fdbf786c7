"""Imports follow the list in docs/architecture.md: only to lower lines, at load time, inside functions, and for types."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from benchmarks.size import MOST_COMPLEX, MOST_LINES, complexity, functions

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "qdq_translator"
WINGS = ("translation", "lab", "board")
"""Folders whose rooms are drawn; of the others the folder is the room."""
PAGE = ROOT / "docs" / "architecture.md"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports anywhere: at its top, in functions, under TYPE_CHECKING."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        read = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    read.add(inner if inner in known else node.module)
            elif isinstance(node, ast.Import):
                read |= {alias.name for alias in node.names}
        graph[name] = (read & known.keys()) - {name}
    return graph


def room(module: str) -> str:
    """`translation/passes/` of `qdq_translator.translation.passes.dla.pads`, `core/` of `qdq_translator.core.rules`."""
    parts = module.split(".")[1:]
    if not parts:
        return "__init__"
    place = "/".join(parts[: 2 if parts[0] in WINGS else 1])
    return f"{place}/" if (PACKAGE / place).is_dir() else place


def wing(module: str) -> str:
    """`translation` of `qdq_translator.translation.passes.dla.pads`."""
    return (module.split(".")[1:] or ["__init__"])[0]


def test_the_translation_names_neither_lab_nor_board() -> None:
    """At load time or inside functions; `board` is not named in `lab`, nor anything above in `core`."""
    order = ["core", "translation", "lab", "board", "api", "commands", "cli"]
    below = {name: order[: order.index(name) + 1] for name in ("core", "translation", "lab", "board")}
    read = [(name, other) for name, others in imports().items() for other in others if wing(name) in below]
    assert len(read) > 1000
    assert [pair for pair in read if wing(pair[1]) not in [*below[wing(pair[0])], "_version"]] == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The names on a way back to where it began; [] where there is none."""
    done: set[str] = set()
    for start in graph:
        way: list[str] = []
        stack = [(start, False)]
        while stack:
            name, left = stack.pop()
            if left:
                way.pop()
                done.add(name)
            elif name in way:
                return [*way[way.index(name) :], name]
            elif name not in done:
                way.append(name)
                stack.append((name, True))
                stack += [(other, False) for other in sorted(graph[name])]
    return []


def floors() -> list[list[str]]:
    """Rooms of the drawing, from the top floor down."""
    drawn = re.search(r"<!-- floors -->\n```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert drawn is not None
    return [line.split("  ")[0].split() for line in drawn[1].splitlines()]


def test_no_circle_of_files_or_rooms() -> None:
    graph = imports()
    assert circle(graph) == []
    rooms: dict[str, set[str]] = {room(name): set() for name in graph}
    for name, read in graph.items():
        rooms[room(name)] |= {room(other) for other in read} - {room(name)}
    assert circle(rooms) == []


MOST_CROSSING = 900
"""Imports from one wing into another: those of core, which everything reads, among them."""


def test_few_imports_cross_folders() -> None:
    graph = imports()
    crossing = [(name, other) for name, read in graph.items() for other in read if wing(name) != wing(other)]
    assert 500 < len(crossing) <= MOST_CROSSING


def test_every_import_goes_down_the_drawing() -> None:
    level = {name: -number for number, names in enumerate(floors()) for name in names}
    graph = imports()
    assert set(level) == {room(name) for name in graph}, "docs/architecture.md draws exactly the rooms that there are"
    up = [
        f"{name} imports {other}"
        for name, read in graph.items()
        for other in sorted(read)
        if room(name) != room(other) and level[room(name)] <= level[room(other)]
    ]
    assert up == []


def test_what_is_heavy_stays_in_its_room() -> None:
    allowed = {"tensorrt": "board/engine/", "onnxruntime": "lab/simulate/"}
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for heavy in {n.split(".")[0] for n in names} & allowed.keys():
                assert room(name) == allowed[heavy], f"{name} imports {heavy}"


def test_functions_are_short_and_simple() -> None:
    """Complexity with comprehensions and boolean operands at most 15, at most 50 lines: `python -m benchmarks.size --functions`."""
    found = list(functions(PACKAGE))
    assert len(found) > 2000
    assert [one for one in found if one.complexity > MOST_COMPLEX or one.lines > MOST_LINES] == []


def test_what_counts_as_complexity() -> None:
    (one,) = ast.parse(
        "def f(a):\n"
        "    if a and a > 1 or a < -1:\n"
        "        return [b for b in a if b if b > 2]\n"
        "    return 1 if a else 2\n"
    ).body
    assert isinstance(one, ast.FunctionDef)
    assert complexity(one) == 1 + 3 + 3 + 1


def test_formatting_is_never_switched_off() -> None:
    for path in modules().values():
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"# fmt: (off|skip)|noqa: C901", source), f"{path} switches a check off"


READERS_OF_OPTIONS = (
    "translation.targets.settings",
    "translation.files.",
    "translation.report.",
    "lab.",
    "board.consumers",
    "translation.planning.translation",
    "translation.planning.what_if",
    "translation.laboratory",
)
"""The module that resolves options once, and those that write them into files, read them back or hand them on."""


def test_options_end_at_the_settings() -> None:
    """Below `translate()` decisions read `Settings`, not options."""
    rank = {name: number for number, floor in enumerate(floors()) for name in floor}
    graph = imports()
    below = {name for name in graph if rank[room(name)] > rank["translation/translator"]}
    options = {"qdq_translator.core.options", "qdq_translator.core.command_options"}
    reading = {name.partition(".")[2] for name in below - options if graph[name] & options}
    assert {name for name in reading if not name.startswith(READERS_OF_OPTIONS)} == set()
    text = {name: path.read_text(encoding="utf-8") for name, path in modules().items() if name in below}
    asked = {name for name in text if re.search(r"(settings|context)\.options\b", text[name])}
    assert asked == set()
