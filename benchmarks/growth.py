"""How time and memory of `translate` grow with nodes and with bytes, and where the time goes: the tables, the plot and the
profiles of docs/tables/performance.md.

    python -m benchmarks.growth                         # prints the tables
    python -m benchmarks.growth --write                 # and replaces them in docs/tables/performance.md, and the plot in assets/
    python -m benchmarks.growth --sizes 100 1000 10000 30000 --mib 10 100 1000

Whole processes, imports included, against `onnx.load` + `onnx.save` of the same file in the same run, one after the other.
Time is what the processor did for the process (user and system), which other work on the machine disturbs least, and in the
table the time that passes beside it; the least of the repeats counts. The profiles are of one process each, pass by pass.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from benchmarks.measure import ROOT, Run, least, load_and_save, machine, translate
from benchmarks.translate import made, nodes

PAGE, PLOT = ROOT / "docs" / "tables" / "performance.md", ROOT / "assets" / "growth.svg"
_PROFILE = """
import collections, json, sys, time
import onnx
start = time.process_time()
from qdq_translator.translation import files as emit
from qdq_translator.translation.passes import pipeline
from qdq_translator.translation import translator
from qdq_translator.translation.files import write
imported = time.process_time() - start
parts = collections.Counter()
open_parts = []

def timed(name, function):
    def run(*arguments, **named):
        began = time.process_time()
        open_parts.append(0.0)
        try:
            return function(*arguments, **named)
        finally:
            spent = time.process_time() - began
            parts[name] += spent - open_parts.pop()
            if open_parts:
                open_parts[-1] += spent
    return run

import dataclasses
import gc
gc.disable()
pipeline.PIPELINE = tuple(dataclasses.replace(p, run=timed("pass: " + p.name, p.run)) for p in pipeline.PIPELINE)
for module, function, name in (
    (translator, "open_model", "reading"), (translator, "validate", "validation"), (translator, "decide", "scales and plan"),
    (translator, "find_root_causes", "causes"), (translator, "check_weights", "check of the weights"),
    (translator, "make_report", "report"), (write, "write_graph", "writing the model"),
    (write.integrity, "contents", "digests"), (write, "format_report", "report as text"),
    (write, "precision_config", "precision config"),
):
    setattr(module, function, timed(name, getattr(module, function)))
translator.Graph.from_model = timed("index", translator.Graph.from_model)
began = time.process_time()
translator.translate(sys.argv[1]).save(sys.argv[2])
total = time.process_time() - began
parts["the rest"] = total - sum(parts.values())
print(json.dumps({"imports": imported, **parts}))
"""


def profile(model: Path, folder: Path) -> dict[str, float]:
    """Part -> seconds of CPU, without what is below a hundredth of the whole."""
    argv = [sys.executable, "-c", _PROFILE, str(model), str(folder)]
    parts = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    shown = {name: seconds for name, seconds in parts.items() if seconds >= 0.01 * sum(parts.values())}
    shown["the rest"] = sum(parts.values()) - sum(s for name, s in shown.items() if name != "the rest")
    return dict(sorted(shown.items(), key=lambda item: -item[1]))


def slope(xs: list[float], ys: list[float]) -> float:
    """Of the straight line through the logarithms, by least squares: 1 is linear."""
    a, b = [math.log(x) for x in xs], [math.log(y) for y in ys]
    middle, height = sum(a) / len(a), sum(b) / len(b)
    return sum((x - middle) * (y - height) for x, y in zip(a, b)) / sum((x - middle) ** 2 for x in a)


def plot(xs: list[float], series: dict[str, list[float]], title: str, left: int, top: int) -> str:
    """One panel: logarithmic axes, a line a series, named with its slope."""
    width, height = 300, 220
    flat = [y for ys in series.values() for y in ys]
    x0, x1 = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
    y0, y1 = math.floor(math.log10(min(flat))), math.ceil(math.log10(max(flat)))

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + width * (math.log10(x) - x0) / (x1 - x0),
            top + height * (y1 - math.log10(y)) / (y1 - y0),
        )

    parts = []
    for power in range(x0, x1 + 1):
        x, y = at(10**power, 10**y0)
        parts.append(
            f'<path class="g" d="M{x:.0f} {top}V{y:.0f}"/><text x="{x:.0f}" y="{y + 16:.0f}">{10**power:,}</text>'
        )
    for power in range(y0, y1 + 1):
        x, y = at(10**x0, 10**power)
        parts.append(
            f'<path class="g" d="M{x:.0f} {y:.0f}h{width}"/><text class="e" x="{x - 6:.0f}" y="{y + 4:.0f}">{10.0**power:g}</text>'
        )
    for index, (name, ys) in enumerate(series.items()):
        points = [at(x, y) for x, y in zip(xs, ys)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="s{index}" points="{line}"/>')
        parts += [f'<circle class="s{index}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
        label = f"{name}: slope {slope(xs, ys):.2f}"
        parts.append(f'<text class="l s{index}" x="{left + 8}" y="{top + 16 + 16 * index}">{escape(label)}</text>')
    parts.append(f'<text class="l" x="{left}" y="{top - 12}">{escape(title)}</text>')
    return "".join(parts)


STYLE = (
    "text{font:12px sans-serif;fill:#6b7785;text-anchor:middle}.e{text-anchor:end}.l{text-anchor:start;fill:#1f2933}"
    ".g{stroke:#d5dbe1}polyline{fill:none;stroke-width:2}.s0{stroke:#2f8f4e}.s1{stroke:#8592a0}"
    "circle.s0{fill:#2f8f4e}circle.s1{fill:#8592a0}text.s0,text.s1{stroke:none}text.s0{fill:#2f8f4e}"
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One network: its nodes, the bytes of its file, and the whole processes upon it."""

    title: str
    nodes: int
    size: int
    ours: Run
    yardstick: Run

    @property
    def row(self) -> str:
        ours, theirs = self.ours, self.yardstick
        return (
            f"| {self.title} | {self.nodes:,} | {self.size / 2**20:.1f} MiB | {ours.cpu:.2f} s | {theirs.cpu:.2f} s | "
            f"{ours.cpu / theirs.cpu:.1f} | {ours.seconds / theirs.seconds:.1f} | {ours.peak / 2**20:.0f} MiB | "
            f"{ours.peak / self.size:.1f} |\n"
        )


HEADER = """| network | nodes | file | CPU | load + save | ratio | ratio of wall time | peak memory | x file |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def picture(by_nodes: list[Point], by_size: list[Point]) -> str:
    """Time and memory, each against the nodes and against the bytes."""
    panels = ""
    for top, points, xs, what in (
        (40, by_nodes, [float(p.nodes) for p in by_nodes], "nodes"),
        (340, by_size, [p.size / 2**20 for p in by_size], "MiB of weights"),
    ):
        for left, title, value in (
            (50, "Seconds of CPU", lambda run: run.cpu),
            (430, "Peak memory in MiB", lambda run: run.peak / 2**20),
        ):
            series = {"translate": [value(p.ours) for p in points], "load + save": [value(p.yardstick) for p in points]}
            panels += plot(xs, series, f"{title}, against {what}", left, top)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 600" role="img" aria-label="Time and memory against nodes '
        f'and bytes"><style>{STYLE}</style><rect width="760" height="600" fill="#fff"/>{panels}</svg>\n'
    )


def replaced(text: str, mark: str, table: str) -> str:
    """`text` with the table below `<!-- mark -->` replaced. Raises ValueError where there is none."""
    made, count = re.subn(rf"(<!-- {mark} -->\n\n)(?:\|.*\n)*\n*", lambda found: f"{found[1]}{table}\n", text)
    if count != 1:
        raise ValueError(f"docs/tables/performance.md has no place for {mark}")
    return made


CONVS = 20
"""Of the networks that grow in bytes."""


def channels(mib: float) -> int:
    """Of a chain of that many Convs, 3 x 3, with `mib` MiB of weights."""
    return max(1, round(math.sqrt(mib * 2**20 / (CONVS * 9 * 4))))


def measured(network: str, size: str, title: str, folder: Path, repeats: int) -> tuple[Path, Point]:
    path = made(network, folder, size)
    ours, yardstick = least([translate(path, folder / "out"), load_and_save(path, folder / "copy.onnx")], repeats)
    return path, Point(title, nodes(path), path.stat().st_size, ours, yardstick)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 10000], help="numbers of Convs")
    parser.add_argument("--mib", type=float, nargs="+", default=[10, 30, 100, 300, 1000], help="sizes of the weights")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    print(machine(), file=sys.stderr)
    groups = (
        [("chain", str(size), f"chain of {size:,} Convs") for size in options.sizes],
        [("chain", f"{CONVS},{channels(mib)}", f"{CONVS} Convs of {channels(mib):,} channels") for mib in options.mib],
        [("resnet50", "", "ResNet-50")],
    )
    tables, points = {}, []  # type: dict[str, str], list[list[Point]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for group in groups:
            points.append([])
            for network, size, title in group:
                path, point = measured(network, size, title, folder, options.repeats)
                points[-1].append(point)
                print(point.row, end="", flush=True)
                if size in ("1000", "10000", ""):
                    parts = profile(path, folder / "out")
                    whole = sum(parts.values())
                    tables["profile of " + title.replace("chain of ", "")] = (
                        "| part | CPU | share |\n| --- | ---: | ---: |\n"
                        + "".join(
                            f"| {part} | {1000 * seconds:.0f} ms | {100 * seconds / whole:.0f}% |\n"
                            for part, seconds in parts.items()
                        )
                    )
                path.unlink()
    tables["growth"] = HEADER + "".join(point.row for group in points for point in group)
    for mark, table in tables.items():
        print(f"\n{mark}\n\n{table}", end="")
        if options.write:
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), mark, table), encoding="utf-8")
    if options.write:
        PLOT.write_text(picture(points[0], points[1]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
