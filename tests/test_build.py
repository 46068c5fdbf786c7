"""`build` on a machine without TensorRT, and what it checks before it looks for one."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qdq_translator.board.engine import versions
from qdq_translator.cli import main
from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import UserError
from tests.trt_bindings import models


@pytest.fixture
def without_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["build", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_without_tensorrt_says_how_to_get_it_and_prints_trtexec(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models.translation(tmp_path, models.network(), header="100300")
    status, out, err = run(capsys, "-t", str(tmp_path))
    assert status == 1
    assert err == (
        "qdq-translator build: TensorRT's Python package is not installed here. On a PC with an NVIDIA GPU: "
        "pip install 'tensorrt>=8.6,<11'; on a Jetson it is part of JetPack, do not pip install it there.\n"
    )
    assert out.startswith(f"trtexec \\\n  --onnx={tmp_path}/net_noqdq.onnx \\\n  --int8 \\\n  --fp16 \\\n")
    assert "--layerPrecisions=pool:fp16,shape:fp16,nowhere:fp16" in out
    assert f"--saveEngine={tmp_path}/net_int8.engine" in out
    assert f"--exportLayerInfo={tmp_path}/net_int8_layer_info.json" in out


def test_on_a_jetson_it_is_jetpacks(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    models.translation(tmp_path, models.network())
    status, _, err = run(capsys, "-t", str(tmp_path))
    assert status == 1 and "part of JetPack (do not pip install it there" in err


@pytest.mark.parametrize(
    ("precision", "there", "gone"),
    [
        ("fp16", ["--fp16"], ["--int8", "--calib", "--layerPrecisions", "--precisionConstraints"]),
        ("fp32", [], ["--fp16", "--int8", "--calib", "--layerPrecisions", "--precisionConstraints"]),
    ],
)
def test_baseline_command(
    without_tensorrt: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    precision: str,
    there: list[str],
    gone: list[str],
) -> None:
    models.translation(tmp_path, models.network())
    _, out, _ = run(capsys, "-t", str(tmp_path), "--precision", precision)
    words = {word.split("=")[0] for word in out.replace("\\\n", "").split()}
    assert words >= {"trtexec", "--onnx", "--saveEngine", *there}
    assert not words & set(gone)


def test_explicit_command(without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "a model.onnx"
    model.write_bytes(models.network(batch="N").SerializeToString())
    _, out, _ = run(capsys, "-t", str(model), "--opt_shapes", "images:2x3x4x4")
    assert out.replace(" \\\n  ", " ") == (
        f"trtexec '--onnx={model}' --int8 --fp16 --minShapes=images:2x3x4x4 --optShapes=images:2x3x4x4 "
        f"--maxShapes=images:2x3x4x4 '--saveEngine={tmp_path}/a model_explicit.engine' --profilingVerbosity=detailed "
        f"'--exportLayerInfo={tmp_path}/a model_explicit_layer_info.json'\n"
    )


def test_dla_command_has_the_formats_that_build_would_choose(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models.translation(tmp_path, models.network(), header="100300")
    _, out, _ = run(capsys, "-t", str(tmp_path), "--target", "orin-dla", "--dla_core", "1")
    words = out.replace("\\\n", "").split()
    assert {"--useDLACore=1", "--inputIOFormats=int8:dla_linear", "--outputIOFormats=fp16:dla_linear"} <= set(words)
    assert "--precisionConstraints=prefer" in words and "--allowGPUFallback" not in words


def test_a_model_that_needs_shapes_still_says_how_to_get_tensorrt(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models.translation(tmp_path, models.network(batch="N"))
    status, out, err = run(capsys, "-t", str(tmp_path))
    assert (status, out) == (1, "")
    assert "not installed here" in err and "For a trtexec command: Input 'images' has dynamic dimensions" in err


def test_a_tensorrt_that_does_not_load_is_told_apart(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> Any:
        raise ImportError("libnvinfer.so.10: cannot open shared object file")

    monkeypatch.setattr(versions, "importlib", SimpleNamespace(import_module=broken))
    models.translation(tmp_path, models.network())
    status, _, err = run(capsys, "-t", str(tmp_path))
    assert status == 1 and "does not load: libnvinfer.so.10: cannot open shared object file" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--allow_gpu_fallback"], "are for a DLA"),
        (["--target", "orin-dla", "--dla_standalone", "--allow_gpu_fallback"], "no GPU to fall back to"),
        (["--target", "orin-dla", "--precision", "fp32"], "INT8 and FP16 only"),
        (
            ["--target", "orin-dla", "--dla_standalone", "--layer_info", "x"],
            "no layer information about a DLA loadable",
        ),
        (["--builder_optimization_level", "9"], "Levels are 0 to 5"),
        (["--mem_pools", "workspace:1GiB"], "plain number of MiB"),
        (["--opt_shapes", "nothing"], "is not a shape"),
    ],
)
def test_usage_errors_come_before_tensorrt(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    models.translation(tmp_path, models.network())
    status, out, err = run(capsys, "-t", str(tmp_path), *arguments)
    assert (status, out) == (2, "") and words in err


def test_a_network_with_qdq_is_not_for_a_dla(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.onnx").write_bytes(models.network().SerializeToString())
    status, _, err = run(capsys, "-t", str(tmp_path / "q.onnx"), "--target", "orin-dla")
    assert status == 2 and "cannot run Q/DQ models" in err


def test_help_needs_no_tensorrt(without_tensorrt: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["build", "--help"])
    assert left.value.code == 0 and "--dla_standalone" in capsys.readouterr().out


def test_build_does_not_import_onnx() -> None:
    """A board may lack the package: TensorRT's own parser reads the model."""
    code = (
        "import sys, qdq_translator.board.engine.builder, qdq_translator.commands.build; print('onnx' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == "False\n"


def test_files_appear_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.engine"
    write_file(target, b"one")
    write_file(target, b"two")
    assert target.read_bytes() == b"two" and [p.name for p in target.parent.iterdir()] == ["a.engine"]
    with pytest.raises(UserError, match="cannot be written"):
        write_file(tmp_path / "new" / "a.engine" / "b", b"three")
    assert target.read_bytes() == b"two"
