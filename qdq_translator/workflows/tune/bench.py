"""Network and cost of a point."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any, Callable, Iterator, MutableMapping, Optional, Sequence

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.tune_rows import Cost
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.workers.work import Engine, Work
from qdq_translator.simulate.evaluation import Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork
from qdq_translator.targets.dla.limits import GPU
from qdq_translator.targets.precision import INT8
from qdq_translator.workflows.translator import Translation, translate
from qdq_translator.workflows.tune.points import Point

KEPT = 4
"""Networks that stay in memory."""


class Remembering(Engine):
    """An engine that caches results by request. Calibration data are observed once for all points with the same
    request."""

    def __init__(self, engine: Engine, kept: MutableMapping[str, bytes]) -> None:
        self._engine, self._kept = engine, kept

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        return self._engine.parts(work, ranges)

    def remembered(self, key: str, compute: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = pickle.dumps(compute())
        return pickle.loads(self._kept[key])

    def run(
        self,
        work: Work,
        ranges: Sequence[range],
        progress: Callable[[int], None] = lambda done: None,
        watch: Callable[[Any], None] = lambda part: None,
    ) -> Any:
        key = hashlib.sha256(pickle.dumps((work, list(ranges)))).hexdigest()
        return self.remembered(key, lambda: self._engine.run(work, ranges, progress, watch))


class Bench:
    """Points of one model. base: the options that they change. Raises UserError if the model itself is invalid."""

    def __init__(self, model: Path, base: TranslateOptions, where: Evaluation) -> None:
        self.model, self.base = model, base
        self._where = where
        self._costs: dict[Point, Optional[Cost]] = {}
        self._networks: dict[Point, ImplicitNetwork] = {}

    def translation(self, point: Point, try_more: bool = False) -> Translation:
        return translate(self.model, point.options(self.base), where=self._where, try_more=try_more)

    def cost(self, point: Point) -> Optional[Cost]:
        """Cost; None for an impossible point: it names something missing, or contradicts itself."""
        if point not in self._costs:
            try:
                translation = self.translation(point)
            except UserError:
                self._costs[point] = None
            else:
                self._costs[point] = cost_of(translation)
                self._networks[point] = ImplicitNetwork.of(translation)
                while len(self._networks) > KEPT:
                    del self._networks[next(iter(self._networks))]
        return self._costs[point]

    def network(self, point: Point) -> ImplicitNetwork:
        """Of a point that can be."""
        if point not in self._networks:
            return ImplicitNetwork.of(self.translation(point))
        return self._networks[point]


def cost_of(translation: Translation) -> Cost:
    rows = [layer for layer in translation.plan if layer.precision != "none"]
    verdicts = {} if translation.dla is None else {layer.name: layer.verdict for layer in translation.dla.layers}
    gpu = sum(verdict == GPU for verdict in verdicts.values())
    total = sum(row.macs or 0 for row in rows)
    int8 = sum(row.macs or 0 for row in rows if row.precision == INT8 and verdicts.get(row.name) != GPU)
    time = None if translation.costs is None else translation.costs.milliseconds
    return Cost(time, gpu, int8 / total if total else 1.0, sum(row.precision != INT8 for row in rows))
