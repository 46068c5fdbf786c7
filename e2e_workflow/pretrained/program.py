"""Every call of qdq-translator in this workflow, on its public interface: commands with their time and memory, and `verify`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np

from .task import Feeds

TARGETS = {"GPU": ["--preset", "gpu"], "DLA": ["--preset", "dla"]}
PLATFORM = ["--platform", "jetpack-6.2"]


class Failed(Exception):
    """A command's exit status was not 0; the text is what it said."""


@dataclass(frozen=True)
class Made:
    """A translation: its folder, and what the command took."""

    folder: Path
    seconds: float
    megabytes: float | None

    def report(self) -> dict[str, Any]:
        """The machine-readable report."""
        return json.loads(next(self.folder.glob("*_report.json")).read_text(encoding="utf-8"))

    @property
    def network(self) -> Path:
        """The float network."""
        return next(self.folder.glob("*_noqdq.onnx"))

    @property
    def scales_file(self) -> Path:
        """The calibration cache."""
        return next(self.folder.glob("*_calib.cache"))

    @property
    def above(self) -> set[str]:
        """Names of the layers that compute above INT8, by the plan in the report."""
        return {layer["name"] for layer in self.report()["plan"] if layer["precision"] not in ("int8", "none")}


def translate(model: Path, target: str, folder: Path, calibration: Path | None = None, *more: str) -> Made:
    """The command `translate`. Raises Failed."""
    data = ["--calibrate", str(calibration)] if calibration else []
    seconds, megabytes = _run(
        "translate", "-i", str(model), *TARGETS[target], *PLATFORM, *data, *more, "-o", str(folder)
    )
    return Made(folder, seconds, megabytes)


def explicit(model: Path, folder: Path, calibration: Path | None = None, *more: str) -> tuple[Path, float, float]:
    """The command `explicit`: the Q/DQ network, seconds and MB. Raises Failed."""
    data = ["--calibrate", str(calibration)] if calibration else []
    took = _run("explicit", "-i", str(model), *data, *more, "-o", str(folder))
    return (next(folder.glob("*.onnx")), *took)


def metric_of(score: Callable[[Mapping[str, np.ndarray], int], float]) -> Any:
    """A metric for `verify` and `deploy` whose labels are the numbers of the samples.

    score: (outputs by name, number of the sample) -> its score.
    """

    class Metric:
        def __init__(self) -> None:
            self.scores: list[float] = []

        def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
            self.scores.append(score(outputs, int(labels[0])))

        def result(self) -> float:
            return float(np.mean(self.scores))

    return Metric


def deploy(
    model: Path,
    target: str,
    folder: Path,
    feeds: Feeds,
    score: Callable[[Mapping[str, np.ndarray], int], float] | None,
    verify: bool = False,
) -> Made:
    """The function `deploy`: a search until INT8 costs at most one point of the score, or without one, of the agreement
    with the float network. MB are not measured: it runs in this process. verify: on the same samples. Raises Failed."""
    import qdq_translator as qt

    judged: dict[str, Any] = {}
    if score is not None:
        count = len(next(iter(feeds.values())))
        judged = {"metric": metric_of(score), "labels": np.arange(count), "max_drop": 1.0}
    start = time.perf_counter()
    try:
        qt.deploy(
            str(model),
            dict(feeds),
            board="agx-orin@jetpack-6.2",
            on=target.lower(),
            skip=[] if verify else ["verify"],
            output_dir=str(folder),
            **judged,
        )
    except qt.UserError as error:
        raise Failed(str(error)) from error
    return Made(folder, time.perf_counter() - start, None)


def simulated(
    model: Path, made: Made, feeds: Feeds, score: Callable[[Mapping[str, np.ndarray], int], float]
) -> tuple[list[float], str]:
    """`verify`: the scores of the simulated engine, one a sample, and the verdict.

    score: (outputs by name, number of the sample) -> its score. Raises Failed.
    """
    import qdq_translator as qt

    stages: list[Any] = []

    class Kept(metric_of(score)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            stages.append(self)

    count = len(next(iter(feeds.values())))
    try:
        found = qt.verify(
            str(model),
            made.folder,
            data=dict(feeds),
            labels=np.arange(count),
            metric=Kept,
            fuse="on",
            hypotheses="plan",
        )
    except qt.UserError as error:
        raise Failed(str(error)) from error
    wanted = found.metric["simulated"]
    return next(s.scores for s in stages if s.scores and s.result() == wanted), found.verdict


_WATCH = """
import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(status >> 8 or status)
"""
"""A small process between this one and a command: a child's peak begins at the memory of the process that starts it."""


def _run(*words: str) -> tuple[float, float]:
    """Wall seconds and the largest resident memory in MB of one command. Raises Failed with what it said."""
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        command = [sys.executable, "-c", _WATCH, sys.executable, "-m", "qdq_translator", *words]
        done = subprocess.run(command, stdout=said, stderr=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - start
        lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode:
        raise Failed(f"{words[0]}, exit status {done.returncode}: {' '.join(lines[-3:-1])}")
    return seconds, int(lines[-1]) / 1024
