"""The command line as users and scripts meet it: three ways in, files, exit statuses, bad input, determinism."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qdq_translator.cli import main, main_translate
from qdq_translator.commands import COMMANDS
from qdq_translator.commands.located import EXAMPLE_MODEL
from tests.small_models import model as small

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = (
    "_noqdq.onnx",
    "_precision_config.json",
    "_precision_config_calib.cache",
    "_precision_config_layer_arg.txt",
    "_report.json",
)


def quantized_conv(channels: int = 4) -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((channels, 3, 3, 3)).astype(np.float32)
    text = f"""net (float[1,3,8,8] x) => (float[1,{channels},6,6] y) {{
        xq = QuantizeLinear (x, s, z) xd = DequantizeLinear (xq, s, z)
        wq = QuantizeLinear <axis = 0> (w, ws, wz) wd = DequantizeLinear <axis = 0> (wq, ws, wz)
        c = Conv (xd, wd) y = Relu (c) }}"""
    scale = (np.abs(weight).max(axis=(1, 2, 3)) / 127).astype(np.float32)
    made = small(text, 13, w=weight, ws=scale, wz=np.zeros(channels, np.int8), s=np.float32(0.02), z=np.int8(0))
    for node, name in zip(made.graph.node, ("q", "dq", "qw", "dqw", "conv", "relu")):
        node.name = name
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(quantized_conv(), path)
    return path


def run(*argv: str) -> int:
    return main_translate(list(argv))


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


# ---------------------------------------------------------------- ways in


def test_from_a_checkout_and_as_module(model: Path, tmp_path: Path) -> None:
    for index, command in enumerate(([str(ROOT / "qdq_translator.py")], ["-m", "qdq_translator"])):
        out = tmp_path / f"out{index}"
        env = {**os.environ, "PYTHONPATH": str(ROOT) if "-m" in command else ""}
        words = [sys.executable, *command, "-i", str(model), "-o", str(out)]
        done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sorted(p.name for p in out.iterdir()) == sorted(f"net{s}" for s in SUFFIXES)


@pytest.mark.parametrize("command", ["qdq_translator.py", "qdq-translator"])
def test_installed_commands_do_not_find_the_script(model: Path, tmp_path: Path, command: str) -> None:
    """What `pip install` puts into bin/: the script beside other commands, their folder first on sys.path."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    shutil.copy(ROOT / "qdq_translator.py", bin_folder / "qdq_translator.py")
    (bin_folder / "qdq-translator").write_text("import sys\nfrom qdq_translator.cli import main\nsys.exit(main())\n")
    words = [str(bin_folder / command), *["translate"] * (command == "qdq-translator"), "-i", str(model)]
    env, run_ = {**os.environ, "PYTHONPATH": str(ROOT)}, [sys.executable, *words, "-o", str(tmp_path / "out")]
    done = subprocess.run(run_, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "net_noqdq.onnx").exists()


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from qdq_translator.cli import main_translate\n"
        "try: main_translate(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'onnx', 'numpy', 'onnxruntime', 'tensorrt', 'torch', 'rich', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for flag in (
        "--input_onnx_models", "-i", "--output_dir", "-o", "--trt_calib_version", "--infer_average_pool_scales",
        "--infer_concat_scales", "--infer_mul_scales", "--calibration_type", "--addtl_ops_to_infer_adjacent_scales",
        "--rename_node_outputs", "--add_unary_ew_scales_for_dla", "--verbose", "--target", "--platform", "--weights",
        "--on_conflict", "--asymmetric", "--per_channel_activations", "--graph_optimizer", "--dla_rewrites", "--strict",
        "--json", "--workers",
    ):  # fmt: skip
        assert flag in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_a_terminal(
    command: Optional[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usage line names what must be given, and nothing is wider than 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    if command is None:
        assert main(["--help"]) == 0
    else:
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    usage = {
        "plan": "[options] MODEL",
        **dict.fromkeys(("deploy", "verify", "tune", "explicit"), "[options] MODEL [DATA]"),
        **dict.fromkeys(("report", "build"), "[options] [FILE]"),
        "translate": "[options] [MODEL ...]",
        "explain": "[options] [NAME ...]",
        None: "COMMAND [options]",
    }.get(command, "[options]")
    assert lines[0] == f"usage: qdq-translator {command + ' ' if command else ''}{usage}"
    assert max(map(len, lines)) <= 80


def test_import_is_light() -> None:
    probe = (
        "import sys, qdq_translator; from qdq_translator import translate, TranslateOptions\n"
        "heavy = {'onnxruntime', 'tensorrt', 'torch', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT).returncode == 0


def test_subcommand_and_hyphens(model: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "a")
    assert main(["translate", "--input-onnx-models", str(model), "--output-dir", out, "--infer-concat-scales"]) == 0
    config = json.loads((tmp_path / "a" / "net_precision_config.json").read_text())
    assert config["options"]["infer_concat_scales"] is True
    assert main([]) == 2 and main(["--help"]) == 0


def test_example_ships(tmp_path: Path) -> None:
    assert EXAMPLE_MODEL.stat().st_size < 2**20
    assert run("--example", "-o", str(tmp_path)) == 0
    assert (tmp_path / "digits_resnet_qat_noqdq.onnx").exists()


# ---------------------------------------------------------------- files


def test_files_hold_what_the_interface_says(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "translated"
    assert run("-i", str(model), "-o", str(out), "--trt_calib_version", "8602") == 0
    config = json.loads((out / "net_precision_config.json").read_text())
    assert list(config)[:2] == ["int8_tensor_scales", "fp16_nodes"]
    assert config["int8_tensor_scales"] == {"x": float(np.float32(0.02))}
    assert config["source"] == {"file": "net.onnx", "sha256": hashlib.sha256(model.read_bytes()).hexdigest()}
    cache = (out / "net_precision_config_calib.cache").read_text()
    assert cache == f"TRT-8602-EntropyCalibration2\nx: {np.float32(0.02).tobytes()[::-1].hex()}\n"
    assert (out / "net_precision_config_layer_arg.txt").read_bytes() == b"relu:fp16"
    assert onnx.load(out / "net_noqdq.onnx").producer_name == "qdq-translator"


def test_installed_tensorrt_counts_before_the_default(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qdq_translator.translation.targets.platforms.installed_tensorrt", lambda: (10, 3, 0))
    assert run("-i", str(model), "-o", str(tmp_path)) == 0
    assert (tmp_path / "net_precision_config_calib.cache").read_text().startswith("TRT-100300-")


# ---------------------------------------------------------------- several models


def test_several_models_one_bad(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, second = tmp_path / "bad.onnx", tmp_path / "second.onnx"
    bad.write_bytes(b"this is no model")
    shutil.copy(model, second)
    for jobs in ("1", "2"):
        out = tmp_path / f"out{jobs}"
        assert run("-i", str(model), str(bad), str(second), "-o", str(out), "--workers", jobs) == 1
        assert {p.name for p in out.iterdir()} == {f"{n}{s}" for n in ("net", "second") for s in SUFFIXES}
        error = capsys.readouterr().err
        assert "bad.onnx" in error and "Traceback" not in error
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")


def test_a_gpu_as_target_starts_without_the_rooms_of_the_dla(model: Path, tmp_path: Path) -> None:
    rooms = ("passes.dla", "targets.dla", "targets.cost.estimate", "planning.layers", "planning.what_if")
    probe = (
        "import sys; from qdq_translator.cli import main_translate; status = main_translate(sys.argv[1:]); "
        f"sys.exit(status or any(m.startswith(tuple('qdq_translator.translation.' + r for r in {rooms})) for m in sys.modules))"
    )
    for target, status in (("gpu", 0), ("orin-dla", 1)):
        command = [sys.executable, "-c", probe, str(model), "-o", str(tmp_path / target), "--target", target]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("preset", ["gpu", "dla"])
def test_the_translation_alone_writes_the_same_files(preset: str, model: Path, tmp_path: Path) -> None:
    """Where ONNX Runtime is not installed, and without a module of the lab or the board."""
    probe = (
        "import sys; sys.modules['onnxruntime'] = None; from qdq_translator.core.options import TranslateOptions; "
        "from qdq_translator.translation.translator import translate; "
        "translate(sys.argv[1], TranslateOptions(preset=sys.argv[2])).save(sys.argv[3]); "
        "sys.exit(any(m.startswith(('qdq_translator.lab', 'qdq_translator.board')) for m in sys.modules))"
    )
    command = [sys.executable, "-c", probe, str(model), preset, str(tmp_path / "alone")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert main(["translate", str(model), "-o", str(tmp_path / "all"), "--preset", preset]) == 0
    alone, whole = contents(tmp_path / "alone"), contents(tmp_path / "all")
    assert alone.keys() >= {f"net{suffix}" for suffix in SUFFIXES} and alone == {name: whole[name] for name in alone}


# ---------------------------------------------------------------- bad input


def fails(capsys: pytest.CaptureFixture[str], out: Path, *argv: str) -> str:
    before = contents(out) if out.is_dir() else None
    assert run(*argv, "-o", str(out)) == 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err and captured.err.count("\n") <= 3
    assert (contents(out) if out.is_dir() else None) == before
    return captured.err


def test_every_truncation_is_an_error_not_a_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    data = model.read_bytes()
    for length in range(1, len(data) - 1, 37):
        (tmp_path / "cut.onnx").write_bytes(data[:length])
        status = run("-i", str(tmp_path / "cut.onnx"), "-o", str(tmp_path / "o"))
        error = capsys.readouterr().err
        assert status == 1 and error and "Traceback" not in error, length


def test_output_folder_that_cannot_be_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run("-i", str(model), "-o", str(tmp_path / "file")) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("limit", [0, 100, 500, 1000, 2000])
def test_a_full_disk_leaves_the_old_output(model: Path, tmp_path: Path, limit: int) -> None:
    """The system refuses to write more than `limit` bytes to a file, as a full disk would."""
    out = tmp_path / "o"
    assert run("-i", str(model), "-o", str(out)) == 0
    before = contents(out)
    assert max(p.stat().st_size for p in out.iterdir()) > 2000
    probe = (
        "import resource, sys; from qdq_translator.cli import main_translate\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"sys.exit(main_translate(['-i', {str(model)!r}, '-o', {str(out)!r}, '--infer_concat_scales']))"
    )
    done = subprocess.run([sys.executable, "-B", "-c", probe], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "failed: File too large" in done.stderr
    assert contents(out) == before


# ---------------------------------------------------------------- determinism, external data


def test_byte_identical_with_any_hash_seed(tmp_path: Path) -> None:
    seen = set()
    for seed in ("0", "1", "4242"):
        out = tmp_path / seed
        flags = ["--platform", "jetpack-6.2", "--infer_concat_scales", "--infer_mul_scales", "--target", "orin-dla"]
        subprocess.run(
            [sys.executable, str(ROOT / "qdq_translator.py"), "--example", "-o", str(out), *flags],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        seen.add(json.dumps(contents(out)))
    assert len(seen) == 1


def test_external_data_in_and_out(tmp_path: Path) -> None:
    model = quantized_conv(channels=64)
    path = tmp_path / "big.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="big.bin", size_threshold=64)
    assert run("-i", str(path), "-o", str(tmp_path / "o")) == 0
    assert (tmp_path / "o" / "big_noqdq.onnx.data").exists()
    onnx.save(quantized_conv(channels=64), tmp_path / "inline.onnx")
    assert run("-i", str(tmp_path / "inline.onnx"), "-o", str(tmp_path / "o")) == 0
    a, b = (onnx.load(tmp_path / "o" / f"{n}_noqdq.onnx") for n in ("big", "inline"))
    assert [numpy_helper.to_array(t).tobytes() for t in a.graph.initializer] == [
        numpy_helper.to_array(t).tobytes() for t in b.graph.initializer
    ]


def test_what_nobody_foresaw_is_no_traceback(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("qdq_translator.translation.planning.decision.make_plan", broken)
    assert "unexpected ZeroDivisionError: oops" in fails(capsys, tmp_path / "o", "-i", str(model))
