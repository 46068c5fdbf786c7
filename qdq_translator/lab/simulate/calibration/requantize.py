"""`--unify_scales requantize`: rule D9, case 5, for tensors that lose LEAST_LOST_DB or more on a shared range of a DLA.

A Scale by 1 in front of the layers that share the range leaves the tensor's own range to its other readers. Ranges come
from one half of the samples. The Scales stay if the outputs gain `trial.LEAST_DB` or more, and significantly, on the
other half; otherwise the half of them with the larger losses is tried.
"""

from __future__ import annotations

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import counted, milliseconds, others
from qdq_translator.lab.simulate.calibration.trial import Trials
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.passes.dla.scales import apart, joined
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.settings import Settings

LEAST_LOST_DB, MOST_RUNS = 1.0, 32


def requantize(
    network: Network, settings: Settings, samples: Samples, diagnostics: Diagnostics, where: Evaluation
) -> None:
    """Edits the network, for a DLA, if that gains."""
    samples = samples.some(MOST_RUNS)
    if samples.runs < 2:
        diagnostics.warning("U1", "--unify_scales requantize needs 2 samples or more, one to fit and one to judge.")
        return
    rewriter = Rewriter(network, settings, settings.hardware.generation)
    known = len(network.applied)
    trials = Trials(network, settings, samples, where)
    before = trials.of(network)
    readers = {name: nodes for name, (db, nodes) in before.lost.items() if db >= LEAST_LOST_DB}
    names = sorted((name for name in readers if network.types.rank(name) == 4), key=lambda name: -before.lost[name][0])
    text = "no tensor with other readers loses 1 dB on a shared range"
    while names:
        layers = apart(rewriter, {name: readers[name] for name in names})
        after = trials.of(network)
        gain = f"{before.db:.1f} to {after.db:.1f} dB on samples held out"
        costs = [one.decision.costs for one in (before, after)]
        times = [milliseconds(None if one is None or one.ends is None else one.ends[0]) for one in costs]
        text = (
            f"{counted(len(layers), 'Scale')}, of '{names[0]}'{others(names)}: {gain}, {times[0]} to "
            f"{times[1]} (estimated)"
        )
        if after.gains_over(before):
            diagnostics.info("U1", f"--unify_scales requantize added {text}.", tensor=names[0], data={"tensors": names})
            return
        del network.applied[known:]
        joined(rewriter, layers)
        names = names[: len(names) // 2]
    diagnostics.info("U1", f"--unify_scales requantize changed nothing; tried: {text}.")
