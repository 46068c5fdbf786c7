"""Runs a network on data in ONNX Runtime and counts what its tensors hold.

What runs is the translated network with the model's own scales applied: the explicit model in the form in which the engine
gets it, so that a tensor behind a folded BatchNormalization, or one that a rewrite made, is there to be observed. A tensor
that is rounded is observed as its layer makes it, before it is rounded.

Several samples run at a time, each on one thread. Counts are integers and add up to the same in any order, so the result
does not depend on how many threads there are. Memory holds the fetched tensors of one run for each thread (in groups of at
most GROUP_BYTES), and a histogram of 32 KiB for each tensor and thread, however many samples there are.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from typing import Callable, Iterator, Mapping, Sequence

import numpy as np

from qdq_translator.calibration.histogram import Histogram
from qdq_translator.errors import UserError
from qdq_translator.graph import Graph
from qdq_translator.progress import Progress
from qdq_translator.simulate.implicit import hold
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.run import Session
from qdq_translator.types import TensorTypes
from qdq_translator.words import counted

GROUP_BYTES = 512 * 2**20


@dataclasses.dataclass(frozen=True)
class Observed:
    """histograms: tensor -> what it held. left_out: samples whose inputs are not finite."""

    histograms: dict[str, Histogram]
    left_out: int


def observe(
    graph: Graph,
    types: TensorTypes,
    scales: Mapping[str, float],
    tensors: Sequence[str],
    samples: Samples,
    progress: Progress,
    ignore_nonfinite: bool = False,
    by_channel: bool = False,
    remedy: str = "Correct the data, or leave such samples out with --ignore_nonfinite.",
) -> Observed:
    """What `tensors` (float activations of the graph, which is not changed) hold.

    scales: what is applied while the network runs. Raises UserError where ONNX Runtime cannot run the network, and for
    inputs that are not finite, with `remedy`; with `ignore_nonfinite` those are left out. by_channel: see `Histogram`.
    """
    copy = Graph.from_model(graph.to_model())
    made = hold(copy, types, scales)
    model = copy.to_model()
    groups = list(_groups(tensors, types, samples.batch))
    found: dict[str, Histogram] = {}
    left_out = 0
    for number, group in enumerate(groups):
        names = {made.get(name, name): name for name in group}

        def report(done: int, before: int = number * samples.runs) -> None:
            progress("observing data", before + done, len(groups) * samples.runs)

        session = Session(model, "translated", list(names), one_thread=True)
        counter = _Counter(session, samples, ignore_nonfinite, by_channel, remedy)
        found.update({names[name]: histogram for name, histogram in counter.run(report).items()})
        left_out = counter.left_out
    return Observed(found, left_out * samples.batch)


def _groups(tensors: Sequence[str], types: TensorTypes, batch: int) -> Iterator[list[str]]:
    group: list[str] = []
    used = 0
    for name in tensors:
        dims = types.shape(name) or ()
        size = 4 * int(np.prod([d if isinstance(d, int) else batch for d in dims], dtype=np.int64))
        if group and used + size > GROUP_BYTES:
            yield group
            group, used = [], 0
        group.append(name)
        used += size
    if group:
        yield group


class _Counter:
    """One pass over the samples with as many threads as there are processors."""

    def __init__(
        self, session: Session, samples: Samples, ignore_nonfinite: bool, by_channel: bool, remedy: str
    ) -> None:
        self._session, self._samples, self._ignore_nonfinite = session, samples, ignore_nonfinite
        self._by_channel, self._remedy = by_channel, remedy
        self.left_out = 0
        self._next = itertools.count()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._errors: list[tuple[int, BaseException]] = []
        self._results: list[dict[str, Histogram]] = []
        self._done = 0

    def run(self, report: Callable[[int], None]) -> dict[str, Histogram]:
        threads = [
            threading.Thread(target=self._work, daemon=True) for _ in range(min(_processors(), self._samples.runs))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    report(self._done)
            report(self._done)
        finally:  # Ctrl-C, for one: nobody goes on computing
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._errors:
            error = min(self._errors, key=lambda pair: pair[0])[1]
            raise _refusal(self._samples, self._remedy) if isinstance(error, _NotFinite) else error
        total = self._results[0]
        for other in self._results[1:]:
            for name, histogram in total.items():
                histogram.merge(other[name])
        return total

    def _work(self) -> None:
        own = {name: Histogram(self._by_channel) for name in self._session.outputs}
        index = 0
        try:
            # whoever has claimed a run finishes it, so that the first error of the data is always the same
            while not self._stop.is_set() and (index := next(self._next)) < self._samples.runs:
                feed = self._samples.feed(index)
                spoilt = any(_not_finite(values) for values in feed.values())
                if spoilt and not self._ignore_nonfinite:
                    raise _NotFinite
                if not spoilt:
                    for name, values in self._session.run(feed).items():
                        own[name].add(values)
                with self._lock:
                    self._done += 1
                    self.left_out += spoilt
        except BaseException as error:
            self._errors.append((index, error))
            self._stop.set()
        self._results.append(own)


class _NotFinite(Exception):
    """An input holds NaN or infinities."""


def _not_finite(values: np.ndarray) -> int:
    """How many of the values are NaN or infinite."""
    return int(values.size - np.count_nonzero(np.isfinite(values))) if values.dtype.kind == "f" else 0


def _refusal(samples: Samples, remedy: str) -> UserError:
    """What to say of inputs with NaN or infinities: counted over all the data, with the first place."""
    total, runs, first = 0, 0, ""
    for index, feed in enumerate(samples):
        bad = {name: count for name, values in feed.items() if (count := _not_finite(values))}
        total += sum(bad.values())
        runs += bool(bad)
        if bad and not first:
            start = index * samples.batch
            where = f"sample {start}" if samples.batch == 1 else f"samples {start} to {start + samples.batch - 1}"
            first = f"input '{next(iter(bad))}' in {where}"
    what = "samples" if samples.batch == 1 else f"batches of {samples.batch} samples"
    return UserError(
        f"{samples.source}: {counted(total, 'value')} in {runs} of {samples.runs} {what} {'is' if total == 1 else 'are'} not "
        f"finite (NaN or infinite), the first of {first}.",
        remedy,
    )


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
