"""Callbacks of a TensorRT build: a logger, the calibrator that serves our cache, a progress bar.

The classes are made per version, because they must derive from the classes of the TensorRT that is loaded.
"""

from __future__ import annotations

import logging
from typing import Any

from qdq_translator.engine.versions import Api


def make_logger(api: Api, echo: bool = False) -> Any:
    """An ILogger that keeps `messages`: (letter E, W, I or V, text), and logs them if `echo` is set."""
    severity = api.trt.ILogger.Severity
    letters = {
        severity.INTERNAL_ERROR: "E",
        severity.ERROR: "E",
        severity.WARNING: "W",
        severity.INFO: "I",
        severity.VERBOSE: "V",
    }

    class Collector(api.trt.ILogger):  # type: ignore[name-defined]
        def __init__(self) -> None:
            api.trt.ILogger.__init__(self)
            self.messages: list[tuple[str, str]] = []

        def log(self, severity: Any, msg: str) -> None:
            letter = letters.get(severity, "I")
            self.messages.append((letter, msg))
            if echo:
                logging.getLogger("qdq_translator").log(logging.INFO, "[%s] [TRT] %s", letter, msg)

    return Collector()


def make_calibrator(api: Api, cache: bytes) -> Any:
    """An IInt8EntropyCalibrator2 (what DLA and trtexec want, fact 1.5) that has nothing but `cache`.

    `asked_for_data` becomes True where TensorRT did not take the cache and wanted to calibrate; it then gets no data.
    """

    class CacheCalibrator(api.trt.IInt8EntropyCalibrator2):  # type: ignore[name-defined]
        def __init__(self) -> None:
            api.trt.IInt8EntropyCalibrator2.__init__(self)
            self.asked_for_data = False

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: Any) -> None:
            self.asked_for_data = True

        def read_calibration_cache(self) -> bytes:
            return cache

        def write_calibration_cache(self, cache: Any) -> None:
            """Nothing: our file stays as it is."""

    return CacheCalibrator()


def make_progress(api: Api, display: Any) -> Any:
    """An IProgressMonitor that draws TensorRT's phases into a `rich.progress.Progress`."""

    class Monitor(api.trt.IProgressMonitor):  # type: ignore[name-defined]
        def __init__(self) -> None:
            api.trt.IProgressMonitor.__init__(self)
            self.tasks: dict[str, Any] = {}

        def phase_start(self, phase_name: str, parent_phase: Any, num_steps: int) -> None:
            self.tasks[phase_name] = display.add_task(phase_name, total=num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            display.update(self.tasks[phase_name], completed=step + 1)
            return True

        def phase_finish(self, phase_name: str) -> None:
            display.remove_task(self.tasks.pop(phase_name))

    return Monitor()
