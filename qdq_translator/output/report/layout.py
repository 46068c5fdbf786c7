"""Where the boxes of a network go: layers from top to bottom, deep networks folded into columns.

The columns make a network of two thousand layers fit a landscape screen. Within a column this is the layered drawing of
Sugiyama, Tagawa and Toda (1981): ranks by longest path, order by barycentres, and positions by least squares under the
distance that neighbours must keep, solved exactly by pooling adjacent violators. All of it is linear in what is drawn, times a fixed
number of sweeps. Lengths are in pixels.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Sequence

BOX_WIDTH, BOX_HEIGHT = 176, 46
ROW = BOX_HEIGHT + 40
"""From one rank to the next: room for a scale between the boxes."""
_LANE, _SIDE_GAP, _COLUMN_GAP, _MARGIN = 12, 24, 84, 60
_ASPECT = 1.6
_SWEEPS = 8


@dataclass(frozen=True)
class Layout:
    """boxes: left upper corner of every node. edges: SVG path data, in the order given. columns: x of every column's
    left side."""

    width: int
    height: int
    boxes: list[tuple[int, int]]
    edges: list[str]
    columns: list[int]


def lay_out(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """count: number of nodes, in topological order; edges: pairs (from, to) with from < to."""
    if not count:
        return Layout(2 * _MARGIN, 2 * _MARGIN, [], [], [])
    ranks = _ranks(count, edges)
    strips = _fold(ranks, edges)
    strip_of_rank = {rank: number for number, strip in enumerate(strips) for rank in strip}
    strip = [strip_of_rank[rank] for rank in ranks]
    members: list[list[int]] = [[] for _ in strips]
    for node in range(count):
        members[strip[node]].append(node)
    inner: list[list[int]] = [[] for _ in strips]
    for number, (a, b) in enumerate(edges):
        if strip[a] == strip[b]:
            inner[strip[a]].append(number)

    boxes: list[tuple[int, int]] = [(0, 0)] * count
    paths = [""] * len(edges)
    columns: list[tuple[int, int]] = []
    left = _MARGIN + _COLUMN_GAP // 2
    for number, nodes in enumerate(members):
        first = strips[number].start
        column = _Column(nodes, [ranks[n] - first for n in nodes], [edges[e] for e in inner[number]])
        shift = left - column.left
        for node, x, rank in zip(nodes, column.x, column.rank):
            boxes[node] = (round(x + shift) - BOX_WIDTH // 2, _MARGIN + rank * ROW)
        for edge, points in zip(inner[number], column.routes):
            paths[edge] = _curve([(round(x + shift), rank) for x, rank in points])
        right = left + math.ceil(column.right - column.left)
        columns.append((left, right))
        left = right + _COLUMN_GAP
    lanes = [0] * (len(strips) + 1)
    for number, (a, b) in enumerate(edges):
        if strip[a] != strip[b]:
            paths[number] = _around(boxes[a], boxes[b], strip[a], strip[b], columns, lanes)
    height = 2 * _MARGIN + max(len(s) for s in strips) * ROW - (ROW - BOX_HEIGHT)
    return Layout(left - _COLUMN_GAP // 2 + _MARGIN, height, boxes, paths, [x for x, _ in columns])


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Longest path from the sources; a source stands right above its first reader."""
    readers: list[list[int]] = [[] for _ in range(count)]
    fed = [False] * count
    for a, b in edges:
        readers[a].append(b)
        fed[b] = True
    ranks = [0] * count
    for node in range(count):
        for reader in readers[node]:
            ranks[reader] = max(ranks[reader], ranks[node] + 1)
    for node in range(count):
        if not fed[node] and readers[node]:
            ranks[node] = min(ranks[r] for r in readers[node]) - 1
    return ranks


def _fold(ranks: list[int], edges: Sequence[tuple[int, int]]) -> list[range]:
    """Ranks in columns, cut where few edges cross."""
    depth = max(ranks) + 1
    per_rank = [0] * depth
    for rank in ranks:
        per_rank[rank] += 1
    crossing = [0] * (depth + 1)  # edges from above rank r to r or below
    for a, b in edges:
        crossing[ranks[a] + 1] += 1
        crossing[ranks[b] + 1] -= 1
    for rank in range(1, depth + 1):
        crossing[rank] += crossing[rank - 1]
    typical = sorted(per_rank)[int(0.9 * (depth - 1))]
    width = typical * (BOX_WIDTH + _SIDE_GAP) + _COLUMN_GAP
    target = max(12.0, math.sqrt(depth * width / (_ASPECT * ROW)))
    target = depth / max(1, round(depth / target))
    strips, start = [], 0
    while depth - start > 1.3 * target:
        cuts = range(start + round(0.8 * target), start + round(1.15 * target) + 1)
        cut = min(cuts, key=lambda r: (crossing[r], abs(r - start - target)))
        strips.append(range(start, cut))
        start = cut
    return [*strips, range(start, depth)]


class _Column:
    """One column: real boxes, and a lane (a dummy) in every rank that an edge passes.

    x: centres of `nodes`. routes: for every edge the centres that it passes, with their ranks.
    """

    def __init__(self, nodes: list[int], ranks: list[int], edges: list[tuple[int, int]]) -> None:
        index = {node: i for i, node in enumerate(nodes)}
        self.rank = list(ranks)
        real = len(nodes)
        self.up: list[list[tuple[int, float]]] = [[] for _ in nodes]
        self.down: list[list[tuple[int, float]]] = [[] for _ in nodes]
        chains: list[list[int]] = []
        for a, b in edges:
            start, end = index[a], index[b]
            chain = [start]
            for rank in range(self.rank[start] + 1, self.rank[end]):
                chain.append(len(self.rank))
                self.rank.append(rank)
                self.up.append([])
                self.down.append([])
            chain.append(end)
            for one, other in zip(chain, chain[1:]):
                # straight lanes first, then straight rows of layers, then where the lanes end
                lanes = (one >= real) + (other >= real)
                weight = (4.0, 1.0, 8.0)[lanes]
                self.down[one].append((other, weight))
                self.up[other].append((one, weight))
            chains.append(chain)
        self.x = [0.0] * len(self.rank)
        self.half = [BOX_WIDTH / 2 if i < real else _LANE / 2 for i in range(len(self.rank))]
        self.rows: list[list[int]] = [[] for _ in range(max(self.rank) + 1)]
        for item, rank in enumerate(self.rank):
            self.rows[rank].append(item)
        self._order()
        self._place()
        self.routes = [[(self.x[i], self.rank[i]) for i in chain] for chain in chains]
        self.left = min(x - half for x, half in zip(self.x, self.half))
        self.right = max(x + half for x, half in zip(self.x, self.half))
        self.x = self.x[:real]
        self.rank = self.rank[:real]

    def _order(self) -> None:
        """Sorts every rank by the barycentre of its neighbours, down and up, and keeps the order with fewest crossings."""
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            downwards = sweep % 2 == 0
            for row in self.rows if downwards else reversed(self.rows):
                links = self.up if downwards else self.down
                self._sort(row, links)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _sort(self, row: list[int], links: list[list[tuple[int, float]]]) -> None:
        place: dict[int, int] = {}
        for item in row:
            for other, _ in links[item]:
                if other not in place:
                    place.update((i, p) for p, i in enumerate(self.rows[self.rank[other]]))
        keys = {}
        for position, item in enumerate(row):
            near = [place[other] for other, _ in links[item]]
            keys[item] = sum(near) / len(near) if near else float(position)
        row.sort(key=lambda item: keys[item])

    def _crossings(self) -> int:
        total = 0
        for upper, lower in zip(self.rows, self.rows[1:]):
            place = {item: i for i, item in enumerate(lower)}
            seen: list[int] = []
            for item in upper:
                ends = sorted(place[other] for other, _ in self.down[item])
                total += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return total

    def _place(self) -> None:
        for row in self.rows:
            x = 0.0
            for item in row:
                self.x[item] = x + self.half[item]
                x += 2 * self.half[item] + _SIDE_GAP
        for sweep in range(2 * _SWEEPS):
            downwards = sweep % 2 == 0
            last = sweep >= 2 * _SWEEPS - 2
            for row in self.rows if downwards else reversed(self.rows):
                wanted, weights = [], []
                for item in row:
                    links = self.up[item] + self.down[item] if last else (self.up if downwards else self.down)[item]
                    weight = sum(w for _, w in links)
                    wanted.append(sum(self.x[o] * w for o, w in links) / weight if weight else self.x[item])
                    weights.append(weight or 0.1)
                for item, x in zip(row, self._apart(row, wanted, weights)):
                    self.x[item] = x

    def _apart(self, row: list[int], wanted: list[float], weights: list[float]) -> list[float]:
        """The nearest positions in the least-squares sense that keep the order and the gaps."""
        offsets = [0.0]
        for one, other in zip(row, row[1:]):
            offsets.append(offsets[-1] + self.half[one] + self.half[other] + _SIDE_GAP)
        pools: list[tuple[float, float, int]] = []  # mean, weight, members
        for x, offset, weight in zip(wanted, offsets, weights):
            mean, members = x - offset, 1
            while pools and pools[-1][0] >= mean:
                before, heavier, more = pools.pop()
                mean = (mean * weight + before * heavier) / (weight + heavier)
                weight, members = weight + heavier, members + more
            pools.append((mean, weight, members))
        means = [mean for mean, _, members in pools for _ in range(members)]
        return [mean + offset for mean, offset in zip(means, offsets)]


def _curve(points: list[tuple[int, int]]) -> str:
    """Down from box to box, straight through the lanes. points: centres with their ranks."""
    x, rank = points[0]
    y = _MARGIN + rank * ROW + BOX_HEIGHT
    parts = [f"M{x} {y}"]
    for to, rank in points[1:]:
        top = _MARGIN + rank * ROW
        middle = (y + top) // 2
        parts.append(f"V{top}" if to == x else f"C{x} {middle} {to} {middle} {to} {top}")
        x, y = to, top
        if (to, rank) != points[-1]:
            y = top + BOX_HEIGHT
            parts.append(f"V{y}")
    return "".join(parts)


def _around(
    start: tuple[int, int],
    end: tuple[int, int],
    from_column: int,
    to_column: int,
    columns: list[tuple[int, int]],
    lanes: list[int],
) -> str:
    """From one column to a later one, between rows and columns: never behind a box. lanes: edges so far in each gap."""
    lane = lanes[from_column]
    lanes[from_column] += 1
    spread = (lane % 9 - 4) * 5
    gap = columns[from_column][1] + _COLUMN_GAP // 2 + spread
    x, y = start[0] + BOX_WIDTH // 2, start[1] + BOX_HEIGHT
    to, top = end[0] + BOX_WIDTH // 2, end[1]
    corners = [(x, y), (x, y + 12), (gap, y + 12)]
    if to_column == from_column + 1:
        corners += [(gap, top - 12)]
    else:
        above = _MARGIN - 26 - (lane % 5) * 5
        last = columns[to_column][0] - _COLUMN_GAP // 2 + spread
        corners += [(gap, above), (last, above), (last, top - 12)]
    return _rounded([*corners, (to, top - 12), (to, top)])


def _rounded(corners: list[tuple[int, int]]) -> str:
    parts = [f"M{corners[0][0]} {corners[0][1]}"]
    for (ax, ay), (bx, by), (cx, cy) in zip(corners, corners[1:], corners[2:]):
        before = min(8, (abs(bx - ax) + abs(by - ay)) // 2)
        after = min(8, (abs(cx - bx) + abs(cy - by)) // 2)
        parts.append(f"L{bx - _sign(bx - ax) * before} {by - _sign(by - ay) * before}")
        parts.append(f"Q{bx} {by} {bx + _sign(cx - bx) * after} {by + _sign(cy - by) * after}")
    return "".join(parts) + f"L{corners[-1][0]} {corners[-1][1]}"


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
