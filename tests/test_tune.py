"""`qdq-translator tune`: what it writes holds what it says, whoever computes it and however often it is ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from qdq_translator import TranslateOptions, commands, translate
from qdq_translator.cli import main
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.tune_rows import Cost, Cure, Goal, Measured, Ranking, Tuned
from qdq_translator.core.formats.verify_rows import Account, Rounding
from qdq_translator.core.switch import alone, appear_together
from qdq_translator.lab.simulate.account import Candidate, Entry
from qdq_translator.lab.simulate.boxes import overlap
from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.lab.simulate.evaluation import HERE
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import InputSpec, load_samples
from qdq_translator.lab.simulate.named_metrics import MeanAveragePrecision, top1
from qdq_translator.lab.simulate.run import CodedEnds, Session
from qdq_translator.lab.simulate.user_metric import metric_of
from qdq_translator.lab.tune import run
from qdq_translator.lab.tune.bench import cost_of
from qdq_translator.lab.tune.journal import Journal
from qdq_translator.lab.tune.meter import Meter, bootstrap_interval, paired_interval
from qdq_translator.lab.tune.points import Point, proposals
from qdq_translator.lab.tune.run import recover
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.translator import Translation
from tests.small_models import model
from tests.tuning_rows import tuned as made_up

pytest.importorskip("onnxruntime")
MODELS = Path(commands.__file__).parents[1] / "models"
ROOT = Path(__file__).resolve().parents[1]
DATA = MODELS / "digits_samples.npz"
SHAPES = ("--shapes", "input:1x1x16x16")


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits network in float, the same function with one channel between two Convs 500 times as large: INT8 has one
    scale for all of its channels, and nothing left for the others."""
    made = translate(MODELS / "digits_resnet_qat.onnx").model
    graph = Graph.from_model(onnx.ModelProto.FromString(made.SerializeToString()))
    tensors = {tensor.name: tensor for tensor in made.graph.initializer}
    convs = [node for node in graph.nodes if node.is_op("Conv")]
    first, second = next(
        (conv, relu_reader)
        for conv in convs
        for relu in graph.consumers(conv.outputs[0])
        if relu.is_op("Relu") and len(graph.consumers(relu.outputs[0])) == 1
        for relu_reader in graph.consumers(relu.outputs[0])
        if relu_reader.is_op("Conv")
    )

    def scale(name: str, place: Any, factor: float) -> None:
        values = numpy_helper.to_array(tensors[name]).copy()
        values[place] *= np.float32(factor)
        tensors[name].CopyFrom(numpy_helper.from_array(values, name))

    for name in first.inputs[1:]:
        scale(name, slice(0, 3), 500.0)
    scale(second.inputs[1], (slice(None), slice(0, 3)), 1 / 500.0)
    path = tmp_path_factory.mktemp("spread") / "spread.onnx"
    onnx.save(made, path)
    return path


def tuned(spread: Path, folder: Path, *flags: str, drop: str = "2") -> tuple[int, dict[str, Any]]:
    asked = ["tune", "-i", str(spread), "--data", str(DATA), "--calibrate", str(DATA), "--calibrate_method", "max"]
    asked += ["--target", "orin-dla", "--platform", "jetpack-6.2", "--max_drop", drop, "-o", str(folder), *SHAPES]
    status = main([*asked, "--passes", "30", *flags])
    return status, json.loads((folder / "spread_tune.json").read_text())


@pytest.fixture(scope="module")
def outcome(spread: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tuned")
    status, found = tuned(spread, folder)
    assert status == 0
    return folder, found


def _top1(network: ImplicitNetwork) -> float:
    """Measured anew, one sample after the other."""
    options = SimulationOptions(fp16=True, sigmoid_fp16=True)
    session = Session(simulate(network, options).model, "simulated", one_thread=True)
    with np.load(DATA) as data:
        images, labels = data["input"], data["labels"]
    best = [int(session.run({"input": image[None]})[session.outputs[0]].argmax()) for image in images]
    return 100 * float(np.mean(np.array(best) == labels))


def test_the_drop_holds_for_the_files_and_the_layers_are_few(outcome: tuple[Path, dict[str, Any]]) -> None:
    folder, found = outcome
    best = found["best"]
    assert found["goal"]["holds"] and best["measured"]["complete"] and best["measured"]["drop"] <= 2
    assert (best["kept_fp16"] or best["changes"].get("equalize")) and best["cost"]["int8_macs"] >= 0.5
    network = ImplicitNetwork.read(TranslationFiles.locate(str(folder)))
    assert _top1(network) == best["measured"]["score"]
    assert set(best["kept_fp16"]) <= set(network.precisions)


def test_what_is_cured_is_said(outcome: tuple[Path, dict[str, Any]]) -> None:
    """The last cure is what the files have; its figures are those of the best point."""
    _, found = outcome
    best, last, first = found["best"], found["cures"][-1], found["points"][0]
    assert last["applied"] and (last["changes"], last["layers"]) == (best["changes"], best["kept_fp16"])
    assert last["gain"] == pytest.approx(first["measured"]["drop"] - best["measured"]["drop"])
    assert last["milliseconds"] == pytest.approx(best["cost"]["milliseconds"] - first["cost"]["milliseconds"])
    assert not first["changes"] and 0 < found["passes"] <= found["limit"] + 1


def test_the_front_holds_what_no_other_point_beats(outcome: tuple[Path, dict[str, Any]]) -> None:
    _, found = outcome

    def key(row: dict[str, Any]) -> tuple[int, float]:
        return row["cost"]["gpu_layers"], row["cost"]["milliseconds"]

    front = found["front"]
    drops = [row["measured"]["drop"] for row in front]
    assert front and drops == sorted(drops, reverse=True) and found["best"] in found["points"]
    for row in found["points"]:
        assert any(key(o) <= key(row) and o["measured"]["drop"] <= row["measured"]["drop"] + 1e-12 for o in front)


def test_the_command_makes_the_same_files(outcome: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    import shlex

    folder, found = outcome
    words = shlex.split(found["command"])
    assert main([*words[1:], "-o", str(tmp_path)]) == 0
    for path in TranslationFiles.locate(str(folder)):
        if path.is_file() and path.suffix in (".cache", ".txt", ".onnx"):
            assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def _unlabelled(folder: Path) -> Path:
    with np.load(DATA) as data:
        np.savez(folder / "x.npz", input=data["input"][:32])
    return folder / "x.npz"


def test_a_search_whose_time_is_over_writes_its_best_and_goes_on(
    spread: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock whose time was over before anything began."""
    with monkeypatch.context() as patched:
        patched.setattr(run, "time", SimpleNamespace(monotonic=lambda: -1e9))
        _, first = tuned(spread, tmp_path)
    said = capsys.readouterr().err
    assert first["interrupted"] and len(first["points"]) == 1 and (tmp_path / "spread_noqdq.onnx").is_file()
    assert "and at most 2 minutes" in said and "the same command again continues it" in said
    status, last = tuned(spread, tmp_path)
    assert status == 0 and not last["interrupted"] and len(last["points"]) > 1
    assert last["points"][0]["measured"] == first["points"][0]["measured"]


def test_recover_is_the_same_search_without_labels(spread: Path, tmp_path: Path) -> None:
    asked = ["translate", str(spread), "--calibrate", str(_unlabelled(tmp_path)), *SHAPES, "-o", str(tmp_path / "t")]
    assert main([*asked, "--recover"]) == 0
    found = json.loads((tmp_path / "t" / "spread_tune.json").read_text())
    assert found["goal"] == {"max_drop": 1.0, "budget_ms": None, "holds": True} and found["data"]["samples"] == 16
    assert found["best"]["changes"] == {"equalize": True} and found["points"][0]["measured"]["drop"] > 1
    again = tmp_path / "again"
    assert main([*asked[:-1], str(again), "--equalize"]) == 0
    ours, same = (json.loads((place / "spread_precision_config.json").read_text()) for place in (tmp_path / "t", again))
    assert ours["int8_tensor_scales"] == same["int8_tensor_scales"] and ours["fp16_nodes"] == same["fp16_nodes"]
    assert {**ours["options"], "preset": "gpu"} == same["options"]


@pytest.mark.parametrize("what", ["another plan", "a loss on all samples", "no time is left"])
def test_a_translation_that_is_not_as_measured_is_searched_again(
    what: str, spread: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The translation has the ranges of all samples, the points of the search those of every second one. What it loses is known to the
    second search, whose answer it is if time ends before a better one is found."""
    said: list[str] = []
    options = TranslateOptions(calibrate=str(_unlabelled(tmp_path)), preset="gpu", shapes=[SHAPES[1]])
    once = recover(str(spread), options, 1.0, tmp_path / "a", say=said.append)
    assert run.NOT_AS_MEASURED not in said and once.results.data.notes == ()
    lost = dataclasses.replace(once.results.best.measured, drop=5.0)

    def measured(bench: run.Bench, made: Translation) -> Measured:
        bench._remembering.until = 0.0 if what == "no time is left" else math.inf
        return lost

    if what == "another plan":
        other = dataclasses.replace(cost_of(once.translation), int8_macs=0.5)
        monkeypatch.setattr(run, "cost_of", lambda made: other)
    else:
        monkeypatch.setattr(run.Bench, "measured", measured)
    twice = recover(str(spread), options, 1.0, tmp_path / "b", say=said.append)
    best, goal = twice.results.best, twice.results.goal
    assert said.count(run.NOT_AS_MEASURED) == 1 and twice.results.data.notes == (run.NOT_AS_MEASURED,)
    assert (once.results.data.samples, twice.results.data.samples) == (16, 32)
    assert best.changes == once.results.best.changes
    if what == "no time is left":
        assert twice.results.interrupted and not goal.holds and best.measured == lost and " more." in said[-2]
        assert twice.translation.tensor_scales == once.translation.tensor_scales
    else:
        assert goal.holds and bool(best.kept_fp16) == (what == "a loss on all samples")


@pytest.fixture(scope="module")
def alternating(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A network and its data: 20 layers for the DLA and 20 that only the GPU can run, in turn."""
    nodes, random = "", np.random.RandomState(0)
    for number in range(20):
        nodes += f"c{number} = Conv <kernel_shape = [1, 1]> (e{number}, w{number})\ne{number + 1} = Erf (c{number})\n"
    weights = {f"w{number}": random.randn(8, 8, 1, 1).astype(np.float32) for number in range(20)}
    folder = tmp_path_factory.mktemp("alternating")
    text = f"g (float[1, 8, 8, 8] e0) => (float[1, 8, 8, 8] e20) {{\n{nodes}}}"
    onnx.save(model(text, **weights), folder / "a.onnx")
    np.savez(folder / "x.npz", e0=random.randn(4, 8, 8, 8).astype(np.float32))
    return str(folder / "a.onnx"), str(folder / "x.npz")


@pytest.mark.parametrize(
    ("named", "target"), [({}, "gpu"), ({"on": "dla"}, "orin-dla"), ({"target": "orin-dla"}, "orin-dla")]
)
def test_the_search_is_for_the_faster_device_of_the_board(
    alternating: tuple[str, str], named: dict[str, str], target: str, tmp_path: Path
) -> None:
    """By keywords, from the command line and in `tune`; a device that was named is never replaced."""
    path, data = alternating
    options = TranslateOptions(board="agx-orin", dla_rewrites=False, calibrate=data, **named)  # type: ignore[arg-type]
    assert options.typed == {"board", "dla_rewrites", "calibrate", *named}
    assert recover(path, options, 100.0, tmp_path / "j").translation.rows.target == target
    words = ["--board", "agx-orin", "--dla_rewrites", "off", *(f"--{name}={value}" for name, value in named.items())]
    assert main(["translate", path, data, *words, "--recover", "100", "-o", str(tmp_path / "t")]) == 0
    assert TranslationFiles(tmp_path / "t", "a").report_rows().target == target
    judged = ["--calibrate", data, "--metric", f"{tmp_path / 'any.py'}:same", "--max_drop", "2"]
    (tmp_path / "any.py").write_text("def same(outputs, labels):\n    return 50.0\n")
    assert main(["tune", path, data, *words, *judged, "-o", str(tmp_path / "u")]) == 0
    assert TranslationFiles(tmp_path / "u", "a").report_rows().target == target


@pytest.mark.parametrize("by_rule", [True, False])
def test_layers_whose_values_fp16_cannot_hold_get_fp32(
    by_rule: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The logarithm of a power, as in audio networks: 1e-10 is 0 in FP16, and INT8 has no step for it. Without rule P2 the search finds
    that FP16 does not do."""
    net = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> net (float[1,4,8,8] x) => (float[1,4,8,8] y)
        <float small = {0.00001}, float least = {0.000000000001}, float unit = {25}> {
            [shrink] a = Mul(x, small)
            [square] b = Mul(a, a)
            [floor] c = Add(b, least)
            [log] d = Log(c)
            [centre] e = Add(d, unit)
            [end] y = Neg(e)
        }"""
    )
    onnx.save(net, tmp_path / "net.onnx")
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 4, 8, 8)) * 10 ** random.uniform(-2, 1, (16, 4, 8, 8))
    np.savez(tmp_path / "x.npz", x=x.astype(np.float32))
    given = [str(tmp_path / "net.onnx"), str(tmp_path / "x.npz")]
    without = [] if by_rule else ["--without", "keep_norm_fp16"]
    assert main(["translate", *given, "--on", "gpu", "--recover", *without, "-o", str(tmp_path / "t")]) == 0
    assert ("FP32 instead of FP16" in capsys.readouterr().out) != by_rule
    config = json.loads((tmp_path / "t" / "net_precision_config.json").read_text())
    wide = config["fp32_nodes"]
    assert {"square", "floor", "log"} <= set(wide) and (by_rule or not config["fp16_nodes"])
    argument = (tmp_path / "t" / "net_precision_config_layer_arg.txt").read_text()
    assert {f"{name}:fp32" for name in wide} == {word for word in argument.strip().split(",") if "fp32" in word}
    assert main(["verify", *given, "-t", str(tmp_path / "t"), "--all"]) == 0
    assert "(fp32), as planned" in capsys.readouterr().out
    half = argument.replace("fp32", "fp16")
    assert main(["verify", *given, "-t", str(tmp_path / "t"), "--layer_arg", half]) == 1
    assert by_rule or "--float_type fp32" in capsys.readouterr().out


def test_what_is_left_is_named() -> None:
    def point(drop: float, why: str, *kept: str) -> Tuned:
        return Tuned(why, {}, kept, Cost(None, 0, 1.0, 0), Measured(100 - drop, 8, True, drop, None, 0.1))

    points = [point(9.0, "start"), point(5.0, "all layers in FP16", "a", "b")]
    cure = Cure("2 layers in FP16", {}, ("a", "b"), 4.0, 0.02, 0.5, True)
    entries = (Rounding("t", ("t",), (), ("a",), 0.7, 12.0, ()), Rounding("u", ("u",), (), ("b",), 0.2, 17.0, ()))
    loud = Ranking({}, (), Account(10.0, 11.0, 0.1, 8, 4.0, entries))
    found = made_up(points, points, best=points[1], cures=(cure,), goal=Goal(1.0, None), sensitivity=(loud,))
    assert found.remedies == (
        "module:psnr 95 on 8 samples, 91 without help",
        "2 layers in FP16: metric +4, +0.02 ms (estimated)",
        "5 is still lost, 1 was allowed",
        "FP16 itself loses 5: some values are too large or too small for it",
        "most noise comes from 't' (70%), 'u' (20%)",
    )


def _without_time(found: dict[str, Any], folder: Path) -> dict[str, Any]:
    text = json.dumps({**found, "seconds": 0})
    return json.loads(text.replace(str(folder), "FOLDER"))  # type: ignore[no-any-return]


def _rows(journal: Path) -> dict[str, str]:
    if not journal.exists():
        return {}
    with contextlib.closing(sqlite3.connect(str(journal))) as file:
        try:
            return dict(file.execute("SELECT key, value FROM kept WHERE key LIKE 'measured %'"))
        except sqlite3.OperationalError:
            return {}  # not made yet


def test_a_search_that_is_killed_goes_on(
    outcome: tuple[Path, dict[str, Any]], spread: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, found = outcome
    own, journal = tmp_path / "killed", tmp_path / "killed" / "spread_tune.sqlite"
    code = "import sys; from tests.test_tune import tuned; from pathlib import Path; tuned(Path(sys.argv[1]), Path(sys.argv[2]))"
    process = subprocess.Popen([sys.executable, "-c", code, str(spread), str(own)], cwd=ROOT)
    patient_until = time.monotonic() + 240
    while len(_rows(journal)) < 2 and time.monotonic() < patient_until and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = _rows(journal)
    assert 2 <= len(kept) < found["evaluations"] and not (own / "spread_tune.json").exists()
    measured: list[int] = []
    original = Meter.measure

    def counted(self: Meter, *given: Any) -> Any:
        measured.append(1)
        return original(self, *given)

    monkeypatch.setattr(Meter, "measure", counted)
    status, other = tuned(spread, own)
    assert status == 0 and _without_time(other, own) == _without_time(found, folder)
    assert len(measured) == found["evaluations"] - len(kept)
    assert {key: _rows(journal)[key] for key in kept} == kept


def test_data_that_change_under_way_end_the_search(
    spread: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metric changes them, when the model as given has been measured."""
    images = tmp_path / "x.npy"
    with np.load(DATA) as data:
        np.save(images, data["input"])
        np.save(tmp_path / "labels.npy", data["labels"])
    (tmp_path / "spoils.py").write_text(
        "import numpy as np\n"
        "def m(outputs, labels):\n"
        f"    values = np.load({str(images)!r}, mmap_mode='r+')\n"
        "    values[-1, 0, 0, 0] += 0.25\n"
        "    return 1.0\n"
    )
    asked = ["tune", "-i", str(spread), "--data", str(images), "--labels", str(tmp_path / "labels.npy"), *SHAPES]
    asked += ["--calibrate", str(DATA), "--max_drop", "100", "--passes", "1", "-o", str(tmp_path / "t")]
    assert main([*asked, "--metric", f"{tmp_path / 'spoils.py'}:m"]) == 1
    assert "changed while it was read" in capsys.readouterr().err
    assert not (tmp_path / "t" / "spread_tune.json").exists()


def test_a_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    first = Journal(path, {"data": "a", "options": {"x": 1}})
    histogram = Histogram()
    histogram.add(np.linspace(-1, 3, 24, dtype=np.float32).reshape(2, 3, 4))
    first["kept"] = [{"a": histogram}, (np.float32(0.1), math.inf, None), Entry(Candidate("t", ("t",), ()), 0.5)]
    first.close()
    again = Journal(path, {"data": "a", "options": {"x": 1}})
    row, scalars, entry = again["kept"]
    assert list(again) == ["kept"] and row["a"].digest == histogram.digest and not again.note
    assert scalars == (np.float32(0.1), math.inf, None) and isinstance(scalars[0], np.float32)
    assert entry == Entry(Candidate("t", ("t",), ()), 0.5) and (row["a"].channels == histogram.channels).all()
    again.close()
    with pytest.raises(UserError, match="data differ"):
        Journal(path, {"data": "b", "options": {"x": 1}})
    (tmp_path / "none.sqlite").write_bytes(b"this is no database, and long enough to be taken for one" * 100)
    with pytest.raises(UserError, match="cannot be used"):
        Journal(tmp_path / "none.sqlite", {})


class _Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_in_place_of_the_journal_or_in_it_is_never_executed(tmp_path: Path) -> None:
    path, sprung = tmp_path / "j.sqlite", tmp_path / "sprung"
    trap = pickle.dumps(_Trap(sprung))
    Journal(path, {"version": "1"}).close()
    hostile = [trap, b'{"_Trap": [["path", "x"]]}', b'{"array": ["O", [1], "gASVAAAAAAAAAAA="]}', b"[" * 100_000]
    hostile.append(b'{"a": 1, "b": 2}')
    with contextlib.closing(sqlite3.connect(str(path))) as file, file:
        file.executemany("INSERT INTO kept VALUES (?, ?)", [(f"measured {i}", row) for i, row in enumerate(hostile)])
    with contextlib.closing(Journal(path, {"version": "1"})) as journal:
        assert len(journal) == len(hostile) and [journal.get(key) for key in journal] == [None] * len(hostile)
    path.write_bytes(trap)
    with pytest.raises(UserError, match="cannot be used"):
        Journal(path, {"version": "1"})
    assert not sprung.exists() and pickle.loads(trap) is None and sprung.exists()


def test_a_journal_of_another_version_begins_anew_with_a_sentence(
    spread: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spread_tune.sqlite"
    with contextlib.closing(Journal(path, {"version": "0.0.1", "data": "of any kind"})) as journal:
        journal["measured x"] = 1.0
    tuned(spread, tmp_path, "--passes", "1", drop="100")
    assert "spread_tune.sqlite was the journal of another version" in capsys.readouterr().err
    assert len(_rows(path)) == 1 and "measured x" not in _rows(path)
    tuned(spread, tmp_path, "--passes", "1", drop="100")
    assert "journal" not in capsys.readouterr().err


def test_two_searches_into_one_folder_at_once_are_refused(
    spread: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process holds the folder; killed, it holds nothing any more."""
    journal = tmp_path / "spread_tune.sqlite"
    code = "import sys, time; from pathlib import Path; from qdq_translator.core.switch import alone\n"
    code += "with alone(Path(sys.argv[1])):\n    print(flush=True)\n    time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(journal)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        asked = ["tune", "-i", str(spread), "--data", str(DATA), "--calibrate", str(DATA), "--max_drop", "100", *SHAPES]
        asked += ["--passes", "1", "-o", str(tmp_path)]
        try:
            assert main(asked) == 1 and not journal.exists()
            assert "Another run writes" in capsys.readouterr().err
            with alone(tmp_path / "other_tune.sqlite"), appear_together(tmp_path):
                pass  # neither another model's search nor a translation has to wait, nor takes the lock away
            assert main(asked) == 1
        finally:
            process.kill()
    assert main(asked) == 0 and journal.exists() and not list(tmp_path.glob(".qdq_unfinished-*"))


# -------------------------------------------------------------------- points


def test_flags_say_the_options_again() -> None:
    from qdq_translator.commands.translate import Options
    from qdq_translator.core.parsing import make_parser

    given = TranslateOptions(calibrate="data.npz", calibrate_method="mse,Add:max", image_mean=[0.5, 0.25, 0.125])
    given = given.changed(target="orin-dla", infer_bounds=True, keep_fp16=["conv 1", "b"], max_bits_lost=0.0)
    given = given.changed(dla_rewrites=True, shapes=["x:1x3x8x8"])
    words = Point().words(given)
    read = make_parser(Options, "x").parse_args(["model.onnx", *words])
    assert Point().words(TranslateOptions()) == ["--as_is"]  # the command has a preset unless this is typed
    for name in {field.name for field in dataclasses.fields(TranslateOptions)} - {"typed", "as_is"}:
        assert getattr(read, name) == getattr(given, name), name


def test_a_point_is_the_same_without_what_changes_nothing() -> None:
    base = TranslateOptions(infer_bounds=True)
    changes = {"infer_bounds": True, "infer_concat_scales": False, "recalibrate": (), "calibrate_method": "max"}
    assert Point.of(changes, ["l"]).plain(base) == Point((("calibrate_method", "max"),), ("l",))
    assert Point.of({"b": 1, "a": 2}, ["y", "x", "y"]) == Point((("a", 2), ("b", 1)), ("x", "y"))
    assert Point.of({"unify_scales": "requantize", "calibrate_method": "max"}, ["l"]).layers == Point(
        (("unify_scales", "requantize"),)
    )


@pytest.mark.parametrize(("options", "is_float", "first", "others"), [
    ({"calibrate": "x", "calibrate_method": "max"}, True, "calibrate_method", {"equalize"}),
    ({"calibrate": "x"}, True, "equalize", {"calibrate_method"}),
    ({"calibrate": "x"}, False, "recalibrate", {"calibrate_method", "infer_mul_scales"}),
    ({}, False, "infer_bounds", {"infer_average_pool_scales"}),
    ({"target": "orin-dla", "calibrate": "x"}, True, "dla_rewrites", {"calibrate_method", "unify_scales"}),
])  # fmt: skip
def test_proposals_are_what_may_gain(options: dict[str, Any], is_float: bool, first: str, others: set[str]) -> None:
    rows = proposals(TranslateOptions(**options), is_float)
    names = [name for row in rows for name in row.changes]
    assert names[0] == first and others < set(names)
    assert ("equalize" in names) == is_float and ("unify_scales" in names) == ("target" in options)
    assert [row.passes for row in rows if row.changes == {"calibrate_method": "output"}] == [9.0] * (
        "calibrate" in options
    )


# -------------------------------------------------------------------- measuring


def _identity(width: int, wrong: float = 0.0) -> onnx.ModelProto:
    """Scores as they come, or moved on by one class where the last input is below `wrong`."""
    text = """net (float[1,WIDTH] x) => (float[1,SCORES] y) {
        scores = Slice(x, zero, classes, one) dice = Slice(x, classes, width, one)
        small = Less(dice, wrong) moved = MatMul(scores, shift) y = Where(small, moved, scores) }"""
    text = text.replace("WIDTH", str(width)).replace("SCORES", str(width - 1))
    sizes = {"zero": np.array([0]), "one": np.array([1]), "classes": np.array([width - 1]), "width": np.array([width])}
    shift = np.roll(np.eye(width - 1, dtype=np.float32), 1, axis=1)
    return model(text, **sizes, wrong=np.array([[wrong]], np.float32), shift=shift)


def _meter(folder: Path, samples: int, metric: str = "top1") -> Meter:
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, samples)
    x = np.concatenate([np.eye(4)[labels], random.random((samples, 1))], axis=1).astype(np.float32)
    np.savez(folder / "x.npz", x=x, labels=labels)
    spec = InputSpec("x", (1, 5), np.dtype(np.float32))
    meter = Meter(metric_of(metric), load_samples(folder / "x.npz", [spec], None), HERE)
    meter.set_reference(_identity(5), CodedEnds({}, {}))
    return meter


def test_a_hopeless_point_is_given_up_and_a_good_one_never_extrapolated(tmp_path: Path) -> None:
    meter = _meter(tmp_path, 800)
    hopeless = meter.measure(_identity(5, 0.5), 1.0)
    assert (not hopeless.complete and hopeless.samples == 800 // 25 // 8 * 25 + 25) or hopeless.samples < 200
    assert hopeless.interval is not None and hopeless.interval[0] > 1 and 30 < hopeless.drop < 70
    good = meter.measure(_identity(5, 0.01), 5.0)
    with np.load(tmp_path / "x.npz") as data:
        wrong = int((data["x"][:, 4] < np.float32(0.01)).sum())
    assert good.complete and good.samples == 800 and good.drop == pytest.approx(100 * wrong / 800, abs=1e-12)
    all_of_it = meter.measure(_identity(5, 0.5), float("inf"))
    assert all_of_it.complete and all_of_it.samples == 800


def test_a_metric_of_the_users_is_bootstrapped_or_measured_whole(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def mean(outputs, labels):\n    return float(outputs['y'][0].argmax() == labels[0])\n"
        "class Whole:\n    def __init__(self):\n        self.values = []\n"
        "    def add(self, outputs, labels):\n        self.values.append(mean(outputs, labels))\n"
        "    def result(self):\n        return sum(self.values) / len(self.values)\n"
    )
    function = _meter(tmp_path, 400, f"{tmp_path / 'mine.py'}:mean").measure(_identity(5, 0.5), 0.01)
    assert not function.complete and function.interval is not None and function.interval[0] > 0.01
    whole = _meter(tmp_path, 400, f"{tmp_path / 'mine.py'}:Whole").measure(_identity(5, 0.5), 0.01)
    assert whole.complete and whole.interval is None and 0.4 < whole.drop < 0.6


def test_intervals_hold_as_often_as_they_say() -> None:
    """2,000 draws of 300 pairs with a drop of 2 percent: the interval holds it in 99% of them or more."""
    random = np.random.default_rng(1)
    held = held_bootstrap = 0
    for draw in range(2000):
        worse, better, _ = random.multinomial(300, [0.05, 0.03, 0.92])
        low, high = paired_interval(int(worse), int(better), 300)
        held += low <= 2.0 <= high
        if draw < 100:
            pairs = np.r_[np.full(worse, 100.0), np.full(better, -100.0), np.zeros(300 - worse - better)]
            low, high = bootstrap_interval(pairs)
            held_bootstrap += low <= 2.0 <= high
    assert held >= 1980 and held_bootstrap >= 95


def test_top1_takes_scores_and_classes() -> None:
    labels = np.array([1, 0, 2])
    scores = np.eye(3, dtype=np.float32)[[1, 0, 0]]
    assert top1({"y": scores}, labels) == top1({"y": np.array([1, 0, 0])}, labels) == pytest.approx(200 / 3)
    with pytest.raises(UserError, match="one class"):
        top1({"y": scores}, None)
    with pytest.raises(UserError, match="No output"):
        top1({"y": np.zeros((3, 8, 8, 2), np.float32)}, labels)


def test_map_of_cases_that_are_known() -> None:
    others = np.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [5, 5, 6, 6]])
    assert overlap(np.array([0.0, 0, 2, 2]), others).tolist() == [1 / 7, 1, 0]
    labels = np.array([[[0, 0, 0, 10, 10], [1, 20, 20, 30, 30]], [[0, 5, 5, 15, 15], [-1, 0, 0, 0, 0]]], np.float32)

    def score(*rows: tuple[int, list[float]]) -> float:
        found = np.zeros((2, 4, 6), np.float32)
        found[:, :, 5] = -1
        for place, (image, row) in enumerate(rows):
            found[image, place] = row
        metric = MeanAveragePrecision()
        metric.add({"y": found[:1]}, labels[:1])
        metric.add({"y": found[1:]}, labels[1:])
        return metric.result()

    right = [(0, [0, 0, 10, 10, 0.9, 0]), (0, [20, 20, 30, 30, 0.8, 1]), (1, [5, 5, 15, 15, 0.7, 0])]
    assert score(*right) == pytest.approx(100)  # type: ignore[arg-type]
    half = 100 * 51 / 101  # one of two objects found: 51 of the recalls 0, 0.01 ... 1 are at most 1/2
    assert score(*right[:2]) == pytest.approx((100 + half) / 2)  # type: ignore[arg-type]
    # a false one before the true ones of class 0: precision 2/3 at full recall, and 1/2 made monotone, 2/3, below
    assert score((1, [50, 50, 60, 60, 0.95, 0]), *right) == pytest.approx(100 * (2 / 3 + 1) / 2)  # type: ignore[arg-type]
    # IoU 0.68: right for the limits 0.5, 0.55, 0.6, 0.65
    moved = (1, [5.0, 5.0, 15.0, 11.8, 0.7, 0])
    assert score(*right[:2], moved) == pytest.approx((0.4 * 100 + 0.6 * half + 100) / 2)  # type: ignore[arg-type]


def test_a_full_disk_is_a_sentence_and_the_search_goes_on_from_there(tmp_path: Path) -> None:
    about = {"version": "1", "model": "m"}
    journal = Journal(tmp_path / "j.sqlite", about)
    journal["first"] = [1.5]
    journal._file.execute("PRAGMA max_page_count = 8")
    with pytest.raises(UserError, match=r"cannot be written: .*full.*repeat the command: it continues"):
        for number in range(100):
            journal[f"value {number}"] = "x" * 2000
    journal.close()
    again = Journal(tmp_path / "j.sqlite", about)
    assert again["first"] == [1.5] and 1 < len(again) < 100
    again["last"] = 2.5
    assert again["last"] == 2.5
    again.close()
    os.mkfifo(tmp_path / "fifo.sqlite")
    with pytest.raises(UserError, match="not a regular file"):
        Journal(tmp_path / "fifo.sqlite", about)
