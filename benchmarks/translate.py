"""How long `translate` takes and how much memory it needs, against `onnx.load` + `onnx.save` of the same file.

    python -m benchmarks.translate            # chains and residual networks of 100 to 10,000 Convs, full-size networks
    python -m benchmarks.translate --huge     # also 3 GiB of external weights (needs 12 GiB of memory and disk)

Whole processes, import time included; medians of three runs after a warm-up.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import networks
from benchmarks.measure import ROOT, load_and_save, machine, run, translate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--huge", action="store_true", help="also a model with 3 GiB of external weights")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 3000, 10000], help="numbers of Convs")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    print(
        f"{'network':<18}{'nodes':>8}{'file':>13}{'time':>9}{'x load + save':>15}{'peak':>13}{'x file':>8}{'per conv':>11}"
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
    """seconds, peak: of `translate`, in bytes; ratio: seconds over `onnx.load` + `onnx.save`, None where those cannot."""

    network: str
    nodes: int
    size: int
    seconds: float
    ratio: float | None
    peak: int

    @property
    def cells(self) -> list[str]:
        """network, nodes, file, time, x load + save, peak memory, x file."""
        return [
            self.network,
            f"{self.nodes:,}",
            f"{self.size / 2**20:,.1f} MiB",
            f"{self.seconds:.2f} s",
            "-" if self.ratio is None else f"{self.ratio:.1f}",
            f"{self.peak / 2**20:,.0f} MiB",
            f"{self.peak / self.size:.1f}",
        ]


def measure(path: Path, repeats: int) -> Result:
    """Medians of whole processes on that model."""
    data = path.with_name(path.name + ".data")
    size = path.stat().st_size + (data.stat().st_size if data.exists() else 0)
    ours = run(translate(path, path.parent / "out"), repeats)
    ratio = None
    if not data.exists():  # onnx.save cannot write such a file in one piece
        ratio = ours.seconds / run(load_and_save(path, path.parent / "copy.onnx"), repeats).seconds
    return Result(path.stem, nodes(path), size, ours.seconds, ratio, ours.peak)


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
