"""What other projects' pipelines use: the steps of the GitHub Action and the pre-commit hook, run as they stand."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator.commands.located import EXAMPLE_MODEL

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]
DLA = "--target orin-dla --shapes input:1x1x16x16"
SAMPLES = next(EXAMPLE_MODEL.parent.glob("*.npz"))


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's temporary folder whose virtual environment is this Python."""
    program = tmp_path / "qdq" / "bin" / "qdq-translator"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from qdq_translator.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return tmp_path


def action(runner: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The last step of the action, with its inputs in the environment as GitHub puts them there."""
    described: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    step = described["runs"]["steps"][-1]
    values = {**{name: str(row.get("default", "")) for name, row in described["inputs"].items()}, **inputs}
    assert set(values) == set(described["inputs"])
    env = {key: values[text.split("inputs.")[1].split(" ")[0]] for key, text in step["env"].items()}
    env = {**os.environ, "RUNNER_TEMP": str(runner), **env}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=runner, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    "inputs, status, words",
    [
        ({}, 0, ""),
        (
            {
                "options": f"{DLA} --infer_add_scales",
                "fail_under_int8_macs": "99",
                "fail_over_ms": "100",
                "min_cosine": "0.9",
                "min_top1_agreement": "50",
                "inputs": str(SAMPLES),
            },
            0,
            "",
        ),
        ({"options": "--as_is", "fail_under_int8_macs": "99"}, 1, "below --fail_under_int8_macs 99"),
        ({"options": DLA, "fail_over_ms": "0.00001"}, 1, "over --fail_over_ms 1e-05"),
        ({"metric": "metric.py:right", "max_drop": "-1", "inputs": "data"}, 1, "--max_drop"),
        ({"metric": "metric.py:right", "max_drop": "0.5", "inputs": "data", "labels": "labels.npy"}, 0, ""),
        ({"min_cosine": "1", "options": "--infer_add_scales", "inputs": str(SAMPLES)}, 1, "--min_cosine"),
        ({"options": "--strict; touch hacked"}, 2, "touch hacked"),
    ],
)
def test_the_action_keeps_its_limits(runner: Path, inputs: dict[str, str], status: int, words: str) -> None:
    (runner / "metric.py").write_text(
        "def right(outputs, labels):\n    return float((next(iter(outputs.values())).argmax(1) == labels).mean())\n"
    )
    samples = np.load(SAMPLES)["input"][:20]
    (runner / "data").mkdir()
    np.savez(runner / "data" / "samples.npz", input=samples)
    np.save(runner / "labels.npy", np.zeros(20, np.int64))
    done = action(runner, model=str(EXAMPLE_MODEL), **inputs)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert (runner / "translated" / "digits_resnet_qat_noqdq.onnx").exists() == (status != 2)
    assert not (runner / "hacked").exists()


def test_the_hook_stops_a_model_that_does_not_translate(runner: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    bad = onnx.load(EXAMPLE_MODEL)
    for tensor in bad.graph.initializer:
        if tensor.name == next(n for n in bad.graph.node if n.op_type == "QuantizeLinear").input[1]:
            tensor.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(tensor), tensor.name))
    for node in bad.graph.node:
        if (
            node.op_type == "Constant"
            and node.output[0] == next(n for n in bad.graph.node if n.op_type == "QuantizeLinear").input[1]
        ):
            values = -onnx.numpy_helper.to_array(node.attribute[0].t)
            node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(values, ""))
    onnx.save(bad, runner / "bad.onnx")
    command = shlex.split(hook["entry"])
    command[0] = str(runner / "qdq" / "bin" / command[0])
    for model, status in ((EXAMPLE_MODEL, 0), (runner / "bad.onnx", 1)):
        done = subprocess.run([*command, str(model)], cwd=runner, capture_output=True, text=True)
        assert (done.returncode, bool(done.stderr)) == (status, bool(status)), done.stderr


def test_requirements_are_those_of_the_package() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == parser["options"]["install_requires"].split("\n")[1:]


@pytest.mark.parametrize("name", [".ci/requirements.lock", "constraints/action.txt"])
def test_a_lock_file_has_a_hash_for_everything_that_is_required(name: str) -> None:
    """One version of each package, with hashes, among them all that setup.cfg asks for; `.ci/lock` writes it."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert all("==" in row[0] and any(word.startswith("--hash=sha256:") for word in row) for row in rows)
    assert "://" not in text, "packages come from the index of who installs them"
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = setup["options"]["install_requires"] + setup["options.extras_require"]["verify"]
    required = {
        re.split(r"[^\w.-]", line.strip())[0].lower()
        for line in wanted.splitlines()
        if line.strip() and '< "3.10"' not in line
    }
    assert required <= {re.split(r"[=\[]", row[0])[0].lower() for row in rows}


def test_the_action_installs_only_what_is_locked() -> None:
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][0]
    commands = [line for line in step["run"].splitlines() if "pip install" in line]
    assert commands and all("--require-hashes" in line or "--no-deps" in line for line in commands)
