"""e2e_workflow/orin_dla: the script with a trtexec that only records, and the buffers against loops over coordinates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from e2e_workflow.orin_dla import buffers
from e2e_workflow.orin_dla.buffers import Buffer
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.translation.targets.platforms import find_platform

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "e2e_workflow" / "orin_dla" / "make_loadable.sh"
TRTEXEC = """#!/bin/sh
echo '&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec'
[ "${{1-}}" = --help ] && exit 0
for a in "$@"; do printf '%s\\n' "$a"; done >"$RECORD"
"""


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = executable(
        tmp_path / "qdq",
        f"#!{sys.executable}\nimport sys\nsys.path[0] = {str(ROOT)!r}\nfrom qdq_translator.cli import main\nsys.exit(main())\n",
    )
    env = {**os.environ, "QDQ_TRANSLATOR": str(command), **environment}
    return subprocess.run(
        ["sh", str(SCRIPT), *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )


def test_scripts_are_shell() -> None:
    assert subprocess.run(["sh", "-n", str(SCRIPT)]).returncode == 0
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", str(SCRIPT)]).returncode == 0


@pytest.mark.parametrize(
    ("platform", "installed", "header"),
    [
        ("jetpack-6.0", "8602", "TRT-8602-EntropyCalibration2"),
        ("jetpack-6.2", "100300", "TRT-100300-EntropyCalibration2"),
        ("drive-os-6.0.9", "8612", "TRT-8612-EntropyCalibration2"),
        ("jetpack-6.0", "100300", "TRT-100300-EntropyCalibration2"),  # another board than was named
    ],
)
def test_from_model_to_trtexec(tmp_path: Path, platform: str, installed: str, header: str) -> None:
    """The folder, moved to the board, builds a loadable with a cache that this TensorRT accepts."""
    done = run(
        tmp_path, str(EXAMPLE_MODEL), platform, "out dir", "--infer_average_pool_scales", SHAPES="input:1x1x16x16"
    )
    assert done.returncode == 0, done.stderr
    board = tmp_path / "the board"
    (tmp_path / "out dir").rename(board)
    record = tmp_path / "argv"
    env = {**os.environ, "RECORD": str(record)}
    env["TRTEXEC"] = str(executable(tmp_path / "trtexec", TRTEXEC.format(version=installed)))
    built = subprocess.run([str(board / "build_loadable.sh")], env=env, capture_output=True, text=True, cwd="/")
    assert built.returncode == 0, built.stderr
    argv = record.read_text().splitlines()
    for wanted in (
        "--useDLACore=0",
        "--buildDLAStandalone",
        "--int8",
        "--fp16",
        "--inputIOFormats=int8:dla_linear",
        "--outputIOFormats=fp16:chw16",
        f"--onnx={board}/digits_resnet_qat_noqdq.onnx",
        f"--saveEngine={board}/digits_resnet_qat.loadable",
    ):
        assert wanted in argv
    assert not any(a.startswith("--allowGPUFallback") for a in argv)
    cache = next(a.partition("=")[2] for a in argv if a.startswith("--calib="))
    lines = Path(cache).read_text().splitlines()
    assert lines[0] == header and "input: 3c810204" in lines


def test_wrong_use_is_told(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2
    missing = run(tmp_path, "nothing.onnx", "jetpack-6.2")
    assert missing.returncode == 1 and "nothing.onnx is not there" in missing.stderr
    unknown = run(tmp_path, str(EXAMPLE_MODEL), "jetpack-99")
    assert unknown.returncode == 2 and "'jetpack-99' is not known" in unknown.stderr
    formats = run(tmp_path, str(EXAMPLE_MODEL), "jetpack-6.2", INPUT_FORMATS="int8:nhwc", SHAPES="input:1x1x16x16")
    assert formats.returncode == 1 and "nhwc" in formats.stderr


def test_the_readme_names_platforms_as_they_are() -> None:
    rows = re.findall(
        r"\| `([^`]+)` \| ([\d.]+) \| (\d+) \|", SCRIPT.with_name("README.md").read_text(encoding="utf-8")
    )
    assert len(rows) == 6
    for name, version, number in rows:
        platform = find_platform(name)
        assert (".".join(map(str, platform.tensorrt)), platform.cache_version, platform.dla) == (
            version,
            number,
            "orin",
        )


CASES = [
    Buffer("x", (2, 3, 5, 7), np.dtype(np.int8), "dla_linear", 0.5),
    Buffer("x", (1, 3, 2, 40), np.dtype(np.float16), "dla_linear", None),
    Buffer("x", (1, 3, 4, 5), np.dtype(np.int8), "dla_hwc4", 0.5),
    Buffer("x", (1, 4, 4, 5), np.dtype(np.float16), "dla_hwc4", None),
    Buffer("x", (2, 1, 4, 70), np.dtype(np.int8), "dla_hwc4", 0.5),
    Buffer("x", (2, 20, 3, 4), np.dtype(np.float16), "chw16", None),
    Buffer("x", (2, 70, 3, 4), np.dtype(np.int8), "chw32", 0.5),
    Buffer("x", (1, 10, 1, 1), np.dtype(np.float16), "chw16", None),
]


@pytest.mark.parametrize("buffer", CASES, ids=lambda b: f"{b.format}-{'x'.join(map(str, b.shape))}-{b.dtype}")
def test_layout(buffer: Buffer) -> None:
    """Every element lies where NvInfer.h's formula for its format says; everything else is zero."""
    codes = np.random.default_rng(0).integers(1, 100, buffer.shape)
    values = codes * np.float32(buffer.scale or 1)
    packed = buffers.pack_values(buffer, values)
    assert packed.nbytes == buffer.size and packed.dtype == buffer.dtype
    flat, size = packed.reshape(-1), buffer.dtype.itemsize
    _, c, h, w = buffer.shape
    row = -(-w * size // 64) * 64 // size
    wide = 1 if c == 1 else 4
    pixels = -(-w * wide * size // 64) * 64 // size // wide
    for i, j, y, x in np.ndindex(*buffer.shape):
        position = {
            "dla_linear": ((i * c + j) * h + y) * row + x,
            "dla_hwc4": ((i * h + y) * pixels + x) * wide + j,
            "chw16": (((i * -(-c // 16) + j // 16) * h + y) * w + x) * 16 + j % 16,
            "chw32": (((i * -(-c // 32) + j // 32) * h + y) * w + x) * 32 + j % 32,
        }[buffer.format]
        assert flat[position] == codes[i, j, y, x]
    assert np.count_nonzero(flat) == codes.size
    np.testing.assert_array_equal(buffers.unpack_values(buffer, np.frombuffer(packed.tobytes(), np.uint8)), values)


def test_codes_round_to_even_and_saturate() -> None:
    buffer = Buffer("x", (1, 1, 1, 6), np.dtype(np.int8), "dla_linear", 0.5)
    packed = buffers.pack_values(buffer, np.array([0.25, 0.75, -0.25, 1.0, 100.0, -100.0]))
    assert packed.reshape(-1)[:6].tolist() == [0, 2, 0, 2, 127, -128]


def test_example_through_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """describe, pack and unpack with the example's translation: the scale is the cache's."""
    done = run(tmp_path, str(EXAMPLE_MODEL), "jetpack-6.2", "translated", SHAPES="input:1x1x16x16")
    assert done.returncode == 0, done.stderr
    folder = str(tmp_path / "translated")
    assert buffers.main(["describe", "-t", folder]) == 0
    said = capsys.readouterr().out
    assert "input 'input': int8:dla_linear, 1x1x16x64 in memory, 1024 bytes; code = clip(round(x / 0.0157480314" in said
    assert "output 'logits': fp16:chw16, 1x1x1x1x16 in memory, 32 bytes; x itself" in said

    samples = np.random.default_rng(0).normal(0, 1, (3, 1, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", input=samples)
    pack = ["pack", "-t", folder, str(tmp_path / "samples.npz"), str(tmp_path / "run"), "--sample", "2"]
    assert buffers.main(pack) == 0
    codes = np.fromfile(tmp_path / "run" / "input.bin", np.int8).reshape(1, 1, 16, 64)
    wanted = np.clip(np.rint(samples[2:] / np.float32(0.015748031437397003)), -128, 127)
    np.testing.assert_array_equal(codes[..., :16], wanted)

    np.arange(16, dtype=np.float16).tofile(tmp_path / "run" / "logits.bin")
    assert buffers.main(["unpack", "-t", folder, str(tmp_path / "run"), str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["logits"].reshape(-1).tolist() == list(range(10))

    assert buffers.main(["describe", "-t", folder, "--output_formats", "int8:chw32"]) == 1
    assert "'logits' has no scale, so it cannot be int8" in capsys.readouterr().err
    assert buffers.main(["describe", "-t", folder, "--input_formats", "int8:hwc4"]) == 1
    assert "no format 'int8:hwc4'" in capsys.readouterr().err
