"""Where INT8 costs a network more than a point: the points that the search of `deploy` found, by estimated time and loss."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any, List, Mapping

PICTURE = Path(__file__).resolve().parents[2] / "assets" / "fronts.svg"
MOST_LOST = 1.0
WIDTH, HEIGHT, COLUMNS = 220, 150, 3
"""Of the area of a panel, in pixels; panels in a row."""

Front = List[List[Any]]
"""(estimated ms or None, % of MACs in INT8, points lost), cheapest first: each point costs more than the one before and loses less."""


def searched(folder: Path) -> tuple[Front, float]:
    """The front and the passes over the samples that the search needed, from NAME_tune.json in the bundle; empty and 0
    without it."""
    found = sorted(folder.rglob("*_tune.json"))
    made = json.loads(found[0].read_text(encoding="utf-8")) if found else {"front": [], "passes": 0.0}
    front = [[p["cost"]["milliseconds"], 100 * p["cost"]["int8_macs"], p["measured"]["drop"]] for p in made["front"]]
    return front, made["passes"]


def hard(networks: Mapping[str, Mapping[str, Any]]) -> dict[str, Front]:
    """Title -> front, of networks whose cheapest point loses more than a point of the score. networks: name -> facts."""
    found = {}
    for name, facts in networks.items():
        for target in ("GPU", "DLA"):
            front = facts.get(f"{target} front") or []
            if len(front) > 1 and front[0][2] > MOST_LOST:
                found[f"{name}, {target}, {facts[f'{target} passes']:.0f} passes"] = front
    return found


def table(found: Mapping[str, Front]) -> str:
    """A row a network and target: loss and share of INT8 along the front."""
    rows = ["| network | points lost (estimated ms, MACs in INT8) |", "| --- | --- |"]
    for title, front in found.items():
        cells = [f"{lost:.1f} ({'' if ms is None else f'{ms:.3g} ms, '}{int8:.0f}%)" for ms, int8, lost in front]
        rows.append(f"| {title} | {', '.join(cells)} |")
    return "\n".join(rows)


def read(text: str) -> dict[str, Front]:
    """What `table` wrote."""
    found = {}
    for title, cells in re.findall(r"^\| (\S+, (?:GPU|DLA)(?:, \d+ passes)?) \| (.*) \|$", text, re.MULTILINE):
        points = re.findall(r"(-?[\d.]+) \((?:(\S+) ms, )?(\d+)%\)", cells)
        found[title] = [[float(ms) if ms else None, float(int8), float(lost)] for lost, ms, int8 in points]
    return found


def picture(found: Mapping[str, Front]) -> str:
    """An SVG with a panel for each: points lost, downwards, against the share of MACs above INT8."""
    panels = []
    for index, (title, front) in enumerate(found.items()):
        left, top = 45 + (WIDTH + 60) * (index % COLUMNS), 35 + (HEIGHT + 70) * (index // COLUMNS)
        panels.append(_panel(title, front, left, top))
    rows = -(-len(found) // COLUMNS)
    width, height = 45 + (WIDTH + 60) * min(COLUMNS, len(found)), 35 + (HEIGHT + 70) * rows
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="Points lost '
        f'against the share of MACs above INT8"><style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>'
        f"{''.join(panels)}</svg>\n"
    )


STYLE = (
    "text{font:11px sans-serif;fill:#6b7785;text-anchor:middle}.e{text-anchor:end}.l{text-anchor:start;fill:#1f2933}"
    ".g{stroke:#d5dbe1}.r{stroke:#c0392b;stroke-dasharray:4 3}polyline{fill:none;stroke:#2f8f4e;stroke-width:2}circle{fill:#2f8f4e}"
)


def _panel(title: str, front: Front, left: int, top: int) -> str:
    most = max(MOST_LOST * 2, *(lost for _, _, lost in front))

    def at(above: float, lost: float) -> tuple[float, float]:
        return left + WIDTH * above / 100, top + HEIGHT * max(lost, 0.0) / most

    points = [at(100 - int8, lost) for _, int8, lost in front]
    limit = at(0, MOST_LOST)[1]
    parts = [f'<text class="l" x="{left}" y="{top - 12}">{escape(title)}</text>']
    for lost in (0.0, most / 2, most):
        y = at(0, lost)[1]
        parts.append(f'<path class="g" d="M{left} {y:.0f}h{WIDTH}"/>')
        parts.append(f'<text class="e" x="{left - 5}" y="{y + 4:.0f}">{lost:.3g}</text>')
    for share in (0, 50, 100):
        parts.append(f'<text x="{at(share, 0)[0]:.0f}" y="{top + HEIGHT + 16}">{share}%</text>')
    parts.append(f'<path class="r" d="M{left} {limit:.1f}h{WIDTH}"/>')
    parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
    for (x, y), (ms, _, _) in zip(points, front):
        words = "" if ms is None else f"<title>{ms:.3g} ms, estimated</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4">{words}</circle>')
    return "".join(parts)
