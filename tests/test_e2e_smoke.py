"""The workflows end to end: what needs neither PyTorch nor TensorFlow always runs, the smoke modes run where those are.

.ci/run installs PyTorch and TensorFlow into environments of their own and runs this file there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from e2e_workflow.common import glyphs
from qdq_translator.commands.located import EXAMPLE_MODEL

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = EXAMPLE_MODEL.parent / "digits_samples.npz"


def run(*argv: str, cwd: Path = ROOT, seconds: int = 300) -> str:
    """Standard output of a Python process that must succeed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_example_translate_verify_report(tmp_path: Path) -> None:
    """The model that ships: trained, translated, and its simulated engine classifies the shipped samples alike."""
    cli = (sys.executable, "-c", "import sys; from qdq_translator.cli import main; sys.exit(main())")[1:]
    run(*cli, "translate", "-i", str(EXAMPLE_MODEL), "-o", str(tmp_path), "--add_unary_ew_scales_for_dla")
    out = run(
        *cli, "verify", "-i", str(EXAMPLE_MODEL), "-t", str(tmp_path), "--inputs", str(SAMPLES), "--json",
        "--min_top1_agreement", "98", "--min_cosine", "0.999",
    )  # fmt: skip
    results = json.loads(out)
    assert results["inputs"]["samples"] == 64 and not results["stale"] and results["failed"] == []
    report = json.loads(run(*cli, "report", "-t", str(tmp_path), "--json"))
    assert report["coverage"]["layers"]["int8"] >= 20


def test_onnxruntime_ptq_without_torch(tmp_path: Path) -> None:
    """The shipped network without its Q/DQ, through all four variants of quantize_static, on 450 test images."""
    pytest.importorskip("sklearn", reason="LOUDLY: scikit-learn is missing, no digits to calibrate and score with")
    pytest.importorskip("sympy", reason="LOUDLY: sympy is missing, which quant_pre_process imports")
    from e2e_workflow.common import digits, evaluate, translation
    from e2e_workflow.onnxruntime_ptq.quantizers import VARIANTS
    from qdq_translator import translate

    data = digits.load()

    def score(model: evaluate.Model) -> float:
        return evaluate.top1_of(evaluate.outputs(model, data.test_images)[0], data.test_labels)

    translate(EXAMPLE_MODEL).save(tmp_path)
    float_model = tmp_path / f"{EXAMPLE_MODEL.stem}_noqdq.onnx"
    float_score = score(float_model)
    assert float_score >= 98.5
    choices = translation.with_data(data.train_images[:256], tmp_path / "calibration.npz")
    for variant in VARIANTS:
        model = tmp_path / f"{variant.name}.onnx"
        variant.quantize(float_model, data.train_images[:256], model)
        qdq_score = score(model)
        assert qdq_score >= float_score - 1.0, variant.name
        found = translation.outcomes(model, score, variant.asymmetric, choices)
        translation.hold(variant.name, qdq_score, found, 1.0)
        assert [outcome.int8_layers for outcome in found] == [found[0].layers] * 4, variant.name


def test_a_bad_translation_is_noticed() -> None:
    """`hold` is what the workflows assert with."""
    from e2e_workflow.common.translation import Outcome, hold

    good, bad = Outcome(1, 1, 97.0), Outcome(1, 1, 93.9)
    hold("net", 98.0, [good] * 4, 4.0)
    with pytest.raises(AssertionError, match=r"net, inferred: simulated engine 93\.90, Q/DQ 98\.00"):
        hold("net", 98.0, [good, bad, good], 4.0)
    with pytest.raises(AssertionError, match="net, calibrated"):
        hold("net", 98.0, [good, good, good, bad], 4.0)


WORKFLOWS = {
    "pytorch_qat": (("torch", "onnxscript"), 4),
    "onnxruntime_ptq": (("torch", "onnxscript", "sympy"), 8),
    "modelopt_ptq": (("torch", "onnxscript", "modelopt"), 8),
    "tensorflow_qat": (("tensorflow", "tf2onnx"), 2),
    "glyphs": (("torch", "onnxscript", "PIL"), 3),
}
"""Workflow -> (modules it needs, rows of its smoke table)."""


def test_smoke_mode_of_the_inference_flags() -> None:
    missing = [name for name in ("sklearn", "torch", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"LOUDLY: inference_flags --smoke is not run here, for lack of {', '.join(missing)}")
    out = run("-m", "e2e_workflow.inference_flags.run", "--smoke", seconds=600)
    rows = [line.split(" | ") for line in out.splitlines()]
    assert sorted({row[0] for row in rows}) == ["mobilenet_silu", "resnet"] and len(rows) == 6, out
    counts = [[int(cell.partition("(")[2].rstrip(")")) for cell in row[4:]] for row in rows if "Top-1 %" in row]
    assert all(len(row) == 8 and row[1::2] == sorted(row[1::2], reverse=True) for row in counts), (
        "flags only add scales"
    )


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="LOUDLY: no PyTorch, calibration --smoke is not run"
)
def test_calibration_smoke_mode() -> None:
    """`--smoke` asserts on its scores itself; here the table is held to more layers in INT8 with data than with rules."""
    out = run("-m", "e2e_workflow.calibration.run", "--smoke", seconds=600)
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in out.splitlines() if line[:1] == "|"]
    assert len(rows) == 2 + 4, out
    for row in rows[2:5]:
        plain, *_, data, layers = (int(number) for number in re.findall(r"\d+", row[-1]))
        assert plain < data == layers - 1


def test_sensitive_glyphs_smoke_mode() -> None:
    """Ranges by minimum and maximum lose to hot pixels, and `--recalibrate` on the same images takes most of it back: on the
    network and the glyphs that are stored, so without fonts."""
    pytest.importorskip("sympy", reason="LOUDLY: sympy is missing, which quant_pre_process imports")
    out = run("-m", "e2e_workflow.glyphs.sensitive", "--smoke", seconds=900)
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in out.splitlines() if line[:1] == "|"]
    row = next(r for r in rows if r[:2] == ["Q/DQ", "tensorrt"])
    float_score, qdq, plain, *_, recalibrated = map(float, row[2:])
    assert float_score > 85 and qdq < float_score - 10 and abs(plain - qdq) < 2 and recalibrated > float_score - 3


LEAST_SCORES = {"detector": 10.0, "glyphs": 60.0}
"""Float scores after the few epochs of a smoke mode, where they are not over 85."""


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_smoke_mode(workflow: str) -> None:
    """`--smoke` asserts on its scores itself; here the table that it prints is held to the same."""
    modules, rows = WORKFLOWS[workflow]
    missing = [name for name in ("sklearn", *modules) if importlib.util.find_spec(name) is None]
    if workflow == "glyphs":
        missing += glyphs.missing(smoke=True)
    if missing:
        pytest.skip(f"LOUDLY: {workflow} --smoke is not run here, for lack of {', '.join(missing)}")
    out = run("-m", f"e2e_workflow.{workflow}.run", "--smoke", seconds=600)
    lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in out.splitlines() if line[:1] == "|"]
    header, table = lines[0], [dict(zip(lines[0], line)) for line in lines[2:]]
    assert len(table) == rows, out
    for row in table:
        loss = 8.0 if row["network"] in LEAST_SCORES else 5.0
        least = LEAST_SCORES.get(row["network"], 85.0)
        assert float(row["float"]) >= least
        scores = [row["Q/DQ"], *(row[name] for name in header if name.startswith("simulated"))]
        assert len(scores) == 5
        assert np.ptp([float(score) for score in scores]) <= loss, row
        int8 = [row[name] for name in header if name.startswith("INT8")]
        counts = [re.fullmatch(r"(\d+)/(\d+)", cell) for cell in int8]
        assert all(counts)
        covered = [int(c[1]) for c in counts if c]
        assert covered == sorted(covered) and covered[-1] > 0, f"options only add scales: {row}"


CELL = 64
"""Side of the squares that the detector below finds, and of its cells."""


def squares_detector(path: Path) -> None:
    """A detector in the form of a YOLO that finds red and green squares which fill a cell, with weights made by hand: scores and
    box coordinates up to 640 in one Concat."""
    import onnx

    from tests.small_models import model

    colours = np.zeros((8, 3, 8, 8), np.float32)
    colours[0], colours[1] = (np.array(c, np.float32)[:, None, None] / 64 for c in ((1, -1, -1), (-1, 1, -1)))
    scores, boxes = (np.zeros((count, 8, 1, 1), np.float32) for count in (2, 4))
    scores[0, 0], scores[1, 1] = 12, 12
    boxes[:2, 2] = 1e-3
    y, x = np.divmod(np.arange(100), 10)
    places = np.stack([x + 0.5, y + 0.5, 0 * x, 0 * x]).astype(np.float32)[None]
    text = """g (float[1,3,640,640] images) => (float[1,6,n] output0) {
        c = Conv<strides=[8,8]>(images, colours)  r = Relu(c)  a = AveragePool<kernel_shape=[8,8], strides=[8,8]>(r)
        b = Conv(a, boxes, one)  s = Conv(a, scores, less)  fb = Reshape(b, four)  fs = Reshape(s, two)
        p = Sigmoid(fs)  d = Add(fb, places)  m = Mul(d, stride)  output0 = Concat<axis=1>(m, p) }"""
    network = model(
        text,
        opset=17,
        colours=colours,
        scores=scores,
        boxes=boxes,
        places=places,
        one=np.array([0, 0, 1, 1], np.float32),
        less=np.full(2, -6, np.float32),
        four=np.array([1, 4, -1], np.int64),
        two=np.array([1, 2, -1], np.int64),
        stride=np.float32(CELL),
    )
    for node in network.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    onnx.save(network, str(path))


def squares(folder: Path) -> None:
    """Six images of 384x640 pixels with squares in the cells, in the form of COCO; categories 3 and 7."""
    from PIL import Image

    folder.mkdir()
    random, entries, annotations = np.random.default_rng(0), [], []
    for index in range(6):
        pixels = np.full((640, 384, 3), 40, np.uint8)
        for cell in random.choice(60, 4, replace=False):
            label, (row, column) = int(random.integers(2)), divmod(int(cell), 6)
            top, left = row * CELL, column * CELL
            pixels[top : top + CELL, left : left + CELL] = ((250, 10, 10), (10, 250, 10))[label]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index,
                    "category_id": (3, 7)[label],
                    "bbox": [left, top, CELL, CELL],
                    "area": CELL * CELL,
                    "iscrowd": 0,
                }
            )
        Image.fromarray(pixels).save(folder / f"{index}.png")
        entries.append({"id": index, "file_name": f"{index}.png", "width": 384, "height": 640})
    categories = [{"id": 7, "name": "green"}, {"id": 3, "name": "red"}]
    (folder / "instances.json").write_text(
        json.dumps({"images": entries, "annotations": annotations, "categories": categories})
    )


@pytest.mark.parametrize("measured", [False, True])
def test_yolo_without_ultralytics(tmp_path: Path, measured: bool) -> None:
    """A detector's shape: everything in INT8 makes the scores 0 in the last Concat, which W-C3 names; without the tail they live.
    The DLA's part needs no GPU. The letterbox moves these images by two cells, so that every box is found exactly."""
    if measured:
        pytest.importorskip("pycocotools", reason="LOUDLY: pycocotools is missing, no mAP")
    from e2e_workflow.yolo import run as yolo

    squares_detector(tmp_path / "net.onnx")
    squares(tmp_path / "squares")
    words = [str(tmp_path), "--onnx", str(tmp_path / "net.onnx"), "--images", str(tmp_path / "squares")]
    coco = ["--coco", str(tmp_path / "squares"), str(tmp_path / "squares" / "instances.json")] if measured else []
    found = yolo.run(tmp_path / "net.onnx", yolo.arguments().parse_args([*words, *coco], namespace=yolo.Asked()))
    everything, without, calibrated = found["rows"]
    assert ["'p'" in "".join(r["swallowed"]) for r in found["rows"]] == [True, False, False]
    for row in found["rows"]:
        assert row["whole"] >= 3 and row["gpu"] == 0 and row["subgraphs"] == 1
    assert [part["role"] for part in found["manifest"]["parts"]] == ["dla", "after"]
    assert "--buildDLAStandalone" in Path(found["script"]).read_text()
    assert yolo.table(found["rows"]).count("\n") == 5
    means = [found["float"], *(row[key] for row in (everything, without, calibrated) for key in ("qdq", "simulated"))]
    if measured:
        assert means[0] == 100 and means[1] == 0, "scores beside coordinates have no code left"
        assert min(means[2:]) > 90, "a tail in float finds them, wherever the DLA's part was quantized"
    else:
        assert means == [None] * 7


def test_boxes_of_a_yolo() -> None:
    """Both forms of output; suppression within a class only; the best 300."""
    from e2e_workflow.yolo.coco import boxes_of

    rows = np.array(
        [[10, 10, 8, 8, 0.9, 0], [11, 10, 8, 8, 0.8, 0.7], [40, 40, 8, 8, 0.0005, 0.6], [10, 10, 8, 8, 0, 0]],
        np.float32,
    )
    boxes, labels, scores = boxes_of(rows.T[None], 2)
    np.testing.assert_array_equal(labels, [0, 1, 1])
    np.testing.assert_allclose(scores, [0.9, 0.7, 0.6])
    np.testing.assert_allclose(boxes[[0, 2]], [[6, 6, 14, 14], [36, 36, 44, 44]])
    objectness = np.insert(rows, 4, [0.5, 1, 1, 0], axis=1)[None]
    boxes, labels, scores = boxes_of(objectness, 2)
    np.testing.assert_allclose(scores, [0.8, 0.7, 0.6])
    with pytest.raises(ValueError, match="classes"):
        boxes_of(rows.T[None], 5)


def test_the_decode_tail_in_numpy_is_the_one_in_onnx(tmp_path: Path) -> None:
    """Two levels of 4 x 6 and 2 x 3 places, three classes, four bins a side; two images."""
    from e2e_workflow.yolo import decode
    from qdq_translator.lab.simulate.run import Session
    from tests.small_models import model

    text = """g (float[2,16,4,6] d0, float[2,16,2,3] d1, float[2,3,4,6] c0, float[2,3,2,3] c1) => (float[2,7,30] output0) {
        a0 = Reshape(d0, sides)  a1 = Reshape(d1, sides)  a = Concat<axis=2>(a0, a1)  b = Reshape(a, bins)
        t = Softmax<axis=2>(b)  u = Mul(t, steps)  s = ReduceSum<keepdims=0>(u, two)  l, r = Split<axis=1>(s)
        first = Sub(places, l)  last = Add(places, r)  sum = Add(first, last)  c = Mul(sum, half)  w = Sub(last, first)
        box = Concat<axis=1>(c, w)  boxes = Mul(box, strides)
        k0 = Reshape(c0, classes)  k1 = Reshape(c1, classes)  k = Concat<axis=2>(k0, k1)  p = Sigmoid(k)
        output0 = Concat<axis=1>(boxes, p) }"""
    levels = [(4, 6, 8), (2, 3, 16)]
    grid = [(x + 0.5, y + 0.5, stride) for rows, columns, stride in levels for y in range(rows) for x in range(columns)]
    x, y, strides = np.array(grid, np.float32).T
    tail = model(
        text,
        opset=17,
        sides=np.array([2, 16, -1], np.int64),
        bins=np.array([2, 4, 4, -1], np.int64),
        classes=np.array([2, 3, -1], np.int64),
        two=np.array([2], np.int64),
        steps=np.arange(4, dtype=np.float32)[:, None],
        half=np.float32(0.5),
        places=np.stack([x, y])[None],
        strides=strides[None, None],
    )
    random = np.random.default_rng(0)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in tail.graph.input}
    feed = {name: (3 * random.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    expected = Session(tail, "tail").run(feed)["output0"]
    np.savez(tmp_path / "outputs.npz", **feed)
    words = [str(tmp_path / "outputs.npz"), "--height", "32", "-o", str(tmp_path / "decoded.npz")]
    assert decode.main(words) == 0
    found = np.load(tmp_path / "decoded.npz")["output0"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    by_level = decode.decode([feed[name] for name in ("d1", "c1", "d0", "c0")], 32)
    np.testing.assert_array_equal(by_level, found)
    with pytest.raises(ValueError, match="not the distances"):
        decode.decode(list(feed.values())[:3], 32)


def tail_difference(folder: Path, size: int) -> float:
    """Of the decode tail in NumPy from that of a float export, relative to its largest value."""
    import onnx

    from e2e_workflow.yolo.decode import decode
    from qdq_translator.lab.simulate.run import Session

    tail = onnx.load(str(next(folder.rglob("*_after_noqdq.onnx"))))
    random = np.random.default_rng(0)
    feed = {}
    for value in tail.graph.input:
        kind, level = (int(digit) for digit in re.findall(r"/cv([23])\.(\d)/", value.name)[0])
        feed[value.name] = random.normal(size=(1, {2: 64, 3: 80}[kind], size >> 3 + level, size >> 3 + level))
    feed = {name: (3 * values).astype(np.float32) for name, values in feed.items()}
    expected = Session(tail, "tail").run(feed)["output0"]
    return float(np.abs(decode(list(feed.values()), size) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("model", ["yolov5n", "yolov8n", "yolo11n"])
def test_yolo(tmp_path: Path, model: str) -> None:
    """An architecture of ultralytics with random weights; of YOLO11 the largest subgraph besides (attention needs the GPU)."""
    pytest.importorskip("ultralytics", reason="LOUDLY: ultralytics is missing, no YOLO to export")
    run("-m", "e2e_workflow.yolo.run", str(tmp_path), "--model", model, "--size", "64", seconds=900)
    found = json.loads((tmp_path / "results.json").read_text())
    own = found["rows"][-1 if model == "yolo11n" else 1]
    assert own["gpu"] == 0 and own["subgraphs"] == 1 and own["dla-int8"] > 80
    assert len(found["rows"][0]["swallowed"]) == 1 and not found["rows"][1]["swallowed"]
    assert tail_difference(tmp_path / "calibrated", 64) < 1e-5
