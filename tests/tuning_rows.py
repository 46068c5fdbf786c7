"""Results of `tune` without a search."""

from __future__ import annotations

from typing import Any, Sequence

from qdq_translator.core.formats.report_rows import Source
from qdq_translator.core.formats.tune_rows import Data, Goal, Metric, Tuned, Tuning


def tuned(points: Sequence[Tuned], front: Sequence[Tuned], **changes: Any) -> Tuning:
    """The first point is the best; the model as given scores 0.95, and 0.1 may be lost."""
    rows: dict[str, Any] = {
        "schema_version": 1,
        "kind": "qdq-translator tuning",
        "generator": "",
        "data": Data("x.npz", 8, "", ()),
        "metric": Metric("module:psnr", 0.95),
        "early_stopping": "",
        "evaluations": len(points),
        "best": points[0],
        "front": tuple(front),
        "points": tuple(points),
        "cures": (),
        "passes": 3.0,
        "limit": 40,
        "interrupted": False,
        "model": Source("net.onnx", ""),
        "goal": Goal(0.1, None, True),
        "sensitivity": (),
        "command": "qdq-translator translate net.onnx",
        "seconds": 1.0,
    }
    return Tuning(**{**rows, **changes})
