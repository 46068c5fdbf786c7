"""`tune` on a trained network that INT8 visibly hurts: the stored glyph network, calibrated by minimum and maximum on images of
which a few hold hot pixels, with the 368 glyphs that are stored beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e_workflow.glyphs import sensitive
from qdq_translator.cli import main
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session

pytest.importorskip("onnxruntime")
HEAT = 80
"""As in e2e_workflow/tuning."""
MAX_DROP = 1.0
"""Points: of 240 images, two."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    data = sensitive.few()
    _, seen = sensitive.parts(data, smoke=True)
    np.savez(folder / "seen.npz", input=seen.images, labels=seen.labels)
    np.savez(folder / "calibration.npz", input=sensitive.calibration_images(data, HEAT))
    return folder


def tuned(images: Path, folder: Path) -> dict[str, Any]:
    asked = ["tune", "-i", str(sensitive.FLOAT_MODEL), "--data", str(images / "seen.npz")]
    asked += ["--calibrate", str(images / "calibration.npz"), "--calibrate_method", "max", "--max_drop", str(MAX_DROP)]
    asked += ["--target", "orin-dla", "--platform", "jetpack-6.2", "--shapes", "input:1x1x32x32", "--passes", "24"]
    assert main([*asked, "-o", str(folder)]) == 0
    found: dict[str, Any] = json.loads((folder / "glyphs_float_tune.json").read_text())
    return found


@pytest.fixture(scope="module")
def outcome(images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tuned")
    return folder, tuned(images, folder)


def test_the_network_loses_visibly_and_the_search_ends_within_the_drop(
    images: Path, outcome: tuple[Path, dict[str, Any]]
) -> None:
    """Scored anew from the files that were written, one image after the other."""
    folder, found = outcome
    given = next(row for row in found["points"] if not row["changes"])
    assert given["measured"]["drop"] > 10
    best = found["best"]
    assert found["goal"]["holds"] and best["measured"]["complete"] and best["measured"]["drop"] <= MAX_DROP
    assert best["cost"]["int8_macs"] >= 0.9
    network = ImplicitNetwork.read(TranslationFiles.locate(str(folder)))
    options = SimulationOptions(fp16=True, sigmoid_fp16=True)
    session = Session(simulate(network, options).model, "simulated", one_thread=True)
    with np.load(images / "seen.npz") as data:
        right = [
            int(session.run({"input": image[None]})[session.outputs[0]].argmax()) == label
            for image, label in zip(data["input"], data["labels"])
        ]
    assert best["measured"]["score"] == pytest.approx(100 * np.mean(right), abs=1e-9)
