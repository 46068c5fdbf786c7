"""`--metric`: functions and classes of the user's own, their labels, the gate, and what is said when they fail."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.user_metric import metric_of

SAMPLES = EXAMPLE_MODEL.parent / "digits_samples.npz"
CODE = """
from __future__ import annotations
import dataclasses
import numpy as np

def top1(outputs, labels):
    (scores,) = outputs.values()
    return np.mean(scores.argmax(axis=1) == labels)

@dataclasses.dataclass
class Margin:
    least: float = np.inf

    def add(self, outputs, labels):
        (scores,) = outputs.values()
        best = np.sort(scores, axis=1)
        self.least = min(self.least, float((best[:, -1] - best[:, -2]).min()))

    def result(self):
        return self.least

def empty(outputs, labels):
    return 0 * np.inf

def late(outputs, labels):
    late.calls = getattr(late, "calls", 0) + 1
    if late.calls > 3:
        return ratio(0)
    return 1.0

def ratio(x):
    return 1 / x

def closeness(outputs, labels):
    (scores,) = outputs.values()
    return -np.mean((scores - labels) ** 2)

class Half:
    def add(self, outputs, labels):
        pass

def words(outputs, labels):
    return "much"
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    assert main(["translate", str(EXAMPLE_MODEL), "-o", "translated"]) == 0
    return tmp_path


def verify(*more: str) -> int:
    return main(["verify", "-i", str(EXAMPLE_MODEL), "--inputs", str(SAMPLES), *more])


def test_function_and_class_give_the_numbers_that_onnxruntime_gives(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = np.load(SAMPLES)
    session = onnxruntime.InferenceSession(str(EXAMPLE_MODEL))
    (scores,) = session.run(None, {"input": arrays["input"]})
    ordered = np.sort(scores, axis=1)
    by_hand = {
        "mine.py:top1": np.mean(scores.argmax(axis=1) == arrays["labels"]),
        "mine.py:Margin": (ordered[:, -1] - ordered[:, -2]).min(),
    }
    for spec, expected in by_hand.items():
        assert verify("--metric", spec, "--json") == 0
        results = json.loads(capsys.readouterr().out)
        stages = results["outputs"]["metric"]
        assert stages["explicit"] == pytest.approx(float(expected), rel=1e-5)
        assert results["metric"]["drop"] == stages["explicit"] - stages["simulated"]
        assert results["metric"]["stages"] == ["explicit", "simulated"]
    (accuracy,) = results["outputs"]["accuracy"]["explicit"].values()
    assert accuracy == pytest.approx(100 * by_hand["mine.py:top1"])


def test_the_gate_is_the_drop(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--metric", "mine:Margin", "--samples", "16")
    assert verify(*asked, "--json") == 0
    drop = json.loads(capsys.readouterr().out)["metric"]["drop"]
    assert verify(*asked, "--max_drop", str(drop + 1e-6)) == 0
    capsys.readouterr()
    assert verify(*asked, "--max_drop", str(drop - 1e-6)) == 1
    assert f"'mine:Margin' {'falls' if drop > 0 else 'goes'} from" in capsys.readouterr().err
    (desk / "same.py").write_text("def same(outputs, labels):\n    return 50.0\n")
    assert verify("--metric", "same.py:same", "--samples", "16", "--max_drop", "-1") == 1
    assert "'same.py:same' goes from 50 to 50" in capsys.readouterr().err


def test_labels_of_their_own(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of .npy with labels.npy, and --labels: any shape, one row a sample."""
    arrays = np.load(SAMPLES)
    (desk / "set").mkdir()
    np.save(desk / "set" / "input.npy", arrays["input"][:8])
    np.save(desk / "set" / "labels.npy", arrays["labels"][:8])
    np.save(desk / "wrong.npy", (arrays["labels"] + 1) % 10)
    found = []
    for more in ([], ["--labels", "wrong.npy"]):
        asked = ["verify", "-i", str(EXAMPLE_MODEL), "--inputs", "set", "--metric", "mine.py:top1", "--json", *more]
        assert main(asked) == 0
        found.append(json.loads(capsys.readouterr().out)["outputs"]["metric"]["explicit"])
    assert found == [1.0, 0.0]
    np.save(desk / "few.npy", arrays["labels"][:3])
    assert verify("--labels", "few.npy") == 1 and "3 labels for 64 samples" in capsys.readouterr().err


@pytest.mark.parametrize(
    "spec, said",
    [
        ("mine.py:empty", "returns nan on sample 0 of the explicit stage"),
        ("mine.py:words", "returns str on sample 0"),
        ("mine.py:late", "stage: ZeroDivisionError"),
        ("mine.py:late", "line 28, in late: return ratio(0) > mine.py, line 32, in ratio: return 1 / x"),
        ("mine.py:Half", "no methods add and result"),
        ("mine.py:margin", "Did you mean Margin?"),
        ("mine.py", "does not name a metric"),
        ("none.py:f", "none.py does not exist"),
        ("no_such_module:f", "ModuleNotFoundError"),
    ],
)
def test_what_fails_is_said_in_a_sentence(spec: str, said: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--metric", spec, "--samples", "3") == 1
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error, error


def test_batches_count_by_their_samples(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def first(outputs, labels):\n    return float(outputs['y'][0]) + labels[0]\n")
    samples = Samples(2, 3, "here", lambda run: {}, np.repeat([10, 20], 3))
    score = metric_of(f"{tmp_path}/m.py:first").start("explicit")
    score.add({"y": np.array([1.0])}, samples, 0)
    score.add({"y": np.array([2.0])}, samples, 1)
    assert score.result() == (11 + 22) / 2
    with pytest.raises(UserError, match="samples 3 to 5 of the explicit stage"):
        score.add({"z": np.array([2.0])}, samples, 1)


def test_wrong_usage(desk: Path) -> None:
    assert main(["verify", "-i", str(EXAMPLE_MODEL), "--metric", "mine.py:top1"]) == 2
    assert verify("--max_drop", "1") == 2


@pytest.fixture
def logits(desk: Path) -> tuple[str, ...]:
    """What the explicit model says, as labels: its closeness to them is 0, and any rounding loses some."""
    session = onnxruntime.InferenceSession(str(EXAMPLE_MODEL))
    (scores,) = session.run(None, {"input": np.load(SAMPLES)["input"][:16]})
    np.save(desk / "logits.npy", scores)
    return ("--metric", "mine.py:closeness", "--labels", "logits.npy", "--samples", "16")


def test_sensitivity_by_the_metric(desk: Path, logits: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The ranking is by the metric; the printed command and the file translate to what was promised."""
    asked = (*logits, "--sensitivity", "--save_layers", "layers.txt")
    assert verify(*asked, "--json") == 0
    results = json.loads(capsys.readouterr().out)
    found = results["sensitivity"]
    ranks = [(row["metric"], row["sqnr_db"]) for row in found["ranking"]]
    assert ranks == sorted(ranks, reverse=True) and found["chosen"][-1]["metric"] > found["baseline_metric"]
    assert found["baseline_metric"] == pytest.approx(results["outputs"]["metric"]["simulated"])
    assert (desk / "layers.txt").read_text().splitlines() == found["layers"]
    command = shlex.split(found["command"])
    assert command[:2] == ["qdq-translator", "translate"] and command[-2:] == ["--keep_fp16", "@layers.txt"]
    assert main(command[1:]) == 0
    capsys.readouterr()
    assert verify(*logits, "--json") == 0
    again = json.loads(capsys.readouterr().out)["outputs"]["metric"]["simulated"]
    # but for the clamps that layers in FP16 need (rule Q9), which the search does not simulate
    assert again > found["baseline_metric"] and again == pytest.approx(found["chosen"][-1]["metric"], rel=0.2)
    assert main(["verify", "--example", "--save_layers", "layers.txt"]) == 2


def test_sensitivity_stops_when_the_metric_is_good_enough(
    logits: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(*logits, "--sensitivity", "--max_drop", "1e6") == 0
    out = capsys.readouterr().out
    assert "--keep_fp16" not in out and "The metric is what was asked for" in out


def test_calibration_is_measured_and_gated(
    desk: Path, logits: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The number of translate --calibrate is that of verify on the same data."""
    np.savez(desk / "data.npz", input=np.load(SAMPLES)["input"][:16], labels=np.load(desk / "logits.npy"))
    asked = ["translate", str(EXAMPLE_MODEL), "--calibrate", "data.npz", "--metric", "mine.py:closeness", "--json"]
    assert main([*asked, "--max_drop", "1e6"]) == 0
    found = json.loads(capsys.readouterr().out)["translated"][0]["metric"]
    assert verify(*logits, "--json") == 0
    stages = json.loads(capsys.readouterr().out)["outputs"]["metric"]
    assert (found["model"], found["engine"]) == pytest.approx((stages["explicit"], stages["simulated"]))
    assert main([*asked, "--max_drop", "0"]) == 1
    assert "falls from" in capsys.readouterr().err
    assert main(["translate", str(EXAMPLE_MODEL), "--metric", "mine.py:closeness"]) == 2
