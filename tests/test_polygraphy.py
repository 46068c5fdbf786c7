"""What Polygraphy reads and writes: files of the real tool (0.53.6: inputs and outputs of the model that ships, in ONNX Runtime, and
of its simulated engine), and its own parser where it is installed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.polygraphy import read_inputs, read_results

DATA = Path(__file__).parent / "data" / "polygraphy"


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[list[list[str]], list[str]]:
    """The commands of --tool polygraphy, and the next command of ours."""
    monkeypatch.chdir(tmp_path)
    assert main(["translate", str(EXAMPLE_MODEL), "--as_is"]) == 0
    capsys.readouterr()
    asked = ["build", "--print", "polygraphy", "-i", str(EXAMPLE_MODEL), "--opt_shapes", "input:1x1x16x16"]
    assert main(asked) == 0
    captured = capsys.readouterr()
    commands = [shlex.split(text.replace("\\\n", " ")) for text in captured.out.split("\n\n")]
    return commands, shlex.split(captured.err.splitlines()[-1])


def test_arrays_as_polygraphy_saves_them() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    inputs, results = read_inputs(DATA / "inputs.json"), read_results(DATA / "explicit_outputs.json")
    assert {name: array.shape for name, array in inputs.items()} == {"input": (2, 1, 16, 16)}
    (outputs,) = results.values()
    session = onnxruntime.InferenceSession(str(EXAMPLE_MODEL))
    (expected,) = session.run(["logits"], inputs)
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-4)


def test_the_printed_next_command_reads_the_results(
    printed: tuple[list[list[str]], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    commands, following = printed
    assert [words[1] for words in commands] == ["convert", "run", "run"]
    first, second = commands[1:]

    def value(words: list[str], flag: str) -> str:
        return words[words.index(flag) + 1]

    assert value(first, "--save-inputs") == value(second, "--load-inputs") == following[3]
    assert value(first, "--save-outputs") == value(second, "--load-outputs")
    assert value(second, "--save-outputs") == value(following, "--device_results")
    Path(value(first, "--save-inputs")).write_bytes((DATA / "inputs.json").read_bytes())
    Path(value(second, "--save-outputs")).write_bytes((DATA / "engine_outputs.json").read_bytes())
    # the stored results were computed in float32 throughout
    assert main([*following[1:], "--simulate", "higher=fp32", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    pairs = {
        (pair["reference"], pair["other"].split()[0]): pair["outputs"]["logits"] for pair in results["outputs"]["pairs"]
    }
    # the engine's results are those of the simulation, run by Polygraphy
    assert pairs["simulated", "device"]["max_abs"] < 1e-3
    assert pairs["explicit", "device"]["sqnr_db"] == pytest.approx(pairs["explicit", "simulated"]["sqnr_db"], abs=0.1)
    assert results["inputs"]["samples"] == 2


def test_polygraphy_s_own_parser_takes_the_commands(printed: tuple[list[list[str]], list[str]]) -> None:
    """`run --gen-script` writes what would run; nothing of TensorRT is needed for that."""
    pytest.importorskip("polygraphy")
    for words in printed[0][1:]:
        done = subprocess.run(
            [sys.executable, "-m", "polygraphy", *words[1:], "--gen-script", "-"], capture_output=True, text=True
        )
        assert done.returncode == 0 and "Runner Execution" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "text, said",
    [
        ("[]", "out of range"),
        ("{}", "instead of a list"),
        ('[{"x": {"array": "!"}}]', "'x' is not an array"),
        ('[{"x": {"array": "aGVsbG8="}}]', "'x' is not an array"),
    ],
)
def test_what_polygraphy_did_not_write(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_inputs(tmp_path / "x.json")
    with pytest.raises(UserError):
        read_results(tmp_path / "x.json")
