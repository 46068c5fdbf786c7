"""What `tune` finds for the denoiser that ships, on Orin's DLA: estimated milliseconds for each drop of PSNR that is allowed.

    python -m benchmarks.tune_denoiser [--exhaustive] [--write] [DB ...]

100 pictures that are scored, 100 held out, 64 others to calibrate on, 24 passes. --exhaustive: beside it the least time of a backward
search from FP16 that measures every layer in each step (about 400 networks), with the calibration that `tune` chose. --write: the table of
docs/tables/tuning.md.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.dla_rewrites import page
from benchmarks.measure import machine
from e2e_workflow.denoiser import images
from e2e_workflow.glyphs.sensitive import Part
from e2e_workflow.tuning.run import STORED, Case, Images, changes_of, with_error
from qdq_translator.lab.tune.bench import cost_of
from qdq_translator.lab.tune.points import Point
from qdq_translator.translation.targets.precision import INT8

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "tuning.md"


def backward(case: Case, changes: dict[str, Any], reference: float) -> list[tuple[float, float]]:
    """(milliseconds, drop) of every set measured on the way from FP16 to INT8; next is the layer of least drop for the time saved."""

    def measured(kept: list[str]) -> tuple[float, float]:
        point = Point.of(changes, kept)
        time = cost_of(case.translation(point)).milliseconds
        assert time is not None
        return time, reference - case.score(case.seen, point)

    kept = [row.name for row in case.translation(Point.of(changes)).plan if row.precision == INT8]
    at = measured(kept)
    found = [at]
    while kept:
        rows = [(*measured([other for other in kept if other != layer]), layer) for layer in kept]
        found += [(time, drop) for time, drop, _ in rows]
        time, drop, gone = min(rows, key=lambda row: (row[1] - at[1]) / max(at[0] - row[0], 1e-6))
        at, kept = (time, drop), [layer for layer in kept if layer != gone]
    return found


def main() -> None:
    drops = [word for word in sys.argv[1:] if not word.startswith("--")] or ["0.3", "0.5"]
    lines = ["| allowed dB | ms | lost dB | held out, dB | layers in FP16 | calibration | backward search ms |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: | --- | ---: |")
    print(*lines, sep="\n")
    with tempfile.TemporaryDirectory() as name:
        seen, held = (Part(*images.pairs(100, seed)) for seed in (images.VALIDATION, images.TEST))
        given = Images(seen, held, images.pairs(64, images.TRAINING)[0])
        case, sets = Case("denoiser", STORED["denoiser"], given, Path(name), 24), {}
        for allowed in drops:
            with contextlib.redirect_stdout(io.StringIO()):
                found = case.tuned("--max_drop", allowed)
            best, key = found.best, str(found.best.changes)
            if "--exhaustive" in sys.argv and key not in sets:
                sets[key] = backward(case, best.changes, found.metric.reference)
            least = min((time for time, drop in sets.get(key, ()) if drop <= float(allowed)), default=None)
            cells = [f"{best.cost.milliseconds:.4f}", f"{best.measured.drop:.3f}", with_error(best.held_out)]
            cells += [str(len(best.kept_fp16)), changes_of(best), "" if least is None else f"{least:.4f}"]
            lines.append(f"| {allowed} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if "--write" in sys.argv:
        write(lines)


def write(lines: list[str]) -> None:
    text = "\n".join([f"`python -m benchmarks.tune_denoiser --exhaustive --write`, {machine()}.", "", *lines, ""])
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "tuning", text), encoding="utf-8")


if __name__ == "__main__":
    main()
