"""The first hour's picture is what its script draws from the model that ships."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import onnx

from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "docs" / "first_hour.md"
SCRIPT, PICTURE = ROOT / "assets" / "draw_residual_block.py", ROOT / "assets" / "residual_block.svg"


def test_picture_is_up_to_date(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.svg"
    subprocess.run([sys.executable, str(SCRIPT), "-o", str(drawn)], check=True, cwd=tmp_path)
    assert drawn.read_text() == PICTURE.read_text(), "run python assets/draw_residual_block.py"


def test_picture_tells_the_truth() -> None:
    """Every tensor of the block stands in it, followed by its scale; the Q/DQ pairs by theirs."""
    words = [e.text for e in ElementTree.parse(PICTURE).iter() if e.tag.endswith("text") and e.text]
    scales = translate(EXAMPLE_MODEL, TranslateOptions(target="orin-dla", add_unary_ew_scales_for_dla=True)).scales
    tensors = ["/stem/stem.2/Relu_output_0", "/layer1/bn1/BatchNormalization_output_0", "/layer1/relu/Relu_output_0"]
    tensors += ["/layer1/bn2/BatchNormalization_output_0", "/layer1/Add_output_0", "/layer1/relu_1/Relu_output_0"]
    for tensor in tensors:
        assert float(words[words.index(tensor) + 1]) == round(scales[tensor].value, 5)
    assert scales[tensors[3]].value == 1.0
    for index, tensor in enumerate((tensors[0], tensors[2])):
        assert [w for w in words if w.startswith("scale ")][index] == f"scale {scales[tensor].value:.5f}"


def test_another_block_is_refused_with_its_reason(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--block", "/layer2/Add", "-o", str(tmp_path / "x.svg")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "layers on both branches" in done.stderr and not (tmp_path / "x.svg").exists()


def test_the_table_of_the_first_hour_is_the_model_that_ships() -> None:
    rows = re.findall(
        r"^\| (?:before|after): .*?\| (\d+) \| (\d+) \| (\d+) \|", README.read_text(encoding="utf-8"), re.M
    )
    made = translate(EXAMPLE_MODEL, TranslateOptions(platform="jetpack-6.2"))
    counts = []
    for nodes, scales in ((onnx.load(EXAMPLE_MODEL).graph.node, {}), (made.model.graph.node, made.cache.scales)):
        pairs = sum(n.op_type in ("QuantizeLinear", "DequantizeLinear") for n in nodes)
        counts.append((str(len(nodes)), str(pairs), str(len(scales))))
    assert rows == counts
