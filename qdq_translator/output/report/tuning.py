"""The results of `tune`, for a page and a terminal: every point by its cost and its score, and the Pareto front."""

from __future__ import annotations

from typing import Any, Optional

from qdq_translator.core.words import milliseconds


def tuning(results: dict[str, Any]) -> dict[str, Any]:
    """What the page draws; {} if nothing was measured. results: the object of NAME_tune.json. front: place on the Pareto front, from 1; 0
    beside it. kind: 'best', 'front', 'whole' (measured on everything) or 'part' (given up early). least: the score that was allowed."""
    points, front = results["points"], results["front"]
    timed = all(point["cost"]["milliseconds"] is not None for point in points)
    drawn = []
    for point in points:
        cost = float(point["cost"]["milliseconds"] if timed else 100 * (1 - point["cost"]["int8_macs"]))
        measured, place = point["measured"], front.index(point) + 1 if point in front else 0
        kind = "best" if point == results["best"] else "front" if place else "whole"
        words = milliseconds(cost) if timed else f"{cost:.1f}% of MACs above INT8"
        words += f", {measured['score']:.6g} on {measured['samples']} samples: {changed(point)}"
        drawn.append({"cost": cost, "score": float(measured["score"]), "front": place, "title": words})
        drawn[-1]["kind"] = kind if measured["complete"] else "part"
    reference, drop = float(results["metric"]["reference"]), results["goal"]["max_drop"]
    least = None if drop is None else reference - drop
    axis = "estimated ms" if timed else "% of MACs above INT8"
    return {"points": drawn, "reference": reference, "least": least, "axis": axis} if drawn else {}


def table(front: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of each point: estimated milliseconds, GPU layers, MACs in INT8, score, drop, difference from the point
    before it (for the first, from the given options)."""
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
    """Difference between two points, in words."""
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
    """Difference between a point and the given options, in words."""
    words = [_option(name, value) for name, value in point["changes"].items()]
    kept = len(point["kept_fp16"])
    if kept:
        words.append(f"{kept} layer{'s' if kept > 1 else ''} in FP16")
    return ", ".join(words) or "nothing"
