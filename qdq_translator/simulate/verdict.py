"""Verdict of `verify` on an output in words, against the expected cost of rounding.

Except for clipping, rounding to a step s is like adding noise that is uniform between -s/2 and s/2 (Widrow: variance
s*s/12). So the expected difference of an output is measured between the explicit model and the translated one with such
noise in place of every rounding. The steps are not the engine's own but those of `reference.proper_scales`; the scales
that the model specifies clip there too, the others do not. Rounded weights count as they are.

- `equal`: every number is the same.
- `within expected rounding`: the difference between explicit model and simulated engine, in the whole and in the worst
  slice along each axis, has at most the energy of the expected one. An energy measured on n samples is distributed as
  chi-square(n)/n (a network's errors on one sample are correlated, so a sample counts once). The limit is the one that
  a correct translation exceeds with a probability of 0.13% (three standard errors of a single comparison), for any
  number of outputs and slices compared (Bonferroni).
- `suspicious`: more than that, or the files do not agree with the model (`reference`): another function in float,
  another scale than the model specifies; or a scale that does not follow from the others, or a plan that the scales do
  not allow (`derivations`); or a calibrated range that clips the data.
- `broken`: values that are not finite on one side only, or a difference with at least the energy of the output itself
  beyond the expected: zeros would be equally good. (Random inputs reach ranges that a network was never trained for;
  there a large difference is no more than suspicious.)

A bad scale in the explicit model itself affects both, and a comparison of the two cannot detect it (`verify --float`
and `--audit` do).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Iterable, Iterator, Mapping

from qdq_translator.core.formats.verify_rows import Judged, Verdict
from qdq_translator.ir.operators import SIGMOIDS
from qdq_translator.planning.placement import Placement
from qdq_translator.simulate.compare import Setup
from qdq_translator.simulate.counterparts import Counterparts
from qdq_translator.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.simulate.metrics import SlicedComparison, noise_to_db
from qdq_translator.simulate.reference import (
    EQUAL_DB,
    HARMLESS,
    SAME_DB,
    Proper,
    apart,
    beyond_bounds,
    float_twin,
    not_as_planned,
    other_function,
    proper_scales,
    underived,
    wrong_scales,
)

EQUAL, ROUNDING, SUSPICIOUS, BROKEN = VERDICTS = ("equal", "within expected rounding", "suspicious", "broken")
FALSE_ALARM = 0.00135
"""Probability that a correct translation is called suspicious: that of three standard errors."""
MEASURED_RUNS = 32
"""Runs of the network that the expected noise is measured on."""


def expected_rounding(setup: Setup, proper: Proper) -> dict[str, SlicedComparison]:
    """Output -> difference caused by rounding alone, on the first runs."""
    placement = setup.simulated.placement
    scales = {**placement.held, **proper.stated, **proper.others}
    held = {name: scales[name] for name in placement.held}
    noisy = dataclasses.replace(setup.options, rounding="noise", unclipped=frozenset(held) - proper.stated.keys())
    model = simulate(setup.network, noisy, placement=dataclasses.replace(placement, held=held)).model
    return apart(setup.reference, setup.explicit.ends, model, setup.samples, MEASURED_RUNS, setup.where)


def judge(
    found: SlicedComparison, expected: SlicedComparison, samples: int, random: bool = False, outputs: int = 1
) -> Verdict:
    """found: explicit model against simulated engine. samples: how many both were measured on. random: the inputs were.
    outputs: how many are judged in all."""
    slices = found.slices
    compared = outputs * (1 + sum(piece.compared for piece in slices))
    granted = most_of_usual(samples, compared)

    def verdict(word: str, noise: float, usual: float, where: str = "") -> Verdict:
        return Verdict(word, noise_to_db(noise), noise_to_db(usual), noise_to_db(granted * usual), where)

    if found.identical or found.non_finite:
        return verdict(EQUAL if found.identical else BROKEN, found.noise, expected.noise)
    parts = [(found.noise, expected.noise, "")]
    if expected.non_finite:  # what the engine clips leaves the range of FP16
        word = ROUNDING if found.noise <= HARMLESS else SUSPICIOUS if found.noise < 1 or random else BROKEN
        return verdict(word, found.noise, math.inf)
    for piece in slices:
        usual = expected.noise_of(piece.axis, piece.index)
        if usual is not None:
            parts.append((10 ** (-piece.sqnr_db / 10), usual, str(piece)))
    beyond = [part for part in parts if part[0] > max(granted * part[1], HARMLESS)]
    lost = [part for part in beyond if part[0] >= 1 and not random]
    if not beyond:
        return verdict(ROUNDING, *parts[0])
    by_most = max(lost or beyond, key=lambda part: part[0] / part[1] if part[1] else math.inf)
    return verdict(BROKEN if lost else SUSPICIOUS, *by_most)


def most_of_usual(samples: int, compared: float) -> float:
    """Quantile of chi-square(n)/n, by Wilson and Hilferty (1931), that one of `compared` comparisons on n samples
    exceeds with the probability FALSE_ALARM."""
    errors = statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / compared)
    return float((1 - 2 / (9 * samples) + errors * math.sqrt(2 / (9 * samples))) ** 3)


def worst(verdicts: Iterable[str]) -> str:
    """Of several outputs."""
    return max(verdicts, key=VERDICTS.index, default=EQUAL)


def judge_all(setup: Setup, found: Mapping[str, SlicedComparison]) -> Judged:
    """found: output -> explicit model against simulated engine."""
    network, samples, names, placement = setup.network, setup.samples, setup.names, setup.simulated.placement
    gates = {n.outputs[0] for n in names.stripped.nodes if setup.options.sigmoid_fp16 and n.is_op(*SIGMOIDS)}
    held = [name for name in placement.held if name not in gates]
    proper = proper_scales(network, names, held, None if setup.random else samples, setup.where)
    usual = expected_rounding(setup, proper)
    measured = min(samples.runs, MEASURED_RUNS) * samples.batch
    outputs = {name: judge(row, usual[name], measured, setup.random, len(found)) for name, row in found.items()}
    function, seen = _another_function(setup)
    reasons = [*function, *_wrong_records(network, names, placement, proper)]
    overall = worst([seen, SUSPICIOUS if reasons else EQUAL, *(row.verdict for row in outputs.values())])
    return Judged(overall, outputs, tuple(reasons))


def _another_function(setup: Setup) -> tuple[list[str], str]:
    """Sentences about outputs that the two networks compute differently in float, and the verdict that they give."""
    network = setup.network
    if network.option.get("dla_rewrites") == "approximate":
        return [], EQUAL
    saturated = any(row.get("saturated") for row in network.report.get("weights", ()))
    least = SAME_DB if saturated else EQUAL_DB
    found = other_function(float_twin(setup.explicit), setup.names.stripped, setup.samples, least)
    lost = not setup.random and any(db <= 0 for db in found.values())
    return [
        f"In float, without any rounding of activations, output '{name}' is {db:.1f} dB away from the model as given: "
        "a weight, an attribute or a connection is not the model's."
        for name, db in found.items()
    ], BROKEN if lost else EQUAL


def _wrong_records(
    network: ImplicitNetwork, names: Counterparts, placement: Placement, proper: Proper
) -> Iterator[str]:
    """Sentences about scales that are not the model's, do not follow from it, or do not fit the data."""
    for tensor, (scale, stated) in wrong_scales(network, names).items():
        given = f"has the scale {scale:.6g}" if scale else "has no scale"
        wanted = f"{stated[0]:.6g}" + (f" to {stated[-1]:.6g}" if len(stated) > 1 else "")
        yield f"Tensor '{tensor}' {given}; the model states {wanted}."
    yield from underived(network, names.stripped)
    yield from beyond_bounds(network, names.stripped)
    yield from not_as_planned(network, placement.higher)
    for tensor, (share, db) in proper.tight.items():
        yield (
            f"The calibrated range of '{tensor}' clips {100 * share:.3g}% of its values on these inputs "
            f"(SQNR {db:.1f} dB): calibrate on data like these."
        )
