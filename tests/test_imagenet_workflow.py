"""e2e_workflow/imagenet on generated pictures: classifiers by colour, which are right only if the preprocessing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e_workflow.imagenet import run
from e2e_workflow.imagenet.preprocessing import NETWORKS, Preprocessing, resize

COLOURS = ((200, 40, 40), (40, 200, 40), (40, 40, 200))
"""Class 0 is red, 1 green, 2 blue."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four noisy pictures of each colour, of several sizes, in one folder per class."""
    image = pytest.importorskip("PIL.Image", reason="LOUDLY: Pillow is missing, no pictures to read")
    folder, random = tmp_path_factory.mktemp("val"), np.random.default_rng(0)
    for label, colour in enumerate(COLOURS):
        for index, (width, height) in enumerate(((500, 375), (375, 500), (256, 256), (80, 60))):
            pixels = np.clip(random.normal(colour, 12, (height, width, 3)), 0, 255).astype(np.uint8)
            (folder / f"n{label:08}").mkdir(exist_ok=True)
            suffix = ".JPEG" if index % 2 else ".png"
            image.fromarray(pixels).save(folder / f"n{label:08}" / f"val_{label}_{index}{suffix}")
    return folder


def classifier(path: Path, name: str, channels_first: bool = True, batch: object = "N") -> None:
    """A Q/DQ network: 1x1 Conv, average pool; class k has the weight of colour k in the order the network takes it."""
    preprocessing = NETWORKS[name].preprocessing
    weight = np.eye(3, dtype=np.float32)
    if preprocessing.pixels == "caffe":
        weight = weight[:, ::-1]
    scale = {"caffe": 160.0, "tf": 1.0, "raw": 255.0}[preprocessing.pixels] / 127
    shape = [3, preprocessing.crop, preprocessing.crop]
    constants = {
        "s": np.float32(scale),
        "z": np.int8(0),
        "w": np.ascontiguousarray(weight).reshape(3, 3, 1, 1),
        "ws": np.full(3, 1 / 127, np.float32),
        "wz": np.zeros(3, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "q"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "dq"),
        helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], "wq", axis=0),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], "wdq", axis=0),
        helper.make_node("Conv", ["xd", "wd"], ["c"], "conv"),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["scores"], "flatten"),
    ]
    if not channels_first:
        shape = [*shape[1:], shape[0]]
        nodes[0].input[0] = "nchw"
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["nchw"], "t", perm=[0, 3, 1, 2]))
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 3])],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_table(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All pixel conventions, both layouts and a fixed batch that does not divide the number of pictures."""
    classifier(tmp_path / "resnet_50v1.onnx", "resnet_50v1")
    classifier(tmp_path / "mobilenet_v2.onnx", "mobilenet_v2", channels_first=False)
    classifier(tmp_path / "efficientnet_b3.onnx", "efficientnet_b3", batch=5)
    argv = ["--models", str(tmp_path), "--images", str(pictures), "--translated", str(tmp_path / "t")]
    assert run.main(argv) == 0
    printed = capsys.readouterr()
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in printed.out.splitlines() if line[:1] == "|"]
    assert rows[0] == run.HEADER
    assert [row[0] for row in rows[2:]] == ["ResNet-50v1", "MobileNet-v2", "EfficientNet-B3"]
    for row in rows[2:]:
        assert row[1] == "12" and row[4:7] == ["100.00", "100.00", "100.00"]
    assert rows[2][2:4] == ["75.18", "75.22"]
    assert "not run: resnet_50v2, mobilenet_v1, efficientnet_b0, inception_v3" in printed.err
    assert (tmp_path / "t" / "resnet_50v1" / "resnet_50v1_noqdq.onnx").is_file()


def test_wrong_labels_lower_the_score(pictures: Path, tmp_path: Path) -> None:
    """A text file of labels: 3 of 12 wrong; numbered from 1."""
    classifier(tmp_path / "mobilenet_v1.onnx", "mobilenet_v1")
    files = sorted(p for p in pictures.rglob("*") if p.is_file())
    labels = [int(p.parent.name[1:]) for p in files]
    labels[0], labels[5], labels[11] = 2, 0, 1
    (tmp_path / "named.txt").write_text("".join(f"{p.name} {y + 1}\n" for p, y in zip(reversed(files), labels[::-1])))
    (tmp_path / "bare.txt").write_text("".join(f"{y}\n" for y in labels))
    named = run.labelled_images(pictures, tmp_path / "named.txt", first_class=1)
    assert named == run.labelled_images(pictures, tmp_path / "bare.txt") == list(zip(files, labels))
    found = run.score(tmp_path / "mobilenet_v1.onnx", NETWORKS["mobilenet_v1"], named, tmp_path / "t", batch=5)
    assert (found.images, found.qdq, found.simulated, found.agreement) == (12, 75.0, 75.0, 100.0)


def test_samples_for_the_device(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--save_inputs writes what on_device and verify take; verify's accuracy of those is the table's."""
    from qdq_translator.cli import main

    classifier(tmp_path / "inception_v3.onnx", "inception_v3")
    argv = ["--models", str(tmp_path), "--images", str(pictures), "--translated", str(tmp_path / "t")]
    assert run.main([*argv, "--save_inputs", "6"]) == 0
    folder = tmp_path / "t" / "inception_v3"
    with np.load(folder / "inception_v3_samples.npz") as stored:
        assert stored["x"].shape == (6, 3, 299, 299) and stored["x"].dtype == np.float32
        assert stored["labels"].tolist() == [0, 0, 1, 1, 2, 2]
    capsys.readouterr()
    model, samples = str(tmp_path / "inception_v3.onnx"), str(folder / "inception_v3_samples.npz")
    assert main(["verify", "-i", model, "-t", str(folder), "--inputs", samples]) == 0
    assert capsys.readouterr().out.count("100.00% of the labels right") == 2


@pytest.mark.parametrize(("old", "new"), [((375, 500), (256, 341)), ((60, 80), (342, 456)), ((224, 224), (224, 224))])
def test_resize_is_onnx_resize(old: tuple[int, int], new: tuple[int, int]) -> None:
    """Linear, half_pixel, without antialiasing, as ONNX defines it (and tf.image.resize computes it)."""
    values = np.random.default_rng(1).uniform(0, 255, (*old, 3)).astype(np.float32)
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode="half_pixel"
    )
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, *old])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 3, *new], np.int64), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": values.transpose(2, 0, 1)[None]})[0][0].transpose(1, 2, 0)
    np.testing.assert_allclose(resize(resize(values, new[0], 0), new[1], 1), wanted, atol=2e-2)


def test_pixels_and_crop() -> None:
    """The centre is kept; the three conventions on one known pixel."""
    picture = np.zeros((8, 12, 3), np.float32)
    picture[2:6, 4:8] = (255, 127.5, 0)
    caffe, tf, raw = (Preprocessing(8, 4, pixels).apply(picture) for pixels in ("caffe", "tf", "raw"))
    assert caffe.shape == tf.shape == raw.shape == (4, 4, 3)
    np.testing.assert_allclose(raw, np.broadcast_to([255, 127.5, 0], (4, 4, 3)), atol=1e-4)
    np.testing.assert_allclose(tf[1, 2], [1, 0, -1], atol=1e-6)
    np.testing.assert_allclose(caffe[3, 0], [0 - 103.939, 127.5 - 116.779, 255 - 123.68], atol=1e-4)


def test_what_cannot_be_run_is_said(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--models", str(tmp_path), "--images"]
    assert run.main([*argv, str(pictures)]) == 1
    assert "holds none of resnet_50v1.onnx" in capsys.readouterr().err
    assert run.main([*argv, str(tmp_path)]) == 1
    assert "holds no images" in capsys.readouterr().err
    classifier(tmp_path / "inception_v3.onnx", "mobilenet_v1")
    assert run.main([*argv, str(pictures), "--translated", str(tmp_path / "t")]) == 1
    assert "Inception-v3 takes one input of 3x299x299" in capsys.readouterr().err
    (tmp_path / "labels.txt").write_text("1\n2\n")
    assert run.main([*argv, str(pictures), "--labels", str(tmp_path / "labels.txt")]) == 1
    assert "2 classes for 12 images" in capsys.readouterr().err
