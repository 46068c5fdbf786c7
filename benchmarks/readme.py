"""The performance tables of docs/tables/performance.md, as Markdown.

python -m benchmarks.readme                            # five minutes on a quiet machine; prints
python -m benchmarks.readme --write                    # and replaces the tables in docs/tables/performance.md
python -m benchmarks.readme --huge 3                   # also 3 GiB of external weights
python -m benchmarks.readme --nvidia PYTHON SCRIPT     # also NVIDIA's translator: its environment's Python, its script
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Iterator

from benchmarks.growth import PAGE, replaced
from benchmarks.measure import ROOT, least, load, machine, translate
from benchmarks.translate import Result, made, make_in_child, measure

NETWORKS = (
    ("chain", "100", "chain of 100 Convs"),
    ("chain", "1000", "chain of 1,000"),
    ("chain", "3000", "chain of 3,000"),
    ("chain", "10000", "chain of 10,000"),
    ("residual", "1000", "residual, 1,000"),
    ("mobilenet_v2", "", "MobileNet-v2"),
    ("resnet50", "", "ResNet-50"),
)
"""Function in networks.py, its size, the name in the table."""
HEADER = """| network | nodes | file | CPU | x load + save | peak memory | x file |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
OTHERS = """| what | measured | beside it |
| --- | ---: | ---: |
"""
MODELS, CONVS = 36, 150


def row(title: str, result: Result) -> str:
    return "| " + " | ".join([title, *result.cells[1:]]) + " |\n"


def with_table(text: str, table: str) -> str:
    """`text` with its performance table replaced. Raises ValueError where it has none."""
    pattern = re.escape(HEADER) + r"(?:\|.*\n|PERFORMANCE_TABLE\n)*"
    if len(re.findall(pattern, text)) != 1:
        raise ValueError(
            "docs/tables/performance.md has not one performance table with the header of benchmarks/readme.py"
        )
    return re.sub(pattern, lambda match: table, text)


def others(work: Path, repeats: int, huge: float) -> Iterator[str]:
    """The rows of the other table. huge: GiB of external weights, 0 for none."""
    script = str(ROOT / "qdq_translator.py")
    bare, onnx, usage = least(
        [[sys.executable, *rest] for rest in (["-c", "pass"], ["-c", "import onnx"], [script, "--help"])], repeats
    )
    yield f"| `--help` | {usage.cpu:.2f} s of CPU | Python alone {bare.cpu:.2f} s, `import onnx` {onnx.cpu:.2f} s |\n"
    model = made("chain", work, str(CONVS))
    many = [work / f"{number}.onnx" for number in range(MODELS)]
    for path in many:
        path.write_bytes(model.read_bytes())
    command = [*translate(many[0], work / "many"), *map(str, many[1:])]
    one, all_cores = least([command, [*command, "--workers", "2"]], max(1, repeats - 1))
    yield (
        f"| {MODELS} models of {CONVS} Convs, `--jobs auto` | {all_cores.seconds:.1f} s, {one.seconds / all_cores.seconds:.1f} "
        f"times faster, {all_cores.cpu:.1f} s of CPU, {all_cores.peak / 2**20:.0f} MiB at most in a process | "
        f"one after the other {one.seconds:.1f} s, {one.cpu:.1f} s of CPU, {one.peak / 2**20:.0f} MiB |\n"
    )
    if huge:
        make_in_child("huge", str(huge), "pathlib.Path(sys.argv[1])", str(work))
        result = measure(work / "huge.onnx", repeats)
        yield (
            f"| {huge:g} GiB of external weights, 64 MiB each | {result.seconds:.1f} s of CPU, {result.peak / 2**20:.0f} MiB | "
            f"a copy of the file {result.seconds / result.ratio:.1f} s: {result.ratio:.1f} times, {result.wall_ratio:.1f} by wall time |\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the tables in docs/tables/performance.md")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the least counts (default: 3)")
    parser.add_argument(
        "--huge", type=float, default=0, metavar="GIB", help="also external weights (needs twice the disk)"
    )
    parser.add_argument("--nvidia", nargs=2, metavar=("PYTHON", "SCRIPT"), help="NVIDIA's translator and its Python")
    options = parser.parse_args()
    print(f"{machine()}; {load()}", file=sys.stderr)
    if options.nvidia is None:
        print(
            "NVIDIA's translator is not installed here (--nvidia PYTHON SCRIPT): no comparison with it.",
            file=sys.stderr,
        )
    table = HEADER
    with tempfile.TemporaryDirectory() as folder:
        for network, size, title in NETWORKS:
            path = made(network, Path(folder), size)
            result = measure(path, options.repeats, options.nvidia or ())
            table += row(title, result)
            if result.other is not None:
                print(f"{title}: NVIDIA's translator {result.other:.2f} s of CPU", file=sys.stderr)
            path.unlink()
        print(table, flush=True)
        rest = OTHERS + "".join(others(Path(folder), options.repeats, options.huge))
    print(f"{rest}\n{load()}")
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), "others", rest), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
