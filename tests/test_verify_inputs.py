"""Inputs of verify: what is taken, and what is said of the rest."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.npz import read_npz
from qdq_translator.lab.simulate.inputs import ImageOptions, InputSpec, Samples, load_samples, random_samples, usable
from qdq_translator.lab.simulate.places import place

IMAGE = InputSpec("image", (1, 3, 4, 6), np.dtype(np.float32))
TWO = [InputSpec("a", (None, 4), np.dtype(np.float32)), InputSpec("ids", (None, 2), np.dtype(np.int64))]


def feeds(samples: Samples) -> list[dict[str, np.ndarray]]:
    return list(samples)


def test_npz_with_labels(tmp_path: Path) -> None:
    data = np.arange(5 * 72, dtype=np.float64).reshape(5, 3, 4, 6)
    np.savez(tmp_path / "x.npz", image=data, labels=np.arange(5))
    samples = load_samples(tmp_path / "x.npz", [IMAGE], 3)
    assert len(samples) == 3 and samples.labels is not None and samples.labels.tolist() == [0, 1, 2]
    assert feeds(samples)[2]["image"].dtype == np.float32
    np.testing.assert_array_equal(feeds(samples)[2]["image"], data[2:3])


def test_several_inputs_and_a_fixed_batch(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones((7, 4), np.float32), ids=np.zeros((7, 2), np.int32))
    samples = load_samples(tmp_path / "x.npz", TWO, None)
    assert samples.runs == 7 and feeds(samples)[0]["ids"].dtype == np.int64
    fixed = [InputSpec("a", (3, 4), np.dtype(np.float32)), InputSpec("ids", (3, 2), np.dtype(np.int64))]
    samples = load_samples(tmp_path / "x.npz", fixed, None)
    assert (samples.runs, samples.batch, len(samples)) == (2, 3, 6)
    assert samples.notes == ["1 sample was left out: the model needs 3 at a time"]
    assert [f["a"].shape for f in feeds(samples)] == [(3, 4), (3, 4)]


def test_a_scalar(tmp_path: Path) -> None:
    """One value for all, or one a sample."""
    scalar = InputSpec("step", (), np.dtype(np.float32))
    for value, runs in ((2.5, 1), ([2.5, 3.5], 2)):
        np.savez(tmp_path / "x.npz", step=np.array(value, np.float32))
        samples = load_samples(tmp_path / "x.npz", [scalar], None)
        assert samples.runs == runs and [f["step"].shape for f in samples] == [()] * runs
        assert feeds(samples)[-1]["step"] == np.ravel(value)[-1]


def test_npy_and_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros((2, 3, 4, 6), np.float32))
    np.save(tmp_path / "1.npy", np.ones((3, 4, 6), np.float32))  # one sample without batch axis
    assert len(load_samples(tmp_path / "0.npy", [IMAGE], None)) == 2
    samples = load_samples(tmp_path, [IMAGE], None)
    assert [float(f["image"].mean()) for f in samples] == [0.0, 0.0, 1.0]
    assert len(load_samples(tmp_path, [IMAGE], 1)) == 1
    named = tmp_path / "named"
    named.mkdir()
    np.save(named / "a.npy", np.zeros((4, 4), np.float32))
    np.save(named / "ids.npy", np.zeros((4, 2), np.int64))
    assert load_samples(named, TWO, None).runs == 4


def test_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((8, 12, 3), np.uint8)
    pixels[:, :, 0], pixels[:, :, 2] = 255, 51
    image.fromarray(pixels).save(tmp_path / "a.png")
    image.fromarray(pixels[:, :, 0]).save(tmp_path / "b.png")
    options = ImageOptions(mean=(0.5, 0.0, 0.0), std=(0.5, 1.0, 2.0))
    samples = load_samples(tmp_path, [IMAGE], None, options)
    values = feeds(samples)[0]["image"]
    assert values.shape == (1, 3, 4, 6) and len(samples) == 2
    np.testing.assert_allclose(values[0, :, 1, 1], [1.0, 0.0, 0.1], rtol=1e-6)
    last = InputSpec("image", (1, 4, 6, 3), np.dtype(np.float32))
    np.testing.assert_allclose(feeds(load_samples(tmp_path / "a.png", [last], None))[0]["image"][0, 1, 1], [1, 0, 0.2])


def test_samples_that_are_not_finite(tmp_path: Path) -> None:
    """Counted over all of them and refused, or left out with their labels; a worker reads the same ones."""
    fixed = [InputSpec("a", (2, 4), np.dtype(np.float32)), InputSpec("ids", (2, 2), np.dtype(np.int64))]
    values = np.arange(40, dtype=np.float32).reshape(10, 4)
    np.savez(tmp_path / "x.npz", a=values, ids=np.zeros((10, 2), np.int64), labels=np.arange(10))
    good = load_samples(tmp_path / "x.npz", fixed, None)
    assert usable(good, ignore=False) is good
    spoilt = values.copy()
    spoilt[3, 1:], spoilt[8, 0] = np.nan, -np.inf
    np.savez(tmp_path / "x.npz", a=spoilt, ids=np.zeros((10, 2), np.int64), labels=np.arange(10))
    bad = load_samples(tmp_path / "x.npz", fixed, None)
    said = "4 values in 2 of 5 batches of 2 samples are not finite .*, the first of input 'a' in samples 2 to 3"
    with pytest.raises(UserError, match=said) as caught:
        usable(bad, ignore=False)
    assert "--ignore_nonfinite" in caught.value.hint
    rest = usable(bad, ignore=True)
    assert rest.doubts == ["4 of 10 samples hold values that are not finite and were left out"]
    for samples in (rest, pickle.loads(pickle.dumps(rest))):
        np.testing.assert_array_equal(np.concatenate([f["a"] for f in samples]), values[[0, 1, 4, 5, 6, 7]])
        assert [samples.labels_of(run).tolist() for run in range(samples.runs)] == [[0, 1], [4, 5], [6, 7]]
    np.savez(tmp_path / "x.npz", a=np.full((2, 4), np.nan, np.float32), ids=np.zeros((2, 2), np.int64))
    with pytest.raises(UserError, match="8 values in 1 of 1 batches") as caught:
        usable(load_samples(tmp_path / "x.npz", fixed, None), ignore=True)
    assert "--ignore_nonfinite" not in caught.value.hint


def test_random_inputs_fill_the_range_and_repeat() -> None:
    big = InputSpec("x", (4, 1000), np.dtype(np.float32))
    flag = InputSpec("flag", (4,), np.dtype(bool))
    samples = random_samples([big, flag], {"x": 2.0}, 5, seed=3)
    assert (samples.runs, samples.batch) == (2, 4)
    x = feeds(samples)[0]["x"]
    assert 70 < x.std() < 100 and np.array_equal(x, feeds(samples)[0]["x"])
    assert not np.array_equal(x, feeds(samples)[1]["x"])
    assert feeds(samples)[0]["flag"].dtype == np.bool_
    assert 0.9 < random_samples([big], {}, 1, 0).feed(0)["x"].std() < 1.1


@pytest.mark.parametrize(("arrays", "specs", "message"), [
    ({"a": np.zeros((2, 4), np.float32), "ids": np.zeros((3, 2), int)}, TWO, "different numbers of samples"),
    ({"a": np.zeros((2, 4), np.float32), "ids": np.zeros((2, 2))}, TWO, "float64; the model requires int64"),
    ({"x": np.zeros((0, 4), np.float32)}, [InputSpec("x", (2, 4), np.dtype(np.float32))], "holds 0 samples"),
])  # fmt: skip
def test_wrong_arrays_are_explained(
    tmp_path: Path, arrays: dict[str, np.ndarray], specs: list[InputSpec], message: str
) -> None:
    """Of several inputs, and none at all; other faults are in the transcripts (desk/lab_device.txt, lab_data.txt)."""
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=message):
        load_samples(tmp_path / "x.npz", specs, None)


def test_one_array_is_not_for_two_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((2, 4), np.float32))
    with pytest.raises(UserError, match="contains one array, but the model has 2 inputs"):
        load_samples(tmp_path / "one.npy", TWO, None)


def test_open_sizes_are_asked_for() -> None:
    open_ = InputSpec("image", (None, 3, None, None), np.dtype(np.float32))
    with pytest.raises(UserError, match="--shapes image:1x3xSIZExSIZE"):
        random_samples([open_], {}, 1, 0)


# -------------------------------------------------------------------- addresses


def test_addresses_hold_what_paths_hold(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    data = np.random.default_rng(0).random((7, 3, 4, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", image=data, labels=np.arange(7))
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, part in enumerate(np.split(data, [3, 4])):
        np.save(parts / f"{number}.npy", part)
    np.save(tmp_path / "columns.npy", np.asfortranarray(data))
    np.save(tmp_path / "labels.npy", np.arange(7))
    address = f"file://{tmp_path}"
    for name in ("x.npz", "parts", "columns.npy"):
        there, here = (load_samples(place(f"{where}/{name}"), [IMAGE], 6) for where in (address, tmp_path))
        assert there.runs == here.runs == 6 and there.digest == here.digest
        for a, b in zip(there, here):
            np.testing.assert_array_equal(a["image"], b["image"])
    labelled = load_samples(place(f"{address}/parts"), [IMAGE], None).labelled(place(f"{address}/labels.npy"))
    assert labelled.labels is not None and np.asarray(labelled.labels).tolist() == list(range(7))
    copy = pickle.loads(pickle.dumps(labelled))
    assert copy.digest == labelled.digest and len(copy) == 7


def test_only_the_rows_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    data = np.random.default_rng(0).random((1000, 3, 4, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", data)
    samples = load_samples(place(f"file://{tmp_path}/x.npy"), [IMAGE], None)
    monkeypatch.setattr(np, "load", None)  # what reads it whole
    np.testing.assert_array_equal(samples.feed(501)["image"], data[501:502])


def packed(path: Path, size: int) -> Path:
    """An .npz whose array of zeros packs a thousandfold; `size`: bytes of it."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1, 3, size // 12)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("image.npy", "w") as member:
        member.write(header.getvalue())
        for _ in range(size // 2**20):
            member.write(bytes(2**20))
    return path


def test_an_npz_that_unpacks_to_far_more_than_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its declared sizes are looked at first; nothing is unpacked."""
    fine = read_npz(packed(tmp_path / "fine.npz", 12 * 2**20))
    assert fine["image"].shape == (1, 3, 2**20)
    bomb = packed(tmp_path / "bomb.npz", 288 * 2**20)
    assert bomb.stat().st_size < 2**19
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(UserError, match=r"is not an .npz file: its [\d,]+ bytes would unpack to 30\d,\d{3},\d{3}"):
        load_samples(bomb, [IMAGE], None)


def test_an_npz_with_turned_bits(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, image=np.random.default_rng(0).random((4, 64), dtype=np.float32))
    data = path.read_bytes()
    path.write_bytes(data[:90] + bytes(b ^ 255 for b in data[90:130]) + data[130:])
    with pytest.raises(ValueError):
        read_npz(path)
