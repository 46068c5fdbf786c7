"""Run a network on data in ONNX Runtime and collect histograms of its tensors.

It runs the translated network with the model's own scales applied: the explicit model in the form given to the engine,
so that a tensor after a folded BatchNormalization, or one created by a rewrite, can be observed. A tensor that is
rounded is observed as its layer makes it, before rounding.

Several samples run at a time, each on one thread. Counts are integers and add up to the same in any order. Memory holds
the fetched tensors of one run for each thread (in groups of at most GROUP_BYTES), and a few histograms of 32 KiB for
each tensor and thread, for any number of samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence

import onnx

from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.work import Work
from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.placement import Placement

GROUP_BYTES = 512 * 2**20


def observe(
    graph: Graph,
    types: TensorTypes,
    scales: Mapping[str, float],
    tensors: Sequence[str],
    samples: Samples,
    progress: Progress = silent,
    counter: Callable[[], Any] = Histogram,
    where: Evaluation = HERE,
) -> dict[str, Any]:
    """Tensor -> its values, a `Histogram` or the result of `counter`, of `tensors` (float activations of the graph,
    which does not change).

    scales: applied while the network runs. Raises UserError if ONNX Runtime cannot run the network. counter: makes the
    object that counts the values of a tensor.
    """
    network = ImplicitNetwork(graph.to_model(), {}, {}, frozenset())
    rounded = simulate(network, types=types, placement=Placement(dict(scales)))
    groups = list(in_groups(tensors, types, samples.batch, GROUP_BYTES))
    found: dict[str, Any] = {}
    for number, group in enumerate(groups):
        names = {rounded.made.get(name, name): name for name in group}
        work = _Counting(rounded.model, list(names), samples, counter, where.provider)
        histograms = where.over(work, samples.runs, progress, "observing data", (number, len(groups)))
        found.update({names[name]: histogram for name, histogram in histograms.items()})
    samples.check_unchanged()
    return found


def in_groups(
    tensors: Sequence[str], types: TensorTypes, batch: int, limit: int, most: int = 2**30
) -> Iterator[list[str]]:
    """Float tensors in order, in groups of at most `limit` bytes (float32) and `most` tensors."""
    group: list[str] = []
    used = 0
    for name in tensors:
        dims = types.shape(name)
        size = 4 * math.prod(d if isinstance(d, int) else batch for d in ((2**18,) if dims is None else dims))
        if group and (used + size > limit or len(group) >= most):
            yield group
            group, used = [], 0
        group.append(name)
        used += size
    if group:
        yield group


@dataclass
class _Counting(Work):
    """Tensor -> histogram."""

    model: onnx.ModelProto
    tensors: list[str]
    samples: Samples
    counter: Callable[[], Any]
    provider: str

    def open(self) -> Callable[[int], dict[str, Any]]:
        session = Session(self.model, "translated", self.tensors, one_thread=True, provider=self.provider)

        def count(run: int) -> dict[str, Any]:
            found = {name: self.counter() for name in session.outputs}
            for name, values in session.run(self.samples.feed(run)).items():
                found[name].add(values)
            return found

        return count
