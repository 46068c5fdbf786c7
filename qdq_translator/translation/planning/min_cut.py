"""The cheapest assignment of parts to two devices, exact by a minimum cut (Dinic's algorithm, whole numbers).

A part pays for its device, and a tensor pays once if any of its readers is on another device than its maker.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Optional, Sequence


class Crossing(NamedTuple):
    """A tensor, or several with the same readers. price: of a conversion for readers on the other device."""

    maker: int
    readers: Sequence[int]
    price: int


Prices = Sequence[Optional[int]]
"""Price of each part on one device; None where it cannot run."""


class Cut:
    """Parts on two devices, each of which can run on one. A price None: it cannot run there."""

    def __init__(self, first: Prices, second: Prices, crossings: Sequence[Crossing]) -> None:
        self._network = network = _Network(len(first))
        self._never = never = 1 + sum(filter(None, (*first, *second))) + 2 * sum(one.price for one in crossings)
        self._places = places = list(range(len(first)))  # parts with one device only are that device
        for part, (here, there) in enumerate(zip(first, second)):
            if here is None or there is None:
                places[part] = network.sink if here is None else network.source
                continue
            least = min(here, there)
            network.join(network.source, part, there - least)
            network.join(part, network.sink, here - least)
        for maker, readers, price in crossings:
            maker, readers = places[maker], sorted({places[reader] for reader in readers} - {places[maker]})
            if len(readers) == 1:
                network.join(maker, readers[0], price, price)
            elif readers:
                out, back = network.add(), network.add()
                network.join(maker, out, price)
                network.join(back, maker, price)
                for reader in readers:
                    network.join(out, reader, never)
                    network.join(reader, back, never)

    def cheapest(self, kept: Optional[int] = None) -> list[bool]:
        """Whether each part is on the first device, in a cheapest assignment; of several, the one with most parts
        there. kept: a part that is there from now on; it can run on both."""
        network = self._network
        if kept is not None:
            network.join(network.source, kept, self._never)
        network.fill()
        behind = network.reach_sink()
        return [place not in behind for place in self._places]


class _Network:
    """Arcs in pairs: arc `a` and its reverse `a ^ 1`."""

    def __init__(self, parts: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(parts + 2)]
        self.source, self.sink = parts, parts + 1
        self.to: list[int] = []
        self.left: list[int] = []

    def add(self) -> int:
        self.out.append([])
        return len(self.out) - 1

    def join(self, tail: int, head: int, capacity: int, back: int = 0) -> None:
        if capacity or back:
            self.out[tail].append(len(self.to))
            self.out[head].append(len(self.to) + 1)
            self.to += (head, tail)
            self.left += (capacity, back)

    def fill(self) -> None:
        """Fill the network with a maximum flow."""
        while True:
            level = self._levels()
            if level[self.sink] < 0:
                return
            self._block(level)

    def _levels(self) -> list[int]:
        level = [-1] * len(self.out)
        level[self.source], pending = 0, deque((self.source,))
        while pending and level[self.sink] < 0:
            node = pending.popleft()
            for arc in self.out[node]:
                if self.left[arc] and level[self.to[arc]] < 0:
                    level[self.to[arc]] = level[node] + 1
                    pending.append(self.to[arc])
        return level

    def _block(self, level: list[int]) -> None:
        """Augment along shortest paths until none is left: depth first, each arc tried once."""
        to, left, out = self.to, self.left, self.out
        place, path, node = [0] * len(out), [], self.source  # type: list[int], list[int], int
        while True:
            if node == self.sink:
                amount = min(left[arc] for arc in path)
                for arc in path:
                    left[arc] -= amount
                    left[arc ^ 1] += amount
                first = next(index for index, arc in enumerate(path) if not left[arc])
                node = to[path[first] ^ 1]
                del path[first:]
                continue
            while place[node] < len(out[node]):
                arc = out[node][place[node]]
                if left[arc] and level[to[arc]] == level[node] + 1:
                    break
                place[node] += 1
            if place[node] < len(out[node]):
                path.append(out[node][place[node]])
                node = to[path[-1]]
            elif not path:
                return
            else:
                level[node] = -1
                node = to[path.pop() ^ 1]

    def reach_sink(self) -> set[int]:
        """The nodes from which the sink is still reachable."""
        seen, pending = {self.sink}, [self.sink]
        while pending:
            for arc in self.out[pending.pop()]:
                if self.left[arc ^ 1] and self.to[arc] not in seen:
                    seen.add(self.to[arc])
                    pending.append(self.to[arc])
        return seen
