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


def test_on_a_jetson_it_is_jetpacks(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    models.translation(tmp_path, models.network())
    status, _, err = run(capsys, "-t", str(tmp_path))
    assert status == 1 and "part of JetPack (do not pip install it there" in err


def test_a_tensorrt_that_does_not_load_is_told_apart(
    without_tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> Any:
        raise ImportError("libnvinfer.so.10: cannot open shared object file")

    monkeypatch.setattr(versions, "importlib", SimpleNamespace(import_module=broken))
    models.translation(tmp_path, models.network())
    status, _, err = run(capsys, "-t", str(tmp_path))
    assert status == 1 and "does not load: libnvinfer.so.10: cannot open shared object file" in err


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
