"""Fitting the parameters of the cost model: least squares in the logarithm of time, without any package but NumPy."""

from __future__ import annotations

import dataclasses
from typing import Callable, Sequence

import numpy as np

from qdq_translator.targets.cost.model import Parameters

_STEPS = 40
_DIFFERENCE = 1e-4


def fit(
    predict: Callable[[Parameters], Sequence[float]],
    measured: Sequence[float],
    weights: Sequence[float],
    start: Parameters,
    names: Sequence[str],
    stay: float = 1e-6,
) -> Parameters:
    """`start` with the parameters `names` changed so that `predict` comes closest to `measured` (the same unit, all above 0).

    Minimises sum(weight * log(predicted / measured)^2) + stay * sum(log(parameter / start)^2): what the measurements say
    nothing about stays where it is. Levenberg-Marquardt on the logarithms of the parameters; deterministic.
    """
    target = np.log(np.asarray(measured, float))
    root = np.sqrt(np.asarray(weights, float))

    def at(x: np.ndarray) -> Parameters:
        values = {name: getattr(start, name) * float(np.exp(v)) for name, v in zip(names, x)}
        return dataclasses.replace(start, **values)

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([root * (np.log(np.asarray(predict(at(x)), float)) - target), np.sqrt(stay) * x])

    x = np.zeros(len(names))
    damping, best = 1e-2, residuals(x)
    for _ in range(_STEPS):
        jacobian = np.stack([(residuals(x + _DIFFERENCE * e) - best) / _DIFFERENCE for e in np.eye(len(names))], 1)
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -jacobian.T @ best)
        trial = residuals(x + np.clip(step, -1, 1))
        if trial @ trial < best @ best:
            x, best, damping = x + np.clip(step, -1, 1), trial, damping / 3
        else:
            damping *= 4
        if damping > 1e8 or np.abs(step).max() < 1e-7:
            break
    return at(x)
