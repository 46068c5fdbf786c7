"""What `tune` found, for a page and for a terminal: every point by its cost and its score, and the Pareto front."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from qdq_translator.core.words import milliseconds

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 984, 14, 280
_STEPS = 4


@dataclass(frozen=True)
class Dot:
    """A point in pixels. kind: 'best', 'front', 'whole' (measured on everything) or 'part' (given up early)."""

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True)
class Tuning:
    """front: pixels of the Pareto front, as SVG writes a line. rows, columns: places and words of the axes. axis: of what costs.
    least_y: where the score is as low as was allowed, None where it is not on the plot. table: cells of the front's points."""

    dots: list[Dot]
    front: str
    rows: list[tuple[float, str]]
    columns: list[tuple[float, str]]
    axis: str
    least_y: Optional[float]
    table: list[list[str]]


def tuning(results: dict[str, Any]) -> Optional[Tuning]:
    """None where nothing was measured. results: the object of NAME_tune.json."""
    points = results["points"]
    if not points:
        return None
    timed = all(point["cost"]["milliseconds"] is not None for point in points)

    def cost(point: dict[str, Any]) -> float:
        found = point["cost"]
        return float(found["milliseconds"] if timed else 100 * (1 - found["int8_macs"]))

    costs, scores = [cost(p) for p in points], [float(p["measured"]["score"]) for p in points]
    reference = float(results["metric"]["reference"])
    low, high = min(*scores, reference), max(*scores, reference)
    left, right = min(costs), max(costs)

    def across(value: float) -> float:
        return round(_LEFT + 10 + (_RIGHT - _LEFT - 20) * (value - left) / (right - left or 1.0), 1)

    def up(value: float) -> float:
        return round(_BOTTOM - 8 - (_BOTTOM - _TOP - 16) * (value - low) / (high - low or 1.0), 1)

    front = results["front"]
    dots = []
    for point, x, score in zip(points, costs, scores):
        kind = "best" if point == results["best"] else "front" if point in front else "whole"
        kind = kind if point["measured"]["complete"] else "part"
        words = f"{_cost_words(x, timed)}, {score:.6g} on {point['measured']['samples']} samples: {changed(point)}"
        dots.append(Dot(across(x), up(score), kind, words))
    drop = results["goal"]["max_drop"]
    least = None if drop is None or reference - drop < low else up(reference - drop)
    steps = [step / _STEPS for step in range(_STEPS + 1)]
    return Tuning(
        dots,
        " ".join(f"{across(cost(p))},{up(p['measured']['score'])}" for p in front),
        [(up(low + (high - low) * step), f"{low + (high - low) * step:.4g}") for step in steps],
        [(across(left + (right - left) * step), f"{left + (right - left) * step:.3g}") for step in steps],
        "estimated ms" if timed else "% of MACs above INT8",
        least,
        table(front),
    )


def _cost_words(value: float, timed: bool) -> str:
    return f"{milliseconds(value)} ms" if timed else f"{value:.1f}% of MACs above INT8"


def table(front: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of each point: estimated milliseconds, GPU layers, MACs in INT8, score, drop, what differs from the point before it (of the
    first, from the options that were given)."""
    return [_cells(point, above) for point, above in zip(front, (None, *front))]


def _cells(point: dict[str, Any], above: Optional[dict[str, Any]]) -> list[str]:
    cost, measured = point["cost"], point["measured"]
    return [
        "" if cost["milliseconds"] is None else f"{cost['milliseconds']:.3f}",
        str(cost["gpu_layers"]),
        f"{100 * cost['int8_macs']:.1f}%",
        f"{measured['score']:.6g}",
        f"{measured['drop']:+.3g}",
        changed(point) if above is None else _difference(point, above),
    ]


def _difference(point: dict[str, Any], above: dict[str, Any]) -> str:
    """In words, what a point does otherwise than another one."""
    words = [_option(*one) for one in point["changes"].items() if above["changes"].get(one[0]) != one[1]]
    words += [f"{name} as given" for name in above["changes"] if name not in point["changes"]]
    more, less = (
        [layer for layer in one["kept_fp16"] if layer not in other["kept_fp16"]]
        for one, other in ((point, above), (above, point))
    )
    for layers, precision in ((more, "FP16"), (less, "INT8")):
        if layers:
            words.append(f"{layers[0]}{f' and {len(layers) - 1} more' if len(layers) > 1 else ''} in {precision}")
    return ", ".join(words) or "nothing"


def _option(name: str, value: Any) -> str:
    shown = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return name if value is True else f"{name} {'off' if value is False or value == [] else shown}"


def changed(point: dict[str, Any]) -> str:
    """In words, what a point does otherwise than the options that were given."""
    words = [_option(name, value) for name, value in point["changes"].items()]
    kept = len(point["kept_fp16"])
    if kept:
        words.append(f"{kept} layer{'s' if kept > 1 else ''} in FP16")
    return ", ".join(words) or "nothing"
