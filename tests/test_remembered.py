"""What a translation was made for holds in the commands that build it, and a contradiction is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.core.errors import UserError
from tests.small_models import model, pair

FIXED = "g (float[1,4,8,8] x) => (float[1,4,1,1] y) {"
DYNAMIC = "g (float[n,4,8,8] x) => (float[n,4,1,1] y) {"


def translated_for(folder: Path, head: str = FIXED, **options: Any) -> list[str]:
    """`-t` of a Conv and a GlobalAveragePool, which the DLA does not run."""
    text = head + pair("x", "xq") + "c = Conv (xq, w)" + pair("c", "cq") + "y = GlobalAveragePool (cq) }"
    arrays = {"w": np.ones((4, 4, 1, 1), np.float32), "s": np.float32(0.05), "z": np.int8(0)}
    return ["-t", str(translate(model(text, 17, 8, **arrays), TranslateOptions(**options), "m").save(folder).model)]


def command(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> tuple[str, str]:
    assert main(["build", "--print", *argv]) == status
    said = capsys.readouterr()
    return said.out, said.err


def test_nothing_is_called_rewritten_without_rewrites(tmp_path: Path) -> None:
    text = FIXED + pair("x", "xq") + "y = GlobalAveragePool (xq) }"
    made = translate(model(text, 17, 8, s=np.float32(0.05), z=np.int8(0)), TranslateOptions(target="orin-dla"), "m")
    told = [d for d in made.diagnostics if d.rule == "D0"]
    assert len(told) == 1 and "rewriting" not in told[0].message and "--dla_rewrites would apply D4" in told[0].hint


def test_platforms_that_lack_what_the_target_needs(tmp_path: Path) -> None:
    network = model(FIXED + pair("x", "xq") + "y = GlobalAveragePool (xq) }", 17, 8, s=np.float32(0.05), z=np.int8(0))

    def warned(**options: Any) -> set[str]:
        return {d.rule for d in translate(network, TranslateOptions(**options), "m").diagnostics.warnings}

    assert "D0" in warned(target="orin-dla", platform="jetpack-7.2")
    assert "D0" not in warned(target="orin-dla", platform="jetpack-6.2")
    assert "D0" not in warned(platform="jetpack-7.2")
    with pytest.raises(UserError, match="no DLA"):
        warned(target="orin-dla", platform="jetpack-7.2", strict=True)
    unary = {"target": "orin-dla", "add_unary_ew_scales_for_dla": True}
    assert "S9" in warned(platform="jetpack-5.1", **unary) and "S9" in warned(platform="drive-os-6.0.6", **unary)
    assert "S9" not in warned(platform="jetpack-6.0", **unary)


@pytest.mark.parametrize("more", [[], ["--allow_gpu_fallback"], ["--dla_core", "1", "--mem_pools", "workspace:64"]])
@pytest.mark.parametrize("target", ["gpu", "orin-dla"])
def test_trtexec_and_build_have_one_command(
    target: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """build prints its command where TensorRT is not installed for this processor."""
    from qdq_translator.board.engine import versions
    from qdq_translator.core.errors import MissingDependency

    def missing(*_: object) -> None:
        raise MissingDependency("No TensorRT.", "Install it.")

    monkeypatch.setattr(versions, "load", missing)
    if target == "gpu":
        more = [flag for flag in more if flag.startswith(("--mem", "work"))]
    where = translated_for(tmp_path, target=target)
    out, _ = command(capsys, *where, *more)
    assert main(["build", *where, *more]) == 1
    assert capsys.readouterr().out == out


def test_the_kit_for_the_board_refuses_what_contradicts_the_translation(tmp_path: Path) -> None:
    """Before anything is built: target, and a TensorRT that is not the platform's."""
    import importlib.util
    import sys
    from types import SimpleNamespace

    path = Path(__file__).resolve().parents[1] / "e2e_workflow" / "on_device" / "run_on_device.py"
    spec = importlib.util.spec_from_file_location("run_on_device", path)
    assert spec is not None and spec.loader is not None
    kit = importlib.util.module_from_spec(spec)
    sys.modules["run_on_device"] = kit  # dataclasses look their module up
    spec.loader.exec_module(kit)
    where = translated_for(tmp_path, target="orin-dla", platform="jetpack-6.2")

    def refusal(version: tuple[int, int, int], *more: str) -> str:
        api = SimpleNamespace(version=version, dotted=".".join(map(str, version)))
        with pytest.raises(UserError) as caught:
            kit.run(kit.parse([*where, "--inputs", "none.npz", *more]), api, None)
        return str(caught.value)

    assert "--target gpu" in refusal((10, 3, 0), "--target", "gpu") and "orin-dla" in refusal(
        (10, 3, 0), "--target", "gpu"
    )
    assert "8.6.1" in refusal((8, 6, 1)) and "jetpack-6.2" in refusal((8, 6, 1))
    assert "none.npz" in refusal((10, 3, 0))  # agreed so far, and on to the inputs
    made = translated_for(tmp_path / "open", DYNAMIC, target="orin-dla", shapes=["x:2x4x8x8"])
    options = kit.parse([*made, "--inputs", "none.npz"])
    files = kit.TranslationFiles.locate(options.translation)
    options.target = "orin-dla"
    assert kit.jobs(files, options)["implicit"].request.opt_shapes == {"x": [2, 4, 8, 8]}
