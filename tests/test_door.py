"""Every file that a user names goes through one door: regular, of a possible size, of the right type; else one sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import zipfile
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.formats.npz import read_npy, read_npz
from tests.test_cli import SUFFIXES

SHAPE = (4, 1, 16, 16)


def npy(shape: str, kind: str = "<f4", values: int = 16) -> bytes:
    """A .npy whose header says `shape` and `kind`."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(4 * values)


def npz(name: str, content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, content)

    return write


def raw(content: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "fifo": ("x.npy", os.mkfifo, "not a regular file"),
    "fifo_npz": ("x.npz", os.mkfifo, "not a regular file"),
    "fifo_json": ("x.json", os.mkfifo, "not a regular file"),
    "fifo_image": ("x.png", os.mkfifo, "not a regular file"),
    "endless": ("x.npy", endless, "not a regular file"),
    "endless_npz": ("x.npz", endless, "not a regular file"),
    "endless_image": ("x.png", endless, "not a regular file"),
    "negative": ("x.npy", raw(npy("(-1, 1, 16, 16)")), "shape (-1, 1, 16, 16)"),
    "true": ("x.npy", raw(npy("(True, 1, 16, 16)", values=256)), "shape (True, 1, 16, 16)"),
    "huge": ("x.npy", raw(npy("(1000000000000,)")), "4,000,000,000,000 bytes"),
    "cut_off": ("x.npy", raw(npy("(2, 1, 16, 16)")), "2,048 bytes"),
    "objects": ("x.npy", raw(npy("(4,)", "|O")), "Python objects"),
    "no_member": ("x.npz", npz("input", b"text"), "'input' is not an array"),
    "negative_member": ("x.npz", npz("input.npy", npy("(-1, 1, 16, 16)")), "shape (-1, 1, 16, 16)"),
    "huge_member": ("x.npz", npz("input.npy", npy("(1099511627776, 32768)")), "144,115,188,075,855,872 bytes"),
    "objects_member": ("x.npz", npz("input.npy", npy("(4,)", "|O")), "Python objects"),
    "no_image": ("x.png", raw(b"\x89PNG\r\n\x1a\n" + b"x" * 50), "not an image"),
}


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("door")
    assert main(["translate", str(EXAMPLE_MODEL), "-o", str(folder / "t")]) == 0
    np.save(folder / "ok.npy", np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32))
    return folder


def refused(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert word in error and "unexpected" not in error and "allow_pickle" not in error
    assert error.count("\n") <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_data(kind: str, translated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, make, word = KINDS[kind]
    make(tmp_path / name)
    refused(
        ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(translated / "t"), "--inputs", str(tmp_path / name)],
        word,
        capsys,
    )
    if name != "x.json":
        calibrated = ["--calibrate", str(tmp_path / name), "-o", str(tmp_path / "o")]
        refused(["translate", str(EXAMPLE_MODEL), *calibrated], word, capsys)
        assert not (tmp_path / "o").exists() or not any((tmp_path / "o").iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, endless])
def test_every_other_file(
    make: Callable[[Path], Any], translated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("file", "labels.npy", "metric.py"):
        make(tmp_path / name)
    file, model, made = str(tmp_path / "file"), str(EXAMPLE_MODEL), str(translated / "t")
    verify = ["verify", "-i", model, "-t", made, "--inputs", str(translated / "ok.npy")]
    output = ["-o", str(tmp_path / "o")]
    for arguments in (
        [*verify, "--labels", str(tmp_path / "labels.npy")],
        [*verify, "--layer_arg", file],
        [*verify, "--device_results", file],
        ["translate", model, *output, "--keep_fp16", f"@{file}"],
        ["translate", model, *output, "--cost_model", file, "--preset", "dla"],
        ["report", "-t", made, "--profile", file, "--fit", str(tmp_path / "board.json")],
        ["report", "-t", made, "--layer_info", file],
        ["explicit", model, "-c", file, "--for", "onnxruntime", "-o", str(tmp_path / "r.onnx")],
    ):
        refused(arguments, "not a regular file", capsys)
    refused([*verify, "--metric", f"{tmp_path / 'metric.py'}:top"], "metric.py", capsys)


@pytest.mark.parametrize("ending", SUFFIXES)
def test_a_fifo_in_place_of_a_file_of_a_set(
    ending: str, translated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command waits for its other end."""
    folder = tmp_path / "t"
    shutil.copytree(translated / "t", folder)
    path = next(folder.glob(f"*{ending}"))
    path.unlink()
    os.mkfifo(path)
    model = next(folder.glob("*.onnx"), path) if ending != SUFFIXES[0] else path
    cache, where = str(next(folder.glob("*.cache"))), ["-t", str(folder)]
    for arguments in (
        ["report", *where],
        ["build", "--print", *where, "--opt_shapes", "input:1x1x16x16"],
        ["verify", "-i", str(EXAMPLE_MODEL), *where, "--samples", "1"],
        ["explicit", "--for", "onnxruntime", "-i", str(model), "-c", cache, "-o", str(tmp_path / "r.onnx")],
        ["explicit", "-i", str(model), "-c", cache, "-o", str(tmp_path / "e")],
    ):
        with alarm(20):
            status = main(arguments)
        said = capsys.readouterr().err
        assert status in (0, 1) and "unexpected" not in said and (not status or said)


@pytest.mark.parametrize("words", [["report", "--verify"], ["report", "--html", "page.html", "--tuning"], ["report", "--layer_info"],
                                   ["explain"], ["explicit", "-c"], ["translate", "--scales"], ["verify", "--inputs"]])  # fmt: skip
def test_a_fifo_as_any_other_input(
    words: list[str], translated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "file")
    model, where = ["-i", str(EXAMPLE_MODEL)], ["-t", str(translated / "t")]
    more = {
        "report": where,
        "explain": [],
        "verify": [*model, *where],
        "translate": [*model, "-o", str(tmp_path / "o")],
    }
    words = [word.replace("page", str(tmp_path / "page")) for word in words]
    with alarm(20):
        status = main([*words, str(tmp_path / "file"), *more.get(words[0], [*model, "-o", str(tmp_path / "o")])])
    said = capsys.readouterr().err
    assert status in (1, 2) and said and "unexpected" not in said


@contextlib.contextmanager
def alarm(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"longer than {seconds} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("magnitude", [1e-38, 1e-44])
def test_data_that_are_nearly_zero(magnitude: float, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(1, 99, SHAPE) * magnitude
    np.save(tmp_path / "x.npy", values.astype(np.float32))
    calibrated = ["--calibrate", str(tmp_path / "x.npy"), "-o", str(tmp_path / "o")]
    assert main(["translate", str(EXAMPLE_MODEL), *calibrated]) == 0


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0, 2), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f2", "|b1", "<i8"])
def test_arrays_come_as_numpy_wrote_them(shape: tuple[int, ...], order: Any, kind: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 2, shape).astype(kind, order=order)
    np.save(tmp_path / "a.npy", values)
    np.savez_compressed(tmp_path / "a.npz", a=values, b=values.T)
    arrays = read_npz(tmp_path / "a.npz")
    assert list(arrays) == ["a", "b"]
    for read, expected in ((read_npy(tmp_path / "a.npy"), values), (arrays["a"], values), (arrays["b"], values.T)):
        assert read.dtype == expected.dtype
        np.testing.assert_array_equal(read, expected)
