"""Check if inputs resemble those that a network was calibrated or trained with.

Two references, if they exist: the means of each input channel that `--calibrate` recorded, and the running means of the
BatchNormalizations of a Q/DQ model, which are those of the training data at these places.
"""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.run import ExplicitNetwork, Session
from qdq_translator.translation.ir.constants import Constants

INPUTS = "inputs"
"""Key of the calibration's message (rule K1) that holds `channel_means`."""
MOST_RUNS = 64
STANDARD_ERRORS = 5.0
LEAST_SHIFT = 0.05
"""Of a channel's mean, in standard deviations of its values: less is no finding, however many samples show it."""
LEAST_DRIFT = 0.25
"""Of the running means, in running standard deviations: root mean square over the channels, median over the layers."""


def channel_means(samples: Samples) -> dict[str, dict[str, Any]]:
    """Input -> `mean` and `between` (standard deviation between samples) of each channel's mean over a sample, `within`
    (standard deviation of the values), `samples`. On at most MOST_RUNS runs; inputs of less than two dimensions have
    one channel."""
    rows: dict[str, list[np.ndarray]] = {}
    squares: dict[str, list[float]] = {}
    for feed in samples.some(MOST_RUNS):
        for name, values in feed.items():
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                continue
            held = values.astype(np.float64).reshape(values.shape[0], values.shape[1] if values.ndim > 2 else 1, -1)
            rows.setdefault(name, []).append(held.mean(axis=2))
            squares.setdefault(name, []).append(float(np.square(held).mean()))
    found = {}
    for name, parts in rows.items():
        means = np.concatenate(parts)
        within = np.sqrt(max(float(np.mean(squares[name])) - float(means.mean()) ** 2, 0.0))
        between = means.std(axis=0).tolist()
        found[name] = {"mean": means.mean(axis=0).tolist(), "between": between, "within": within, "samples": len(means)}
    return found


def unlike_calibration(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """A sentence about the input whose channel means differ by more than chance, else ''. now, then: of
    `channel_means`.
    """
    for name in [name for name in now if name in then]:
        a, b = now[name], then[name]
        if len(a["mean"]) != len(b["mean"]):
            continue
        shift = np.abs(np.subtract(a["mean"], b["mean"]))
        error = np.sqrt(np.square(a["between"]) / a["samples"] + np.square(b["between"]) / b["samples"])
        beyond = np.flatnonzero((shift > STANDARD_ERRORS * error) & (shift > LEAST_SHIFT * (b["within"] or 1e-30)))
        if len(beyond):
            channel = int(beyond[np.argmax(shift[beyond])])
            return (
                f"channel {channel} of input '{name}' has the mean {a['mean'][channel]:.4g} here and "
                f"{b['mean'][channel]:.4g} in the calibration data"
            )
    return ""


def unlike_training(explicit: ExplicitNetwork, samples: Samples) -> str:
    """A sentence if most BatchNormalizations of the model read other means than those that they hold, else ''."""
    constants = Constants(explicit.graph)
    held: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for node in explicit.graph.of("BatchNormalization"):
        mean, variance = (constants.value(name) for name in node.inputs[3:5])
        if mean is not None and variance is not None and not constants.is_constant(node.inputs[0]):
            held[node.inputs[0]] = mean.astype(np.float64), np.sqrt(variance.astype(np.float64) + 1e-5)
    if not held:
        return ""
    session = Session(explicit.model, "explicit", list(held))
    sums: dict[str, np.ndarray] = {}
    runs = samples.some(MOST_RUNS)
    for feed in runs:
        for name, values in session.run(explicit.ends.feed(feed)).items():
            axes = tuple(axis for axis in range(values.ndim) if axis != 1)
            sums[name] = sums.get(name, 0) + values.astype(np.float64).mean(axis=axes)
    shifts = [(sums[name] / runs.runs - mean) / spread for name, (mean, spread) in held.items()]
    drifts = [float(np.sqrt(np.mean(np.square(shift)))) for shift in shifts]
    drift = float(np.median(drifts))
    if drift <= LEAST_DRIFT:
        return ""
    return (
        f"the {len(drifts)} BatchNormalizations of the model read means that are {drift:.2f} standard "
        "deviations away from those "
        "of the training data (median)"
    )
