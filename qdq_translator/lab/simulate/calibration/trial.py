"""A network with the ranges and precisions that its translation will have, from one half of some samples, judged on the
other half: for `--equalize` and `--unify_scales requantize`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.lab.simulate.account import Judge
from qdq_translator.lab.simulate.calibration.data_scales import DataScales
from qdq_translator.lab.simulate.calibration.observe import observe
from qdq_translator.lab.simulate.calibration.on_output import is_less
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import noise_to_db
from qdq_translator.lab.simulate.segments import PLAIN
from qdq_translator.translation.planning.decision import Decision, context_of, decide
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.settings import Settings

LEAST_DB = 0.3
"""Gain on held-out samples below which nothing is changed."""


class Trial(NamedTuple):
    """noise: (runs,) energy at the outputs, on the samples held out. lost: `DataScales.lost`."""

    noise: np.ndarray
    decision: Decision
    lost: Mapping[str, tuple[float, Sequence[Any]]]

    @property
    def db(self) -> float:
        return noise_to_db(self.noise.mean())

    def gains_over(self, other: Trial) -> bool:
        """Surely, and LEAST_DB or more."""
        return is_less(self.noise, other.noise) and self.db >= other.db + LEAST_DB


class Trials:
    """fit: the samples that ranges come from. network: the source of the float outputs of all trials. observer: see
    `DataScales`. Raises UserError as `observe` does."""

    def __init__(
        self,
        network: Network,
        settings: Settings,
        samples: Samples,
        where: Evaluation,
        observer: Callable[..., dict[str, Any]] = observe,
    ) -> None:
        self.fit, held_out = (samples.chosen(list(range(first, samples.runs, 2))) for first in (0, 1))
        assert settings.calibration is not None
        own = settings.calibration
        if own.method == "output":  # its search is longer than all trials, and starts from the ranges of mse
            settings = dataclasses.replace(settings, calibration=dataclasses.replace(own, method="mse"))
        self._settings, self._where, self._observer = settings, where, observer
        self._options = SimulationOptions.on(settings.policy.target)
        given = ImplicitNetwork(network.graph.to_model(), {}, {}, frozenset())
        self._judge = Judge(given, self._options, held_out, None, network.types, where=where)

    def of(self, network: Network) -> Trial:
        settings, judge = self._settings, self._judge
        assert settings.calibration is not None
        context = context_of(network, network.scales.fork(), settings)
        data = DataScales(self.fit, settings.calibration, Diagnostics(), where=self._where, observer=self._observer)
        data.recalibrate(context)
        made = decide(network, context, settings, Diagnostics(), data)
        scales = {name: scale.value for name, scale in context.scales.items()}
        kept = dict.fromkeys((row.name for row in made.plan if row.listed), "fp16")
        model, weights = network.graph.picture()
        given = ImplicitNetwork(model, scales, kept, frozenset(), plan=made.plan, weights=weights)
        rounded = simulate(given, self._options, types=network.types).model
        key = "trial", self._judge.network.model, rounded, judge.samples
        noise: np.ndarray = self._where.engine.remembered(key, lambda: judge.noises(rounded, (PLAIN,), PLAIN)[0])
        return Trial(noise, made, data.lost)
