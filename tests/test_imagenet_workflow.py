"""e2e_workflow/imagenet on generated pictures: classifiers by colour, which are right only if the preprocessing is."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e_workflow.imagenet import counting, dry_run, run
from e2e_workflow.imagenet.dry_run import classifier
from e2e_workflow.imagenet.preprocessing import NETWORKS, Preprocessing, resize
from qdq_translator.lab.simulate.evaluation import HERE
from tests.dask_cluster import connected, dask_cluster


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PIL.Image", reason="LOUDLY: Pillow is missing, no pictures to read")
    return dry_run.pictures(tmp_path_factory.mktemp("val"))


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
    found = run.score(tmp_path / "mobilenet_v1.onnx", NETWORKS["mobilenet_v1"], named, tmp_path / "t", 5, HERE, {})
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
    assert "labels right (scores): explicit 100.00%, simulated 100.00%" in capsys.readouterr().out


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


def _table(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line[:1] == "|"]


def test_a_cluster_that_loses_a_worker_gives_the_same_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The dry run of all seven networks over two Dask workers, of which one is killed under way."""
    pytest.importorskip("distributed")
    pytest.importorskip("PIL.Image")
    assert run.main(["--dry_run", str(tmp_path / "alone"), "--batch", "2"]) == 0
    alone = _table(capsys.readouterr().out)
    assert len(alone) == 9 and all(line.count("100.00") == 3 for line in alone[2:])
    with dask_cluster(2, {"PYTHONPATH": str(Path(run.__file__).resolve().parents[2])}) as (address, running):
        connected(address)[0].close()
        journal = tmp_path / "cluster" / "counted.sqlite"
        killing = threading.Thread(target=_kill_when, args=(running[0], journal, 20))
        killing.start()
        assert run.main(["--dry_run", str(tmp_path / "cluster"), "--batch", "2", "--scheduler", address]) == 0
        killing.join()
        assert running[0].poll() is not None and running[1].poll() is None
    assert _table(capsys.readouterr().out) == alone


def _kill_when(worker: Any, journal: Path, shards: int) -> None:
    patient_until = time.monotonic() + 120
    while time.monotonic() < patient_until and _counted(journal) < shards:
        time.sleep(0.02)
    worker.kill()


def _counted(journal: Path) -> int:
    if not journal.exists():
        return 0
    with contextlib.closing(sqlite3.connect(str(journal))) as file:
        try:
            return int(file.execute("SELECT COUNT(*) FROM kept").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # not made yet


def test_a_run_that_was_ended_counts_only_what_is_left(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier(tmp_path / "mobilenet_v1.onnx", "mobilenet_v1")
    images = run.labelled_images(pictures, None)
    kept: dict[str, bytes] = {}
    given = (tmp_path / "mobilenet_v1.onnx", NETWORKS["mobilenet_v1"], images, tmp_path / "t", 1, HERE, kept)
    first = run.score(*given)
    lost = sorted(kept)[:5]
    for key in lost:
        del kept[key]
    ran: list[int] = []
    original = counting.batch
    monkeypatch.setattr(counting, "batch", lambda *what: (ran.append(what[-1]), original(*what))[1])
    assert run.score(*given) == first and len(ran) == 5 and sorted(kept)[:5] == lost
