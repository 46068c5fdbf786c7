"""One line a rule: many diagnostics of one code become the worst of them and a count, in the terminal and on the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.translation.report.data import one_a_rule
from tests.small_models import model, pair

NUMBER = 40


def many() -> onnx.ModelProto:
    """A chain of uint8 pairs; the 25th has the zero point that costs most."""
    arrays = {f"s{i}": np.float32(0.01 * (i + 1)) for i in range(NUMBER)}
    arrays.update({f"z{i}": np.uint8(255 if i == 24 else 100) for i in range(NUMBER)})
    body = "".join(pair(f"x{i}", f"d{i}", f"s{i}", f"z{i}") + f"x{i + 1} = Sin(d{i})\n" for i in range(NUMBER))
    return model(f"g (float[1,8] x0) => (float[1,8] x{NUMBER}) {{ {body} }}", **arrays)


def test_the_worst_stands_for_all() -> None:
    made = translate(many(), TranslateOptions(asymmetric="widen"))
    items = [*made.diagnostics]
    widened = [d for d in items if d.code == "W-Q1"]
    assert len(widened) == 1 and f"{NUMBER} asymmetric activations" in widened[0].message
    # zero point 255: codes -255..0, so 255 / 128 times the step
    assert f"{np.log2(255 / 128):.2f} at most ('x24')" in widened[0].message
    rows = [replace(widened[0], data={"coarser": 1.0 + i % 25}, tensor=f"x{i}") for i in range(NUMBER)]
    (group,) = one_a_rule(rows)
    assert group.count == NUMBER and group.worst.tensor == "x24"
    assert sum(g.count for g in one_a_rule(items)) == len(items)


def test_terminal_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(many(), tmp_path / "m.onnx")
    command = ["translate", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out"), "--asymmetric", "widen"]
    said = {}
    for name, argv in {
        "translate": command,
        "translate --verbose": [*command, "--verbose"],
        "report": ["report", "-t", str(tmp_path / "out")],
        "report --all": ["report", "-t", str(tmp_path / "out"), "--all"],
    }.items():
        assert main(argv) == 0
        said[name] = re.sub(r"\s+", " ", capsys.readouterr().out)
    # first screens have no numbers of rules
    counts = {name: text.count("W-Q1" if "--" in name else "warning: ") for name, text in said.items()}
    assert counts == dict.fromkeys(said, 1) and "'x24'" in said["translate"]
    page = tmp_path / "page.html"
    assert main(["report", "-t", str(tmp_path / "out"), "--html", str(page)]) == 0
    notes = page.read_text().split('<section id="notes">')[1]
    assert notes.count("W-Q1") == 1 and "&#39;x24&#39;" in notes
