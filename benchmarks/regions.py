"""Networks of many families on DLA and GPU by the estimate: the table of docs/tables/regions.md.

    python -m benchmarks.regions [NAME ...] [--write]

Networks: `benchmarks.families`, planned as if every tensor had a scale, for AGX Orin at MAXN. Columns: without rewrites and with every
layer on the DLA that it can run; as `--preset dla` places them; the largest DLA region alone with the rest on the GPU (`split`); all on
the GPU. Nothing was measured on a board.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from typing import Optional

from benchmarks.dla_rewrites import page
from benchmarks.families import FAMILIES
from qdq_translator import TranslateOptions
from qdq_translator.core.formats.report_rows import Cost
from qdq_translator.translation.translator import Translation, translate

_REPEATS = 3
"""Translations of which the quickest counts."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "regions.md"
HEAD = (
    "| network | layers | without: regions | ms | `--preset dla`: regions | layers on the GPU | ms | all on the GPU: ms | CPU, times plain |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


def ms(cost: Optional[Cost]) -> str:
    assert cost is not None and cost.total_milliseconds is not None and cost.total_high_milliseconds is not None
    low, high = f"{cost.total_milliseconds:.2f}", f"{cost.total_high_milliseconds:.2f}"
    return low if low == high else f"{low} to {high}"


def row(name: str) -> str:
    model = FAMILIES[name]()

    def timed(preset: Optional[str]) -> tuple[float, Translation]:
        gc.collect()
        options, start = TranslateOptions(target="orin-dla", platform="jetpack-6.2", preset=preset), time.process_time()
        made = translate(model, options, assume_scales=True)
        return time.process_time() - start, made

    timed("dla")  # imports and caches are not part of the time
    rounds = [[timed(preset)[0] for preset in (None, "dla")] for _ in range(_REPEATS)]
    times = [min(times) for times in zip(*rounds)]
    plain, best = timed(None)[1], timed("dla")[1]
    assert plain.dla is not None and best.dla is not None and best.rows.cost is not None
    cells = [name, str(len(best.graph)), str(plain.dla.subgraphs), ms(plain.rows.cost), str(best.dla.subgraphs)]
    cells += [str(len(best.dla.fallbacks)), ms(best.rows.cost), f"{best.rows.cost.all_gpu_milliseconds:.2f}"]
    return f"| {' | '.join([*cells, f'{times[1] / times[0]:.1f}'])} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    table = HEAD
    for name in options.names or FAMILIES:
        table += row(name)
        print(table.splitlines()[-1], flush=True)
    if options.write and not options.names:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "regions", table), encoding="utf-8")


if __name__ == "__main__":
    main()
