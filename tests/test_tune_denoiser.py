"""`tune` on a trained network that INT8 hurts: what it rounds is noise, and the stored denoiser is there to take noise out. Only FP16
sets keep its decibels."""

from __future__ import annotations

import copy
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft7Validator, ValidationError

from e2e_workflow.denoiser import images
from qdq_translator import TranslateOptions, translate
from qdq_translator.api.results import Verification
from qdq_translator.cli import main
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import read
from qdq_translator.core.formats.schemas import tuning_schema
from qdq_translator.core.formats.verify_rows import Cure
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session
from qdq_translator.lab.tune.bench import cost_of
from qdq_translator.lab.tune.points import Point

pytest.importorskip("onnxruntime")
MODEL = Path(images.__file__).with_name("denoiser_float.onnx")
MAX_DROP = 0.5
"""dB."""
TARGET = ["--target", "orin-dla", "--platform", "jetpack-6.2", "--shapes", "input:1x3x32x32"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    noisy, clean = images.pairs(60, images.VALIDATION)
    np.savez(folder / "seen.npz", input=noisy, labels=clean)
    np.savez(folder / "calibration.npz", input=images.pairs(12, images.TRAINING)[0])
    return folder


def tuned(pictures: Path, folder: Path, *goal: str) -> dict[str, Any]:
    asked = ["tune", "-i", str(MODEL), "--data", str(pictures / "seen.npz"), "--metric", f"{images.__name__}:psnr"]
    asked += ["--calibrate", str(pictures / "calibration.npz"), *TARGET, *goal, "--passes", "24"]
    assert main([*asked, "-o", str(folder)]) == 0
    found: dict[str, Any] = json.loads((folder / "denoiser_float_tune.json").read_text())
    return found


@pytest.fixture(scope="module")
def outcome(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tuned")
    return folder, tuned(pictures, folder, "--max_drop", str(MAX_DROP))


def test_the_pictures_are_the_same_but_for_their_noise() -> None:
    noisy, clean = images.pairs(20, images.TEST)
    inside = np.abs(clean) < 0.6
    assert float((noisy - clean)[inside].std()) == pytest.approx(0.08, rel=0.02)
    assert images.psnr({"y": clean + np.float32(0.02)}, clean) == pytest.approx(40, abs=1e-3)
    again, _ = images.pairs(4, images.TEST)
    assert np.array_equal(again, noisy[:4]) and not np.array_equal(again, images.pairs(4, images.VALIDATION)[0])


def test_calibration_alone_does_not_hold_and_an_fp16_set_does(
    pictures: Path, outcome: tuple[Path, dict[str, Any]]
) -> None:
    """Scored anew from the files that were written."""
    folder, found = outcome
    plain = [row["measured"]["drop"] for row in found["points"] if not row["kept_fp16"]]
    best = found["best"]
    assert len(plain) >= 2 and min(plain) > MAX_DROP
    assert found["goal"]["holds"] and best["kept_fp16"] and best["measured"]["drop"] <= MAX_DROP
    network = ImplicitNetwork.read(TranslationFiles.locate(str(folder)))
    options = SimulationOptions(fp16=True, sigmoid_fp16=True)
    session = Session(simulate(network, options).model, "simulated", one_thread=True)
    with np.load(pictures / "seen.npz") as data:
        values = [
            images.psnr(session.run({"input": noisy[None]}), clean[None])
            for noisy, clean in zip(data["input"], data["labels"])
        ]
    assert best["measured"]["score"] == pytest.approx(np.mean(values), abs=1e-9)


def test_the_set_costs_no_more_than_those_that_people_choose(
    pictures: Path, outcome: tuple[Path, dict[str, Any]]
) -> None:
    """Everything in FP16; the first and the last Conv, which costs more and does not even hold; the loudest tensors, as many as
    the set of `tune` has."""
    _, found = outcome
    best = found["best"]["cost"]["milliseconds"]
    base = TranslateOptions(
        target="orin-dla",
        platform="jetpack-6.2",
        shapes=["input:1x3x32x32"],
        calibrate=str(pictures / "calibration.npz"),
    )
    ranking = found["sensitivity"][0]
    changes = {name: value for name, value in ranking["changes"].items() if name != "calibrate_method"}  # costs no time
    plan = translate(MODEL, Point.of(changes).options(base)).plan
    convs = [layer.name for layer in plan if layer.op == "Conv"]
    loudest = [row for row in ranking["account"]["entries"] if row["layers"]][: len(found["best"]["kept_fp16"])]
    for kept in (
        [layer.name for layer in plan if layer.precision != "none"],
        [convs[0], convs[-1]],
        [layer for row in loudest for layer in row["layers"]],
    ):
        cost = cost_of(translate(MODEL, Point.of(changes, kept).options(base)))
        assert cost.milliseconds is not None and best <= cost.milliseconds


def test_verify_prices_cures_and_prints_their_command(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last of them is enough for the drop, and costs what the estimate of the translation with it says."""
    calibrated = ["--calibrate", str(pictures / "calibration.npz"), *TARGET]
    asked = [str(MODEL), str(pictures / "seen.npz"), "--metric", f"{images.__name__}:psnr", "--max_drop", "0.8"]
    assert main(["translate", str(MODEL), *calibrated, "-o", str(tmp_path / "t")]) == 0
    assert main(["verify", *asked, "-t", str(tmp_path / "t"), "--save", str(tmp_path / "v.json")]) == 1
    said, found = capsys.readouterr().out, json.loads((tmp_path / "v.json").read_text())
    *fewer, last = found["verdict"]["cures"]
    assert fewer and all(row["gain"] < last["gain"] and row["milliseconds"] < last["milliseconds"] for row in fewer)
    assert (
        f"Cure: {len(last['layers'])} layers in FP16: metric {last['gain']:+.3g}, {last['milliseconds']:+.2g} ms"
        in said
    )
    assert f"cure: {read(Cure, last).words}" in Verification(found).lines()
    assert "Reason: " in said and "more lines" not in said and len(said.splitlines()) < 40
    assert last["command"] in said and last["unit"] == "metric" and last["int8_macs"] < 1
    plain = TranslateOptions(calibrate=str(pictures / "calibration.npz"), target="orin-dla", platform="jetpack-6.2")
    plain = plain.changed(shapes=["input:1x3x32x32"])
    times = [cost_of(translate(MODEL, plain.changed(keep_fp16=kept))).milliseconds for kept in ([], last["layers"])]
    assert times[1] - times[0] == pytest.approx(last["milliseconds"], rel=0.2)  # type: ignore[operator]
    again = [*shlex.split(last["command"])[1:], "-o", str(tmp_path / "again")]
    assert main(again) == 0 and main(["verify", *asked, "-t", str(tmp_path / "again"), "--allow_suspicious"]) == 0


def test_the_account_is_among_the_results(outcome: tuple[Path, dict[str, Any]]) -> None:
    found = copy.deepcopy(outcome[1])
    ranking = found["sensitivity"][0]
    shares = [entry["share"] for entry in ranking["account"]["entries"]]
    assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True)
    Draft7Validator(tuning_schema()).validate(found)
    del ranking["account"]["entries"][0]["share"]
    with pytest.raises(ValidationError, match="'share' is a required property"):
        Draft7Validator(tuning_schema()).validate(found)


def test_a_budget_of_milliseconds_buys_decibels(
    pictures: Path, outcome: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    _, found = outcome
    budget = 1.1 * found["best"]["cost"]["milliseconds"]
    best = tuned(pictures, tmp_path, "--budget_ms", str(budget))["best"]
    assert best["cost"]["milliseconds"] <= budget and best["measured"]["complete"]
    assert best["measured"]["drop"] < found["best"]["measured"]["drop"]
