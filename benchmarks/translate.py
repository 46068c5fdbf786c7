"""How long `translate` takes and how much memory it needs, against `onnx.load` + `onnx.save` of the same file, or a copy of it
where its weights lie in another file.

    python -m benchmarks.translate            # chains and residual networks of 100 to 10,000 Convs, full-size networks
    python -m benchmarks.translate --huge     # also 3 GiB of external weights (needs 12 GiB of memory and disk)

Whole processes, import time included: seconds of the processor (user and system), which other work on the machine disturbs
least; the least of three runs after a warm-up, in turns with the yardstick. Beside a copy of the file: the median.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Sequence

from benchmarks import networks
from benchmarks.measure import ROOT, least, load_and_save, machine, middle, translate

_UNTIL_SETTLED = 6
"""Seconds after which pages that were freed are at hand for nobody."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--huge", action="store_true", help="also a model with 3 GiB of external weights")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 3000, 10000], help="numbers of Convs")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    print(
        f"{'network':<18}{'nodes':>8}{'file':>13}{'CPU':>9}{'x load + save':>15}{'peak':>13}{'x file':>8}{'per conv':>11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for make in (networks.chain, networks.residual):
            for size in options.sizes:
                report(made(make.__name__, work, str(size)), size, options.repeats)
        for full in (networks.mobilenet_v2, networks.resnet50):
            report(made(full.__name__, work), 0, options.repeats)
        if options.huge:
            make_in_child("huge", "3", "pathlib.Path(sys.argv[1])", str(work))
            report(work / "huge.onnx", 0, 1)


def made(network: str, work: Path, size: str = "") -> Path:
    """The network's file, written by a process of its own: a child's peak memory counts its parent's at the fork."""
    path = work / (f"{network}-{size}.onnx" if size else f"{network}.onnx")
    code = f"import sys, onnx; from benchmarks import networks; onnx.save(networks.{network}({size}), sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=ROOT)
    return path


def make_in_child(network: str, *arguments: str) -> None:
    code = f"import sys, pathlib; from benchmarks import networks; networks.{network}({', '.join(arguments[:-1])})"
    subprocess.run([sys.executable, "-c", code, arguments[-1]], check=True, cwd=ROOT)


@dataclasses.dataclass(frozen=True)
class Result:
    """seconds, peak: of `translate`, of the processor and in bytes; ratio, wall_ratio: of seconds, and of the time that passes, over
    the yardstick's. other: seconds of another translator."""

    network: str
    nodes: int
    size: int
    seconds: float
    ratio: float
    peak: int
    wall_ratio: float
    other: float | None = None

    @property
    def cells(self) -> list[str]:
        """network, nodes, file, time, x load + save, peak memory, x file."""
        return [
            self.network,
            f"{self.nodes:,}",
            f"{self.size / 2**20:,.1f} MiB",
            f"{self.seconds:.2f} s",
            f"{self.ratio:.1f}",
            f"{self.peak / 2**20:,.0f} MiB",
            f"{self.peak / self.size:.1f}",
        ]


def measure(path: Path, repeats: int, other: Sequence[str] = ()) -> Result:
    """Whole processes on that model. other: the command of another translator, to which model and folder are added as
    NVIDIA's flags."""
    data = path.with_name(path.name + ".data")
    size = path.stat().st_size + (data.stat().st_size if data.exists() else 0)
    # onnx.save cannot write a file above 2 GiB in one piece
    copy = ["cp", str(data), str(path.parent / "copy")] if data.exists() else load_and_save(path, path.parent / "copy")
    commands = [translate(path, path.parent / "out"), copy]
    if other:
        commands.append([*other, f"--input_onnx_models={path}", f"--output_dir={path.parent / 'other'}"])

    def settle() -> None:
        """Nothing lies where a run writes, and no pages that somebody freed just before are at hand for whoever comes next: others
        a virtual machine has to ask its host for, which takes several times as long as to write them."""
        (path.parent / "copy").unlink(missing_ok=True)
        shutil.rmtree(path.parent / "out", ignore_errors=True)
        time.sleep(_UNTIL_SETTLED)

    ours, yardstick, *rest = middle(commands, repeats, settle) if data.exists() else least(commands, repeats)
    return Result(
        path.stem,
        nodes(path),
        size,
        ours.cpu,
        ours.cpu / yardstick.cpu,
        ours.peak,
        ours.seconds / yardstick.seconds,
        rest[0].cpu if rest else None,
    )


def report(path: Path, convs: int, repeats: int) -> None:
    result = measure(path, repeats)
    each = f"{1000 * result.seconds / convs:.2f} ms" if convs else ""
    widths = (18, 8, 13, 9, 15, 13, 8)
    cells = [cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(result.cells, widths))]
    print("".join(cells) + each.rjust(11), flush=True)


def nodes(path: Path) -> int:
    code = "import onnx, sys; print(len(onnx.load(sys.argv[1], load_external_data=False).graph.node))"
    printed = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    return int(printed.stdout)


if __name__ == "__main__":
    main()
