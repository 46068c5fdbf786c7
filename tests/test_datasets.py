"""Data sets of images, what preprocessing they get, samples that are no samples, and built-in metrics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np
import onnx
import pytest

import qdq_translator
from qdq_translator.api.functions import OPTIONS
from qdq_translator.cli import main
from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.boxes import box_decisions
from qdq_translator.lab.simulate.images import ImageOptions, Placed, exported_size, image_options
from qdq_translator.lab.simulate.inputs import InputSpec, load_samples, usable
from qdq_translator.lab.simulate.metrics import decisions
from qdq_translator.lab.simulate.named_metrics import METRICS
from qdq_translator.lab.simulate.user_metric import metric_of
from tests.small_models import model

image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")
pytest.importorskip("yaml")

SIZE, CELL = 64, 8
SQUARE = InputSpec("images", (1, 3, SIZE, SIZE), np.dtype(np.float32))
ULTRALYTICS = {"author": "Ultralytics", "task": "detect", "stride": "8", "names": "{0: 'red', 1: 'green'}"}


def yolo(path: Path, metadata: dict[str, str] = ULTRALYTICS) -> Path:
    """An export of a float YOLO head (1, 4 + 2, 64) that finds red and green squares of a cell."""
    cells = SIZE // CELL
    centres = (np.arange(cells) + 0.5) * CELL
    boxes = np.stack([*np.meshgrid(centres, centres), *np.full((2, cells, cells), CELL)]).reshape(1, 4, -1)
    text = f"""yolo (float[1,3,{SIZE},{SIZE}] images) => (float[1,6,{cells**2}] output0) {{
        difference = Conv (images, colours) colour = Relu (difference)
        cell = Conv <strides = [{CELL}, {CELL}], group = 2> (colour, mean) logits = Conv (cell, head, low)
        scores = Sigmoid (logits) rows = Reshape (scores, flat) output0 = Concat <axis = 1> (boxes, rows) }}"""
    constants = {
        "colours": np.array([[1, -1, 0], [-1, 1, 0]]).reshape(2, 3, 1, 1), "mean": np.full((2, 1, CELL, CELL), 1 / CELL**2),
        "head": 12 * np.eye(2).reshape(2, 2, 1, 1), "low": np.full(2, -6), "boxes": boxes,
    }  # fmt: skip
    floats = {name: values.astype(np.float32) for name, values in constants.items()}
    made = model(text, **floats, flat=np.array([1, 2, -1]))
    onnx.helper.set_model_props(made, metadata)
    onnx.save(made, str(path))
    return path


def dataset(folder: Path, count: int = 12, labels: bool = True) -> Path:
    """A YOLO data set of photos of 128x96, whose squares lie on cells of a letterbox of 64x64."""
    random = np.random.default_rng(0)
    for part in ("images", "labels"):
        (folder / part / "val").mkdir(parents=True)
    for number in range(count):
        pixels, lines = np.full((96, 128, 3), 114, np.uint8), []
        for place in random.choice(48, 3, replace=False):
            x, y, label = place % 8 * 16, place // 8 * 16, int(random.integers(2))
            pixels[y : y + 16, x : x + 16] = np.eye(3, dtype=np.uint8)[label] * 255
            lines.append(f"{label} {(x + 8) / 128} {(y + 8) / 96} {16 / 128} {16 / 96}")
        image.fromarray(pixels).save(folder / "images" / "val" / f"{number:03}.png")
        if labels:
            (folder / "labels" / "val" / f"{number:03}.txt").write_text("\n".join(lines) + "\n")
    (folder / "data.yaml").write_text("path: .\ntrain: images/val\nval: images/val\nnames:\n  0: red\n  1: green\n")
    return folder / "data.yaml"


def test_a_float_yolo_and_its_data_set_end_in_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command: calibrated on letterboxed photos, judged by mAP; stretched ones would miss every box."""
    monkeypatch.chdir(tmp_path)
    yolo(tmp_path / "yolo.onnx")
    dataset(tmp_path / "shapes")
    assert main(["deploy", "yolo.onnx", "shapes/data.yaml", "--board", "orin-nx"]) == 0
    said = capsys.readouterr().out
    assert "yes, it is good" in said and "map 100 -> 100" in said and (tmp_path / "yolo_deploy" / "README.md").exists()
    assert main(["verify", "yolo.onnx", "shapes", "-t", "yolo_deploy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"]["metric"] == {"explicit": 100.0, "simulated": 100.0}
    assert any("letterbox to 64x64, RGB, divided by 255 (as ultralytics)" in note for note in found["notes"])
    verify = ["verify", "yolo.onnx", "shapes", "-t", "yolo_deploy", "--json", "--allow_suspicious"]
    main([*verify, "--preprocess", "stretch"])
    assert json.loads(capsys.readouterr().out)["outputs"]["metric"]["explicit"] < 80


def test_without_labels_decisions_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    yolo(tmp_path / "yolo.onnx")
    dataset(tmp_path / "shapes", labels=False)
    assert main(["deploy", "yolo.onnx", "shapes", "--board", "orin-nx"]) == 0
    said = capsys.readouterr().out
    assert "map 100" not in said and "agreement with" in said
    assert "data     images: letterbox to 64x64, RGB, divided by 255 (as ultralytics)" in said
    assert "- data: images: letterbox" in (tmp_path / "yolo_deploy" / "README.md").read_text()


def test_where_images_of_a_yolo_data_set_lie(tmp_path: Path) -> None:
    """data.yaml, its folder, a list, Roboflow's layout, and folders without a data.yaml."""
    described = dataset(tmp_path / "a", 3)
    wanted = load_samples(described, [SQUARE], None)
    assert (len(wanted), wanted.metric, wanted.classes) == (3, "map", 2) and wanted.labels is not None
    (tmp_path / "a" / "val.txt").write_text("./images/val/000.png\nimages/val/001.png\n")
    described.write_text("val: val.txt\nnc: 2\nnames: [red, green]\n")
    listed = load_samples(tmp_path / "a", [SQUARE], None)
    assert len(listed) == 2 and np.array_equal(listed.labels, wanted.labels[:2])  # type: ignore[arg-type]
    described.unlink()
    assert np.array_equal(load_samples(tmp_path / "a", [SQUARE], None).labels, wanted.labels)  # type: ignore[arg-type]
    (tmp_path / "b" / "valid").mkdir(parents=True)
    for part in ("images", "labels"):
        (tmp_path / "a" / part / "val").rename(tmp_path / "b" / "valid" / part)
    (tmp_path / "b" / "data.yaml").write_text("train: ../train/images\nval: ../valid/images\nnames: [red, green]\n")
    assert np.array_equal(load_samples(tmp_path / "b", [SQUARE], None).labels, wanted.labels)  # type: ignore[arg-type]
    (tmp_path / "b" / "valid" / "labels" / "000.txt").write_text("0 0.1 0.2\n")
    with pytest.raises(UserError, match=r"000\.txt, line 1 is no object"):
        load_samples(tmp_path / "b", [SQUARE], None)


def test_polygons_and_key_points_have_boxes(tmp_path: Path) -> None:
    described = dataset(tmp_path, 1)
    text = tmp_path / "labels" / "val" / "000.txt"
    options = ImageOptions(resize="letterbox")
    text.write_text("1 0.25 0.5 0.5 0.5 0.5 0.75\n\n0 0.5 0.5 0.25 0.5\n")
    labels = load_samples(described, [SQUARE], None, options).labels
    assert labels is not None and labels.tolist() == [[[1, 16, 32, 32, 44], [0, 24, 20, 40, 44]]]
    described.write_text("val: images/val\nnames: [a, b]\nkpt_shape: [1, 3]\n")
    text.write_text("0 0.5 0.5 0.25 0.5 0.1 0.2 2\n")
    labels = load_samples(described, [SQUARE], None, options).labels
    assert labels is not None and labels.tolist() == [[[0, 24, 20, 40, 44]]]


def test_class_folders(tmp_path: Path) -> None:
    """Labels by the order of the names, by a file, by the model's names; any part has several classes."""
    for name, level in (("dog", 10), ("cat", 200), ("ant", 90)):
        (tmp_path / "val" / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.full((6, 4, 3), level, np.uint8)
            image.fromarray(pixels).save(tmp_path / "val" / name / f"{number}.png")

    def labels(names: Sequence[str] = ()) -> dict[int, set[int]]:
        samples = load_samples(tmp_path, [SQUARE], None, names=tuple(names))
        assert samples.metric == "top1" and samples.labels is not None
        found: dict[int, set[int]] = {}
        for feed, label in zip(samples, samples.labels):
            found.setdefault(round(255 * float(feed["images"].max())), set()).add(int(label))
        return found

    assert labels() == {90: {0}, 200: {1}, 10: {2}}
    assert labels(["cat", "dog", "cow", "ant"]) == {200: {0}, 10: {1}, 90: {3}}
    (tmp_path / "val" / "classes.txt").write_text("dog\ncow\ncat\nant\n")
    assert labels() == {10: {0}, 200: {2}, 90: {3}}
    part = load_samples(tmp_path, [SQUARE], 8).labels
    assert part is not None and len({*part[::2]}) > 1
    (tmp_path / "val" / "classes.txt").write_text("dog\ncat\n")
    with pytest.raises(UserError, match="does not name the folder 'ant'"):
        load_samples(tmp_path, [SQUARE], None)


# ---------------------------------------------------------------- preprocessing


class Asked:
    image_mean: Sequence[float] = ()
    image_std: Sequence[float] = ()
    resize = colors = layout = "auto"


def test_preprocessing_by_the_models_metadata() -> None:
    """What ultralytics, ONNX's image properties and common names state; what was asked for wins."""
    for metadata, wanted in (
        ({}, ((0.0,), (1.0,), "stretch", "rgb")),
        (ULTRALYTICS, ((0.0,), (1.0,), "letterbox", "rgb")),
        ({"stride": "32", "names": "['a']"}, ((0.0,), (1.0,), "letterbox", "rgb")),
        ({**ULTRALYTICS, "task": "classify"}, ((0.0,), (1.0,), "crop", "rgb")),
        ({"mean": "[0.5, 0.4, 0.3]", "std": "[0.2, 0.2, 0.2]"}, ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2), "stretch", "rgb")),
        ({"mean": "127.5", "std": "127.5", "color_order": "BGR"}, ((0.5,), (0.5,), "stretch", "bgr")),
        ({"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": "NominalRange_0_255"},
         ((0.0,), (1 / 255,), "stretch", "bgr")),
    ):  # fmt: skip
        found = image_options(Asked(), metadata)
        assert (found.mean, found.std, found.resize, found.colors) == wanted, metadata
    asked = Asked()
    asked.resize, asked.image_mean = "crop", [0.25]
    found = image_options(asked, ULTRALYTICS)
    assert (found.resize, found.mean) == ("crop", (0.25,)) and "as asked" in found.words(3, 4, 4)
    asked.resize = "auto"
    assert "(as asked, the rest by default)" in image_options(asked, {}).words(3, 4, 4)
    asked.image_mean = [123.0]
    with pytest.raises(UserError, match=r"from 0 to 1\. Divide it by 255 \(0\.4824\)"):
        image_options(asked, {})


def test_letterbox_as_ultralytics_has_it(tmp_path: Path) -> None:
    """Ratio, rounding and bars of its LetterBox; bilinear as OpenCV, which does not average when it shrinks."""
    assert Placed.of((1280, 720), (640, 640), "letterbox") == Placed((640, 360), 0, 140)
    assert Placed.of((101, 50), (64, 64), "letterbox") == Placed((64, 32), 0, 16)
    assert Placed.of((50, 101), (64, 64), "letterbox") == Placed((32, 64), 16, 0)
    assert Placed.of((100, 51), (64, 64), "letterbox") == Placed((64, 33), 0, 15)  # 15.5 bars: round(15.4) above
    assert Placed.of((100, 50), (32, 32), "crop") == Placed((64, 32), -16, 0)
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3)).astype(np.uint8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    box = load_samples(tmp_path, [SQUARE], None, ImageOptions(resize="letterbox")).feed(0)["images"][0] * 255
    assert (box[:, :8] == 114).all() and (box[:, 56:] == 114).all()
    halves = pixels.reshape(48, 2, 64, 2, 3).astype(float).mean(axis=(1, 3)).transpose(2, 0, 1)
    assert np.abs(box[:, 8:56] - halves).max() <= 1.0
    third = InputSpec("images", (1, 3, 32, 32), np.dtype(np.float32))
    box = load_samples(tmp_path, [third], None, ImageOptions(resize="letterbox")).feed(0)["images"][0] * 255
    corners = pixels[1::4, 1::4].astype(float) + pixels[2::4, 1::4] + pixels[1::4, 2::4] + pixels[2::4, 2::4]
    assert np.abs(box[:, 4:28] - corners.transpose(2, 0, 1) / 4).max() <= 1.0
    blue = load_samples(tmp_path, [third], None, ImageOptions(resize="letterbox", colors="bgr")).feed(0)["images"][0]
    assert np.array_equal(blue[::-1] * np.float32(255), box)


# ---------------------------------------------------------------- samples that are none


def test_bad_samples_are_recognised(tmp_path: Path) -> None:
    """All zero, constant, repeated, wrongly scaled: an error where nothing can come of it, else a doubt."""
    random = np.random.default_rng(0)
    good = random.random((8, 3, SIZE, SIZE)).astype(np.float32)

    def doubts(values: np.ndarray, **ranges: float) -> list[str]:
        np.savez(tmp_path / "x.npz", images=values.astype(np.float32))
        samples = load_samples(tmp_path / "x.npz", [SQUARE], None)
        samples.ranges = ranges
        return usable(samples, False).doubts

    assert doubts(good, images=1.0) == doubts(good, images=2.64) == doubts(good * 5 - 2, images=2.64) == []
    for values, message in (
        (good * 0, "all 8 samples are 0"),
        (good * 0 + random.random((8, 1, 1, 1)), "all 8 samples are constant"),
        (good * 255, "reaches 255, but the model's range ends at 1"),
    ):
        with pytest.raises(UserError, match=message):
            doubts(values, images=1.0)
    assert "2 of 8 samples have one value" in doubts(good * (np.arange(8) > 1).reshape(8, 1, 1, 1))[0]
    assert "only 1 of 8 samples are different" in doubts(np.repeat(good[:1], 8, axis=0))[0]
    (found,) = doubts(good, images=255.0)
    assert "only reaches" in found and "ends at 255" in found
    np.savez(tmp_path / "x.npz", images=(good * 255).astype(np.float32))
    (found,) = usable(load_samples(tmp_path / "x.npz", [SQUARE], None), False, ranges={"images": 1.0}).doubts
    assert "divide by 255" in found  # the scale of a translation may be what is wrong


# ---------------------------------------------------------------- metrics


def score(name: str, outputs: dict[str, np.ndarray], labels: np.ndarray, classes: int = 0) -> float:
    made = metric_of(name, classes)
    if not isinstance(made.make, type):
        return float(made.make(outputs, labels))
    meter: Any = made.make(*made.arguments)
    for index in range(len(labels)):
        meter.add({key: value[index : index + 1] for key, value in outputs.items()}, labels[index : index + 1])
    return float(meter.result())


def test_the_same_boxes_in_every_form_of_a_yolo_head() -> None:
    """Versions 5, 8 and 10 and a pair of outputs, with masks behind the classes, and suppressed neighbours."""
    random = np.random.default_rng(0)
    count, classes = 40, 3
    centres, sizes = random.uniform(50, 550, (2, count, 2)), random.uniform(30, 90, (2, count, 2))
    boxes = np.concatenate([centres, sizes], axis=2)
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=2)
    label = random.integers(0, classes, (2, count))
    scores = np.where(np.arange(classes) == label[..., None], random.uniform(0.3, 0.9, (2, count, 1)), 0.0)
    wanted = np.concatenate([label[..., None], corners + random.uniform(-4, 4, corners.shape)], axis=2)
    wanted[:, 30:, 0] = -1
    final = np.concatenate([corners, scores.max(axis=2, keepdims=True), label[..., None]], axis=2)
    nearby = np.concatenate([boxes, boxes + np.array([1, 1, 0, 0])], axis=1)
    twice = np.concatenate([scores, scores * 0.9], axis=1)
    masks = random.standard_normal((2, 2 * count, 32))
    heads = {
        "v5": np.concatenate([nearby, np.full((2, 2 * count, 1), 0.5), twice * 2], axis=2),
        "v5 masks": np.concatenate([nearby, np.full((2, 2 * count, 1), 0.5), twice * 2, masks], axis=2),
        "v8": np.concatenate([nearby, twice], axis=2).transpose(0, 2, 1),
        "v8 masks": np.concatenate([nearby, twice, masks], axis=2).transpose(0, 2, 1),
        "v10": final,
    }
    found = {name: score("map", {"y": values.astype(np.float32)}, wanted, classes) for name, values in heads.items()}
    found["pair"] = score("mAP", {"b": corners, "s": scores}, wanted)
    assert 40 < found["v10"] < 95 and len({round(value, 4) for value in found.values()}) == 1, found
    one = np.concatenate([boxes[:1], np.full((1, count, 1), 0.7), random.uniform(0.3, 0.9, (1, count, 1))], axis=2)
    seen = score("map", {"y": one}, np.concatenate([0 * wanted[:1, :, :1], corners[:1]], axis=2), 1)
    assert seen == pytest.approx(100, abs=1.0)  # a head of version 5 with one class has six channels, as a final one


def test_metrics_of_classes_masks_pictures_and_texts() -> None:
    scores = np.array([[9, 1, 2, 3, 4, 5.0], [1, 9, 8, 7, 6, 5.0], [0, 1, 2, 3, 4, 5.0]])
    labels = np.array([0, 5, 0])
    assert score("top1", {"y": scores}, labels) == pytest.approx(100 / 3)
    assert score("top5", {"y": scores}, labels) == pytest.approx(200 / 3)
    masks = np.array([[[0, 0], [1, 1]], [[1, 255], [1, 0]]])
    right = np.eye(2)[np.where(masks == 255, 0, masks)].transpose(0, 3, 1, 2)
    assert score("miou", {"y": right}, masks) == 100
    right[0, :, 0, 0] = [0, 1]
    assert score("miou", {"y": right.repeat(2, axis=2).repeat(2, axis=3)}, masks) == pytest.approx(
        100 * (2 / 3 + 4 / 5) / 2
    )
    picture = np.random.default_rng(0).random((1, 3, 8, 8))
    assert score("psnr", {"y": picture + 0.1}, picture) == pytest.approx(20)
    assert score("psnr", {"y": 255 * picture}, 255 * picture) == 100
    steps = np.eye(4)[[[1, 1, 0, 1, 2], [3, 0, 0, 3, 3]]]
    texts = np.array([[1, 1, 2, -1], [3, 2, -1, -1]])
    assert score("character_accuracy", {"y": steps}, texts) == pytest.approx(80)
    assert score("word_accuracy", {"y": steps}, texts) == 50
    meter: Any = METRICS["word_accuracy"]()
    meter.add({"y": steps.transpose(1, 0, 2)}, texts)
    assert meter.result() == 50
    last = METRICS["word_accuracy"]()
    last.add({"y": np.eye(4)[[[0, 3, 0, 1, 3]]]}, np.array([[0, 0, 1]]))
    assert last.result() == 100
    with pytest.raises(UserError, match="Did you mean top5"):
        metric_of("top55")


# ---------------------------------------------------------------- the bundle


def test_both_variants_and_what_lies_in_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two complete bundles; each README names every file, holds verdict, figures and the page, and its wheel installs."""
    monkeypatch.chdir(tmp_path)
    yolo(tmp_path / "yolo.onnx")
    dataset(tmp_path / "shapes")
    assert main(["deploy", "yolo.onnx", "shapes", "--board", "agx-orin", "--on", "both", "-o", "b"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ other +(dla|gpu): [\d.]+ ms \(estimate\), yes, it is good$", said, re.M)
    assert len(said.splitlines()) <= 20 and "trtexec sh" not in said
    both = (tmp_path / "b" / "README.md").read_text()
    assert "- dla: " in both and "- gpu: " in both and both.count("map 100 -> 100") == 2
    for on in ("dla", "gpu"):
        folder = tmp_path / "b" / on
        page = (folder / "README.md").read_text()
        for path in folder.iterdir():
            assert f"| `{path.name}{'/' * path.is_dir()}` | " in page or path.name == "README.md", path
        assert "map 100 -> 100" in page and "Good? yes" in page and "pip install qdq" not in page
        assert "<html" in (folder / "yolo.html").read_text()[:200]
    (made,) = folder.glob("*.whl")
    argv = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", "site", str(made)]
    subprocess.run(argv, check=True, cwd=tmp_path)
    probe = "import qdq_translator.cli, importlib.metadata as m; print(m.metadata('qdq-translator')['Version'])"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", probe], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == qdq_translator.__version__, done.stderr


def test_help_and_repr_in_python(tmp_path: Path) -> None:
    """Every option with its default and meaning; a result with its figure and the next step; arguments, not flags."""
    for function, (_, names) in OPTIONS.items():
        text = getattr(qdq_translator, function).__doc__
        assert all(f"        {name}: " in text for name in names) and not re.search(r"\s--[a-z]", text), function
    yolo(tmp_path / "yolo.onnx")
    made = qdq_translator.translate(tmp_path / "yolo.onnx", data=dataset(tmp_path / "shapes"), board="agx-orin")
    assert "estimated time" in repr(made) and "next: " in repr(made)
    found = qdq_translator.verify(tmp_path / "yolo.onnx", made)
    assert repr(found).startswith("Verification: not measured: random inputs") and "next: " in repr(found)


@pytest.mark.parametrize("data", ["", "e2e_workflow/detector/samples.npz"])
def test_first_screens_are_short_and_plain(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """translate and verify at most 15 lines of 80 columns, commands aside, without numbers of rules, facts or limits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    root = Path(qdq_translator.__file__).resolve().parents[1]
    (tmp_path / "e2e_workflow").symlink_to(root / "e2e_workflow")
    model, given = "e2e_workflow/detector/detector_qat.onnx", [data] * bool(data)
    argv = ["translate", model, *given, "--board", "agx-orin", "--shapes", "input:1x3x96x96"]
    for command in (argv, ["verify", model, *given, "--samples", "4", "--allow_suspicious"]):
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 15 and all(len(line) <= 80 or line.startswith("  qdq-") for line in lines), lines
        assert not re.search(r"\b(?:rule|fact|limit) [A-Z]?\d|\b[WIE]-[A-Z]\d", "\n".join(lines))
        if data:
            assert any(f"{data}" in line for line in lines if "verify" in line or command is not argv)


def yolo_head(boxes: list[tuple[float, ...]], form: int) -> np.ndarray:
    """Of one sample, 40 boxes and three classes; boxes: x, y, w, h, score, class."""
    rows = np.full((40, 7 + (form == 5)), 0.01, np.float32)
    rows[:, :4] = 300, 300, 10, 10
    for row, (x, y, w, h, score, label) in zip(rows, boxes):
        row[:4] = x, y, w, h
        row[-3 + int(label)] = score
        row[4] = 1.0 if form == 5 else row[4]
    return rows[None] if form == 5 else rows.T[None]


@pytest.mark.parametrize("form", [5, 8])
@pytest.mark.parametrize("boxes, decided_and_changed", [
    ([(20, 20, 30, 30, 0.9, 0), (90, 90, 40, 20, 0.6, 2)], (2, 0)),
    ([(22, 19, 30, 30, 0.4, 0), (91, 90, 40, 20, 0.55, 2)], (2, 0)),
    ([(20, 20, 30, 30, 0.9, 1), (90, 90, 40, 20, 0.6, 2)], (2, 1)),  # another class
    ([(60, 20, 30, 30, 0.9, 0), (90, 90, 40, 20, 0.2, 2)], (2, 2)),  # elsewhere; below the score
])  # fmt: skip
def test_boxes_are_decisions(boxes: list[tuple[float, ...]], decided_and_changed: tuple[int, int], form: int) -> None:
    reference = yolo_head([(20, 20, 30, 30, 0.9, 0), (90, 90, 40, 20, 0.6, 2)], form)
    assert decisions(reference, yolo_head(boxes, form)) == decided_and_changed


def test_other_outputs_of_three_dimensions_have_no_boxes() -> None:
    random = np.random.default_rng(0)
    for values in (random.normal(size=(2, 16, 64)), 5 * random.random((2, 16, 64)), yolo_head([], 8) / 1000):
        assert box_decisions(values, values) == (0, 0)


def test_an_ultralytics_export_states_the_size_of_its_images() -> None:
    theirs = {"author": "Ultralytics", "imgsz": "[320, 416]"}
    assert exported_size(theirs) == (320, 416)
    assert exported_size({**theirs, "author": "me"}) == exported_size({"author": "Ultralytics"}) == ()


@pytest.mark.parametrize(("channels", "colors"), [(1, "grayscale"), (3, "RGB"), (4, "RGB")])
def test_images_are_said_to_have_the_colors_that_the_network_gets(channels: int, colors: str) -> None:
    assert ImageOptions().words(channels, 64, 32).startswith(f"images: stretch to 64x32, {colors}, divided by 255 (")
