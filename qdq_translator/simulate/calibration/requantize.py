"""`--unify_scales requantize`: rule D9, case 5, for tensors that lose LEAST_LOST_DB or more on a shared range of a DLA.

A Scale by 1 in front of the layers that share the range leaves the tensor's own range to its other readers. Ranges come
from one half of the samples. The Scales stay if the outputs gain LEAST_DB on the other half, and surely; else the half
of them with the larger losses is tried.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import counted, milliseconds, others
from qdq_translator.passes.dla.rewriter import Rewriter
from qdq_translator.passes.dla.scales import RULE, apart, joined
from qdq_translator.planning.decision import Decision, context_of, decide
from qdq_translator.scales.network import Network, Stage
from qdq_translator.simulate.account import Judge
from qdq_translator.simulate.calibration.data_scales import DataScales
from qdq_translator.simulate.calibration.equalize import LEAST_DB
from qdq_translator.simulate.calibration.on_output import is_less
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import noise_to_db
from qdq_translator.simulate.segments import PLAIN
from qdq_translator.targets.settings import Settings

LEAST_LOST_DB, MOST_RUNS = 1.0, 32


def requantize(
    network: Network, settings: Settings, samples: Samples, diagnostics: Diagnostics, where: Evaluation = HERE
) -> None:
    """Edits the network, for a DLA, if that gains."""
    graph, samples = network.graph, samples.some(MOST_RUNS)
    if samples.runs < 2:
        diagnostics.warning("U1", "--unify_scales requantize needs 2 samples or more, one to fit and one to judge.")
        return
    rewriter = Rewriter(network, settings, settings.hardware.generation)
    known, begin = len(network.applied), graph.picture() if settings.prove else None
    before, plain, lost = _tried(network, settings, samples, where)
    readers = {name: nodes for name, (db, nodes) in lost.items() if db >= LEAST_LOST_DB}
    names = sorted((name for name in readers if network.types.rank(name) == 4), key=lambda name: -lost[name][0])
    text = "no tensor with other readers loses 1 dB on a shared range"
    while names:
        layers = apart(rewriter, {name: readers[name] for name in names})
        after, made, _ = _tried(network, settings, samples, where)
        gain = f"{noise_to_db(before.mean()):.1f} to {noise_to_db(after.mean()):.1f} dB on samples held out"
        times = [milliseconds(None if one.costs is None else one.costs.total) for one in (plain, made)]
        text = (
            f"{counted(len(layers), 'Scale')}, of '{names[0]}'{others(names)}: {gain}, {times[0]} to "
            f"{times[1]} (estimated)"
        )
        if is_less(after, before) and noise_to_db(after.mean()) >= noise_to_db(before.mean()) + LEAST_DB:
            diagnostics.info("U1", f"--unify_scales requantize added {text}.", tensor=names[0], data={"tensors": names})
            if begin is not None:
                network.stages.append(Stage(RULE, tuple(network.applied[known:]), begin, graph.picture()))
            return
        del network.applied[known:]
        joined(rewriter, layers)
        names = names[: len(names) // 2]
    diagnostics.info("U1", f"--unify_scales requantize changed nothing; tried: {text}.")


def _tried(
    network: Network, settings: Settings, samples: Samples, where: Evaluation
) -> tuple[np.ndarray, Decision, Mapping[str, tuple[float, Sequence[Any]]]]:
    """(runs,) noise on every other sample, with ranges from the rest; the plan; `DataScales.lost`."""
    assert settings.calibration is not None
    fit, held_out = (samples.chosen(list(range(first, samples.runs, 2))) for first in (0, 1))
    context = context_of(network, network.scales.fork(), settings)
    data = DataScales(fit, settings.calibration, Diagnostics(), where=where)
    data.recalibrate(context)
    made = decide(network, context, settings, Diagnostics(), data)
    scales = {name: scale.value for name, scale in context.scales.items()}
    model, kept = network.graph.to_model(), dict.fromkeys((row.name for row in made.plan if row.listed), "fp16")
    given = ImplicitNetwork(model, scales, kept, frozenset())
    options = SimulationOptions.on(settings.policy.target)
    judge, rounded = Judge(given, options, held_out, None, network.types, where=where), simulate(given, options).model
    key = "requantize", model, rounded, held_out
    noise: np.ndarray = where.engine.remembered(key, lambda: judge.noises(rounded, (PLAIN,), PLAIN)[0])
    return noise, made, data.lost
