"""`benchmarks/inference_flags.py` and its page: what NVIDIA's formulas and the sound ones give, model by model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from benchmarks.inference_flags import MODES, PAGE, SETS, Coverage, measure, summary, table
from qdq_translator.commands.located import EXAMPLE_MODEL
from tests.small_models import model, pair


def test_the_tables_of_two_models(tmp_path: Path) -> None:
    """A gate whose input NVIDIA's formulas clip: one layer more in INT8, and one scale that can only clip."""
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float s = {0.05}, float t = {0.01}, int8 z = {0}> {"
    text += (
        pair("x", "xq") + "c = Conv(xq, w) " + pair("c", "cq") + "u = Elu(xq)  m = Mul(cq, u) " + pair("m", "mq", "t")
    )
    text += "y = Sin(mq) }"
    onnx.save(model(text, w=np.ones((4, 4, 1, 1), np.float32)), tmp_path / "gate.onnx")
    found = measure([EXAMPLE_MODEL, tmp_path / "gate.onnx"])
    with_mul = [found["gate"]["pool, concat, mul", mode] for mode in MODES]
    assert [(c.fp16, c.layers, c.clipped) for c in with_mul] == [(1, 4, 1), (3, 4, 0)]
    assert all(covered["none", "reference"] == covered["none", "sound"] for covered in found.values())
    rows = table(found).splitlines()
    assert len(rows) == 4 and rows[3].startswith("| gate | 4 | 3 | 100.0% | 1 -> 3 | 100.0% |")
    totals = [line.split(" | ") for line in summary(found).splitlines()[2:]]
    assert len(totals) == len(SETS) * len(MODES)
    total = found["gate"]["none", "sound"] + found[EXAMPLE_MODEL.stem]["none", "sound"]
    assert totals[0][2:4] == [f"{total.fp16} of {total.layers}", total.share]


def test_shares_of_nothing() -> None:
    assert Coverage(0, 1, 0, 0, 0, 0).share == "-" and Coverage(1, 4, 1, 8, 0, 0).share == "12.5%"


def test_the_page_holds_the_row_of_the_model_that_ships() -> None:
    (row,) = table(measure([EXAMPLE_MODEL])).splitlines()[2:]
    assert row in PAGE.read_text(encoding="utf-8").splitlines()
