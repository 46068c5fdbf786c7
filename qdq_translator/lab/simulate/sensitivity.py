"""Find tensors that cost accuracy, and the fewest layers to keep above INT8 so that these tensors stay float. The
layers are for `--layerPrecisions`.

The reference is the float model if one is given, else the stripped model in float (its weights are the trained ones).

1. The account (`account`) has the noise energy that the rounding of each tensor, and of the weights of each layer, adds
   alone to the float network. If there are several causes, all are large there, although removing one of them alone
   gains nothing.
2. The `MOST_KEPT` largest are left float in the INT8 network, one at a time. With a user metric the ranking is by the
   metric and then by SQNR, else by the account.
3. A candidate is worth its layers if its share of the noise, without the candidates before it, costs `KEPT_IF_DB`, and
   if it has either the same share of the whole noise, or a range that does not fit the tensor's values. The layers of
   all of these are kept above INT8 together; then each candidate that the others make unnecessary is dropped.
4. With a metric a candidate is worth its layers if the metric rises, and no more are kept once it reaches the requested
   value.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, Callable, Iterator, Literal, Optional, Sequence

from qdq_translator.core.formats.layer_precisions import fp16_layers, is_expressible
from qdq_translator.core.formats.report_rows import LayerPlan
from qdq_translator.core.formats.verify_rows import Audit, Cure, Freed, Sensitivity
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.words import counted
from qdq_translator.lab.simulate.account import (
    PASSES,
    Account,
    Candidate,
    Entry,
    Judge,
    Quality,
    account,
    components,
    price,
)
from qdq_translator.lab.simulate.implicit import Simulated
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.planning.placement import Placement

KEPT_IF_DB = 0.5
KEPT_SHARE = 1 - 10 ** (-KEPT_IF_DB / 10)
"""Share of the noise energy that costs `KEPT_IF_DB`."""
MISFIT = 0.5
"""Share of a tensor's rounding noise that a better range would remove; above it the range does not fit."""
MOST_KEPT = 10
CURES = (1, 3, 10)
"""Sets of tensors, or weights, of a cure."""
LEAST_WEIGHTS = 1e-3
"""Least share of the noise for which a layer's weights are tried: weights that were trained on the INT8 grid cost
nothing.
"""


def measure_sensitivity(
    judge: Judge,
    time_limit: float,
    progress: Progress = silent,
    enough: Optional[float] = None,
    audit: Optional[Audit] = None,
) -> tuple[Sensitivity, Optional[Account]]:
    """Returns the account too, None if `time_limit` (seconds: the account uses fewer passes, and the current
    measurement is finished) left no time for it. enough: a value of the metric beyond which nothing more is kept above
    INT8. audit: gives the causes."""
    start, network = time.monotonic(), judge.network
    progress("measuring the noise account", 0, 3)
    base = judge.simulated({})
    baseline, graph = judge.of(base), network.graph()
    spent = max(time.monotonic() - start, 1e-9)  # for two passes, float and INT8
    passes = min(PASSES, 2 * (time_limit - spent) / spent)
    found = account(judge, passes=passes, audit=audit) if passes >= 1 else None
    candidates = components(graph, base.placement, network)
    left = sum(map(_can_be_kept, candidates)) if found is None else _left_out(found, passes)

    def is_late() -> bool:
        return time.monotonic() - start > time_limit

    progress("leaving one tensor float", 1, 3)
    ranking = _ranked(judge, base, found) if found is not None and not is_late() else []
    progress("keeping the best together", 2, 3)
    promising = _promising(ranking, found.total if found is not None else 0.0)
    promising = [_without_markers(judge, graph, base.placement, candidate) for candidate in promising]
    chosen = _kept_together(judge, promising, baseline, enough, is_late)
    progress("keeping the best together", 3, 3)
    layers = tuple(dict.fromkeys(layer for candidate, _ in chosen for layer in candidate.layers))
    # not format_layer_precisions: the translation may ask for patterns
    argument = ",".join(f"{name}:{asked}" for name, asked in {**network.precisions, **fp16_layers(layers)}.items())
    return Sensitivity(
        baseline_db=baseline.sqnr_db,
        baseline_metric=baseline.metric,
        ranking=tuple(_freed(entry.candidate, quality, found, network.plan) for entry, quality in ranking),
        chosen=tuple(_freed(candidate, quality, found, network.plan) for candidate, quality in chosen),
        layer_argument=argument,
        layers=layers,
        keep_fp16=tuple(dict.fromkeys([*network.option.get("keep_fp16", []), *layers])) if chosen else (),
        enough=baseline.reaches(enough),
        candidates_left_out=left,
        seconds=time.monotonic() - start,
    ), found


def cures(judge: Judge, found: Account, enough: Optional[float] = None) -> Iterator[Cure]:
    """The sets of the account with the most noise in FP16, as many as in `CURES`, measured together, with their
    price. Left out is one that gains less than `KEPT_IF_DB`, or nothing of the metric, over the fewer sets before.
    enough: a value of the metric beyond which none is measured."""
    base = judge.simulated({})
    least = best = judge.of(base)
    layers: dict[str, None] = {}
    rows = [one.layers for one, _ in found.candidates(base.placement.held)]
    rows = [own for number, own in enumerate(rows) if not {*own}.issubset(one for row in rows[:number] for one in row)]
    for number, own in enumerate(rows[: CURES[-1]], 1):
        layers.update(dict.fromkeys(own))
        if number not in (*CURES, len(rows)):
            continue
        quality = judge.of(judge.simulated(fp16_layers(layers)))
        if _is_worth(quality.over(best)):
            best, gained = quality, quality.over(least)
            gain = gained.gain_db if gained.metric_gain is None else gained.metric_gain
            unit: Literal["dB", "metric"] = "dB" if gained.metric_gain is None else "metric"
            what = f"{counted(len(layers), 'layer')} in FP16"
            yield Cure(what, {}, tuple(layers), gain, *price(judge.network.plan, layers), applied=False, unit=unit)
        if best.reaches(enough):
            break


def _freed(candidate: Candidate, quality: Quality, found: Optional[Account], plan: Sequence[LayerPlan]) -> Freed:
    entries = found.within(candidate) if found is not None else []
    share = sum(found.share(entry.noise) for entry in entries) if found is not None else 0.0
    causes = tuple(dict.fromkeys(cause for entry in entries for cause in entry.causes))
    figures = {key: getattr(quality, key) for key in ("sqnr_db", "cosine", "gain_db", "samples", "metric")}
    more: dict[str, Any] = {"noise_share": share, "causes": causes, "milliseconds": price(plan, candidate.layers)[0]}
    return Freed(candidate.label, candidate.tensors, candidate.layers, **figures, **more)


def _left_out(found: Account, passes: float) -> int:
    """Number of tensors that were not measured separately, because time was short."""
    return sum(entry.members for entry in found.entries if entry.members > 1) if passes < PASSES else 0


def _can_be_kept(candidate: Candidate) -> bool:
    return bool(candidate.layers) and all(map(is_expressible, candidate.layers))


def _ranked(judge: Judge, base: Simulated, found: Account) -> list[tuple[Entry, Quality]]:
    """Step 2 of the module."""
    rows = [entry for entry in found.entries if _can_be_kept(entry.candidate)]
    rows = [entry for entry in rows if entry.candidate.tensors or found.share(entry.noise) >= LEAST_WEIGHTS]
    loudest = rows[:MOST_KEPT]
    tried = judge.without(base, [entry.candidate for entry in loudest])

    def rank(pair: tuple[Entry, Quality]) -> tuple[float, ...]:
        entry, quality = pair
        return (-entry.noise,) if quality.metric_gain is None else (-quality.metric_gain, -quality.gain_db)

    return sorted(zip(loudest, tried), key=rank)


def _promising(ranking: Sequence[tuple[Entry, Quality]], total: float) -> list[Candidate]:
    """Step 3 of the module, or 4 with a metric. total: noise energy of the account."""
    if any(quality.metric_gain is not None for _, quality in ranking):
        return [entry.candidate for entry, quality in ranking if (quality.metric_gain or 0.0) > 0]
    chosen: list[Candidate] = []
    left = total
    for entry, _ in ranking:
        stands_out = entry.noise >= KEPT_SHARE * total or entry.excess >= MISFIT
        if stands_out and entry.noise >= KEPT_SHARE * left:
            chosen.append(entry.candidate)
            left -= entry.noise
    return chosen


def _without_markers(judge: Judge, graph: Graph, placement: Placement, candidate: Candidate) -> Candidate:
    """The candidate with the layers that read a tensor with a unary marker (rule S9), if the Conv before it no longer
    fuses: else its values are clipped at 127.
    """
    while True:
        now = judge.simulated(fp16_layers(candidate.layers)).placement
        applied = [name for name in now.held if name in judge.network.unary and name not in placement.held]
        readers = [node.name for name in applied for node in graph.consumers(name) if node.name in now.int8]
        if not all(map(is_expressible, readers)) or not readers:
            return candidate
        candidate = dataclasses.replace(candidate, layers=tuple(dict.fromkeys((*candidate.layers, *readers))))


def _kept_together(
    judge: Judge,
    promising: Sequence[Candidate],
    baseline: Quality,
    enough: Optional[float],
    is_late: Callable[[], bool],
) -> list[tuple[Candidate, Quality]]:
    """Steps 3 and 4 of the module."""

    @functools.lru_cache(maxsize=None)
    def quality(rows: tuple[Candidate, ...]) -> Quality:
        layers = fp16_layers(Candidate.joined(rows).layers)
        return judge.of(judge.simulated(layers)).over(baseline) if rows else baseline

    chosen: tuple[Candidate, ...] = ()
    for size in range(1, len(promising) + 1) if enough is not None else [len(promising)]:
        if quality(chosen).reaches(enough) or is_late():
            break
        chosen = tuple(promising[:size])
    for candidate in reversed(chosen):
        if is_late():
            break
        rest = tuple(other for other in chosen if other is not candidate)
        if quality(rest).reaches(enough) or not _is_worth(quality(chosen).over(quality(rest))):
            chosen = rest
    return [(candidate, quality(chosen[: number + 1])) for number, candidate in enumerate(chosen)]


def _is_worth(gain: Quality) -> bool:
    """Whether the gain justifies the layers above INT8."""
    return gain.gain_db >= KEPT_IF_DB if gain.metric_gain is None else gain.metric_gain > 0
