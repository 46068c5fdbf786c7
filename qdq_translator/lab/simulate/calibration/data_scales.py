"""Rule K1: tensors without a scale of the model or of an exact rule get their range on the user's data. Rule K2: so do
scales of the model that the user names.

`inference` applies K1 after the exact rules. Not every tensor without scale is observed: if the readers of a tensor
only pass its values on (rule S3), their outputs are observed instead, so that a Relu's input is not calibrated for
values that the Relu cuts. The inside of a decomposed LayerNormalization is left alone.

On a DLA, tensors that must share one range are calibrated together, to the range with the least squared error over all
their values. A scale of the model's own in such a set stays (rule S1) without `--unify_scales data`; the others then
get it if that costs them less than TRAINED_COST_DB each, and keep their own range otherwise (rule U1 reports that).
"""

from __future__ import annotations

import dataclasses
import math
from itertools import chain
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.formats.verify_rows import Audit, AuditedScale
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.rules import SAME_VALUE
from qdq_translator.core.words import counted, others
from qdq_translator.lab.simulate.calibration import fit
from qdq_translator.lab.simulate.calibration.audit import FITS_DB, audit_scales
from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.lab.simulate.calibration.likeness import INPUTS, channel_means
from qdq_translator.lab.simulate.calibration.methods import (
    METHODS,
    PERCENTILE,
    clipped,
    energy,
    is_isolated,
    least_error,
    percentile,
    squared_error,
)
from qdq_translator.lab.simulate.calibration.observe import observe
from qdq_translator.lab.simulate.calibration.on_output import search
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import SimulationOptions
from qdq_translator.lab.simulate.inputs import WRONG_SCALE, Samples, given_samples
from qdq_translator.lab.simulate.metrics import noise_to_db
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.scales.inference import CLIP, HANDED_ON, unify
from qdq_translator.translation.scales.inference.context import Context
from qdq_translator.translation.scales.inference.formulas import around_normalizations, inside_normalizations
from qdq_translator.translation.scales.table import Origin
from qdq_translator.translation.targets.settings import Calibration

RULE, RECALIBRATED, SWALLOWED = "K1", "K2", "C3"
ZERO_SCALE = 2.0**-14
"""Of a tensor that is 0 throughout: the smallest normal float16, so that it does not become 0 in float16."""
FEW_SAMPLES = 8
TRAINED_COST_DB = 6.0
LEAST_PART_DB = 10.0
"""SQNR of an input of a Concat below which the Concat stays above INT8: most of its values are less than a step."""


def load_data(graph: Graph, wanted: Calibration, shapes: dict[str, list[int]]) -> Samples:
    """The samples that `wanted` names. Raises UserError for data that the network does not take."""
    inputs = onnx.ModelProto()
    inputs.graph.input.extend(graph.inputs.values())
    onnx.helper.set_model_props(inputs, graph.model_metadata)
    return given_samples(wanted.data, None, inputs, shapes, wanted, graph.coded)


class DataScales:
    """Source of scales from data for `infer_scales`. The first call observes and gives them, the second one fits the
    sets of a DLA together once the exact rules have propagated them."""

    def __init__(
        self,
        samples: Samples,
        wanted: Calibration,
        diagnostics: Diagnostics,
        progress: Progress = silent,
        where: Evaluation = HERE,
        observer: Callable[..., dict[str, Histogram]] = observe,
    ) -> None:
        """Scales from `samples`. observer: `observe`, or its counterpart for a trial."""
        self._wanted, self._observer = wanted, observer
        self._samples, self._diagnostics, self._progress, self._where = samples, diagnostics, progress, where
        self._histograms: dict[str, Histogram] = {}
        self._misfits: dict[str, AuditedScale] = {}
        self._freed: dict[str, tuple[float, str]] = {}
        """Scales of the model that `--recalibrate` names -> the scale from the data, and its note."""
        self.lost: dict[str, tuple[float, list[Node]]] = {}
        """Tensor -> dB of SQNR that it loses on a range that layers of a DLA share, and these layers, if others read it
        too.
        """
        self._calls = 0
        for doubt in samples.doubts:
            hint = "Correct the data."
            diagnostics.warning(RULE, f"{samples.source}: {doubt}.", hint=hint)
        for note in samples.notes:
            diagnostics.info(RULE, f"{samples.source}: {note}.")

    def recalibrate(self, context: Context) -> None:
        """Rule K2, before anything is inferred. Raises UserError for a tensor without scale of its own, and as
        `observe` does.
        """
        wanted = self._wanted.recalibrate
        if not wanted:
            return
        names = self._worst(wanted, context) if isinstance(wanted, int) else _named(wanted, context)
        # without the scales to be replaced: the clipping of a bad one must not determine the next one's range
        rows = self._audit(names, context, without=names).tensors if names else ()
        self._misfits = {row.tensor: row for row in rows}
        found = {name: self._scale(name, context) for name in self._misfits}
        self._freed = {name: (value, _note(row)) for name, (value, row) in found.items()}  # type: ignore
        if self._wanted.method != "output" or not rows:
            self._give_way(self._freed, context)

    def _worst(self, count: int, context: Context) -> list[str]:
        """Tensors of so many scales of the model, at most, with the most damage, in graph order."""
        names = _named((), context)
        chosen = {row.tensor for row in self._audit(names, context).tensors[:count] if row.damage > 0}
        return [name for name in names if name in chosen]

    def _give_way(self, found: dict[str, tuple[float, str]], context: Context) -> None:
        """Replaces scales of the model. found: tensor -> (scale, note)."""
        for name, (value, note) in found.items():
            was = context.scales[name]
            note = f"{note}; was {was.value:.6g} (rule {was.origin.rule})"
            context.scales.replace(name, value, Origin(RECALIBRATED, was.origin.node, "", note))
        rows = [row for name, row in self._misfits.items() if name in found]
        self._diagnostics.warning(
            RECALIBRATED,
            (
                f"--recalibrate replaced {len(rows)} scale{'s' if len(rows) != 1 else ''} of the model with "
                "those of the data"
            )
            + (f"; '{rows[0].tensor}' had the worst fit ({rows[0].cause})." if rows else ": all of them fit the data."),
            tensor=rows[0].tensor if rows else "",
            data={"tensors": [{**plain(row), "scale_now": context.scales[row.tensor].value} for row in rows]},
        )

    def __call__(self, context: Context) -> bool:
        """Raises UserError if ONNX Runtime cannot run the network, and for data that are not finite."""
        self._calls += 1
        if self._calls == 1 and self._give(context):
            return True
        if self._calls <= 2 and context.policy.for_dla and context.policy.unify != "off":
            self._share(context)
        if self._calls <= 2 and self._wanted.method == "output":
            self._search(context)
        return False

    def _give(self, context: Context) -> bool:
        outputs, tensors = self._lacking(context)
        doubted = fit.doubted(context)
        if not tensors and not doubted:
            self._diagnostics.info(RULE, "Every tensor has a scale without data; --calibrate has nothing to add.")
            return False
        stated = {name: context.scales[name] for name in context.graph.inputs if name in context.scales}
        concats, parts = _concats_before(tensors, context.graph)
        wanted = dict.fromkeys([*tensors, *stated, *sorted(parts.difference(tensors, stated)), *doubted])
        observed = self._observe(list(wanted), context)
        magnitudes = {part: observed[part] for part in parts}
        for name in set(wanted).difference(tensors, stated):
            del self._histograms[name]
        self._report_inputs({name: (scale.value, scale.origin.rule) for name, scale in stated.items()}, observed)
        self._report_isolated(context.graph.inputs, observed)
        rows: list[dict[str, Any]] = []
        swallowed: dict[str, tuple[str, float]] = {}

        def give(tensor: str) -> bool:
            found = self._scale(tensor, context)
            if found is None:
                return False
            value, row = found
            lost = _swallowed(concats[tensor], row["amax"], magnitudes, context.graph) if tensor in concats else None
            if lost is not None:
                swallowed[tensor] = lost
                return False
            rows.append(row)
            return context.scales.infer(tensor, value, self._origin(tensor, context, _note(row)))

        for name in outputs:
            give(name)
        _cover(context, give)
        self._withhold(swallowed, context)
        self._report(rows, context)
        self._settle({name: observed[name] for name in doubted}, context)
        return True

    def _settle(self, doubted: Mapping[str, Histogram], context: Context) -> None:
        """Rule S14: a scale that a rule computed gives way to the data's where that loses less for all readers. What
        was handed on from it follows."""
        gains: dict[str, tuple[float, str]] = {}
        self._histograms.update(doubted)
        for name, histogram in doubted.items():
            own, found = context.scales[name], self._scale(name, context)
            if found is None or not histogram.amax:
                continue
            readers = fit.functions(name, context)
            amax, gain = fit.best(histogram, own.amax, readers, found[0] * INT8_MAX)
            if gain >= FITS_DB:
                gains[name] = gain, own.origin.rule
                note = f"{_note({**found[1], 'amax': amax})}; was {own.value:.6g} (rule {own.origin.rule})"
                context.scales.replace(name, amax / INT8_MAX, self._origin(name, context, note))
                context.slack.pop(name, None)
        gone = set(gains)
        for name in [*context.graph.tensors(), *reversed(context.graph.tensors())] if gone else ():
            scale = context.scales.get(name)
            same = scale is not None and name not in gains and scale.origin.rule in SAME_VALUE
            if scale is not None and same and scale.origin.source in gone:
                context.scales.drop(name)
                gone.add(name)
        if gains:
            worst = max(gains, key=lambda name: gains[name][0])
            self._diagnostics.info(
                "S14",
                f"{counted(len(gains), 'inferred scale')} gave way to the data's: that of '{worst}' (rule "
                f"{gains[worst][1]}) lost {gains[worst][0]:.1f} dB more.",
                tensor=worst,
                data={"tensors": {name: gain for name, (gain, _) in gains.items()}},
            )

    def _lacking(self, context: Context) -> tuple[list[str], list[str]]:
        """Graph outputs that get a range, and all tensors that do, in graph order."""
        wanted: list[str] = []
        trial = dataclasses.replace(context, scales=context.scales.fork())

        def note(tensor: str) -> bool:
            wanted.append(tensor)
            return trial.scales.infer(tensor, 1.0, Origin(RULE))

        _cover(trial, note)
        outputs = []
        if self._wanted.outputs:
            withheld = sorted(name for name, why in context.withheld.items() if not why)
            outputs = [name for name in (*context.graph.outputs, *withheld) if name not in context.scales]
            outputs = [name for name in outputs if context.types.is_float(name)]
        return outputs, [name for name in context.graph.tensors() if name in {*wanted, *outputs}]

    def _withhold(self, swallowed: dict[str, tuple[str, float]], context: Context) -> None:
        """Withhold the scales that would cost an input of a Concat too much. swallowed: tensor -> that input, and its
        SQNR then in dB."""
        why = {
            name: f"in its range, '{part}', an input of the Concat, would have {db:.1f} dB SQNR (rule {SWALLOWED})"
            for name, (part, db) in swallowed.items()
        }
        context.withheld = {**context.withheld, **why}
        if why:
            first = min(why, key=lambda name: swallowed[name][1])
            self._diagnostics.info(
                SWALLOWED,
                f"'{first}' gets no scale from the data: {why[first]}{others(why, ' ({} more like that)')}.",
                tensor=first,
                hint="The layers that read it stay above INT8; --scales FILE gives it a scale.",
                data={"tensors": why},
            )

    def _audit(self, tensors: Sequence[str], context: Context, without: Sequence[str] = ()) -> Audit:
        observed = self._observe(tensors, context, without)
        return audit_scales({name: (context.scales[name].value, RULE) for name in tensors}, observed)

    def _observe(self, tensors: Sequence[str], context: Context, without: Sequence[str] = ()) -> dict[str, Histogram]:
        """Runs the network with the scales that the model or the user states, except those of `without`."""
        applied = {
            name: scale.value
            for name, scale in context.scales.items()
            if (scale.explicit or scale.origin.rule == RECALIBRATED) and name not in without
        }
        observed = self._observer(
            context.graph,
            context.types,
            applied,
            tensors,
            self._samples,
            self._progress,
            where=self._where,
        )
        self._histograms.update(observed)
        return observed

    def _scale(self, tensor: str, context: Context) -> Optional[tuple[float, dict[str, Any]]]:
        """Scale from data; None if there are none."""
        histogram = self._histograms.get(tensor)
        if histogram is None or not histogram.total:
            return None
        method = self._method_of(tensor, context)
        amax = self._range(METHODS[method], histogram) if histogram.amax else 0.0
        row = {
            "tensor": tensor,
            "method": method,
            "samples": len(self._samples),
            "amax_seen": histogram.amax,
            "amax": amax,
            "clipped": clipped(histogram, amax),
            "non_finite": histogram.non_finite,
        }
        return max(amax / INT8_MAX, 0.0 if is_usable(amax / INT8_MAX) else ZERO_SCALE), row

    def _range(self, method: Callable[..., float], *histograms: Histogram) -> float:
        """`tune` asks for the same ones in every translation."""
        key = f"range {method.__name__} {' '.join(row.digest for row in histograms)}"
        found: float = self._where.engine.remembered(key, lambda: method(*histograms))
        return found

    def _method_of(self, tensor: str, context: Context) -> str:
        producer = context.graph.producer.get(tensor)
        general = self._wanted.method
        return general if producer is None else self._wanted.own.get(producer.op_type, general)

    def _origin(self, tensor: str, context: Context, note: str) -> Origin:
        producer = context.graph.producer.get(tensor)
        return Origin(RULE, producer.name if producer is not None else "", "", note)

    def _search(self, context: Context) -> None:
        """Moves the ranges that were not trained, and those of `--recalibrate` (`on_output`)."""
        sets = unify.free_sets(context, self._freed)
        values = {name: scale.value for name, scale in context.scales.items()}
        ratios = {name: value / values[name] for name, (value, _) in self._freed.items()}
        others = [max((ratios[name] for name in names if name in ratios), default=1.0) for names in sets]
        options = SimulationOptions.on(context.policy.target)
        samples = self._samples
        kept = around_normalizations(context.graph) if context.policy.keep_norms else ()
        precisions = dict.fromkeys(kept, "fp16")
        found = search(context.graph, values, precisions, sets, others, samples, options, self._where)
        moved: dict[str, tuple[float, str]] = {}
        for names, factor in zip(sets, found.factors):
            for name in names if factor != 1 else ():
                old = context.scales[name]
                note = f"{old.origin.note}; {factor:.3g} times that on the output's error".lstrip("; ")
                if name in self._freed:
                    moved[name] = (old.value * factor, note)
                else:
                    context.scales.replace(name, old.value * factor, dataclasses.replace(old.origin, note=note))
        if moved:
            self._give_way(moved, context)
        found.report(self._diagnostics)

    # ---------------------------------------------------------------- sets of a DLA

    def _share(self, context: Context) -> None:
        sets = unify.differing_ranges(context)
        everything = list(chain.from_iterable(members for members, _ in sets))
        handed_on = {name for name in everything if unify.is_handed_on(name, context)}
        kept = {name for name in everything if context.scales[name].explicit and context.policy.unify != "data"}
        unseen = set().union(*(applied for _, applied in sets)).difference(self._histograms, kept, handed_on)
        if unseen:  # a rule made their scales of the model's
            self._observe([name for name in context.graph.tensors() if name in unseen], context)
        rows = [row for row in (self._shared(*names, kept, context) for names in sets) if row is not None]
        self._lose(rows, context)
        for row in rows:
            self._take(row, kept, handed_on, context)
        self._report_shared(rows)

    def _shared(
        self, members: list[str], applied: list[str], kept: set[str], context: Context
    ) -> Optional[dict[str, Any]]:
        """The shared range of a set and its cost to tensors with data; None if none has data. kept: tensors whose scale
        stays."""
        seen = {name: self._histograms[name] for name in applied if name in self._histograms and name not in kept}
        own = {name: histogram for name, histogram in seen.items() if histogram.amax > 0}
        if not own:
            return None
        stated = {context.scales[name].value for name in members if name in kept}
        best = max(stated) * INT8_MAX if stated else self._range(lambda *rows: least_error(rows), *own.values())
        costs = {name: self._cost(name, context.scales[name].amax, best) for name in own}
        worst = max(costs, key=lambda name: costs[name])
        taken = not stated or costs[worst] < TRAINED_COST_DB
        about = {"tensors": members, "amax": best, "trained": bool(stated), "taken": taken}
        return {**about, "worst": worst, "cost_db": costs}

    def _lose(self, rows: list[dict[str, Any]], context: Context) -> None:
        layers = {node.name: shared for node, shared in unify.sharing_layers(context)}
        for name, cost in chain.from_iterable(row["cost_db"].items() for row in rows if row["taken"]):
            readers = unify.sharing(name, layers, context)
            if readers:
                self.lost[name] = cost, readers

    def _take(self, row: dict[str, Any], kept: set[str], handed_on: set[str], context: Context) -> None:
        """Gives the range of a set to all its tensors except those of `kept`, if it is accepted."""
        for name in row["tensors"]:
            if name in kept or not row["taken"]:
                continue
            old = context.scales[name]
            origin, note = old.origin, "; ".join(filter(None, (unify.SHARES, old.origin.note)))
            if old.explicit:
                origin = Origin(unify.RULE, origin.node)
            elif name not in handed_on:
                origin = self._origin(name, context, "")
            context.scales.replace(name, row["amax"] / INT8_MAX, dataclasses.replace(origin, note=note))

    def _report_shared(self, rows: list[dict[str, Any]]) -> None:
        taken = [row for row in rows if row["taken"]]
        if not taken:
            return
        worst = max(taken, key=lambda row: row["cost_db"][row["worst"]])
        what = "1 set" if len(taken) == 1 else f"{len(taken)} sets"
        self._diagnostics.info(
            RULE,
            f"{what} of tensors that must share one range on the DLA {'was' if len(taken) == 1 else 'were'} calibrated "
            f"together; '{worst['worst']}' loses the most: {worst['cost_db'][worst['worst']]:.1f} dB.",
            tensor=worst["worst"],
            hint=f"{unify.OTHER_READERS.capitalize()}." if worst["worst"] in self.lost else "",
            data={"sets": rows},
        )

    def _cost(self, tensor: str, own: float, shared: float) -> float:
        """dB of SQNR that the tensor loses on the shared range."""
        histogram = self._histograms[tensor]
        before, after = squared_error(histogram, np.array([own, shared]))
        return 10 * math.log10(max(after, 1e-300) / max(before, 1e-300))

    # ---------------------------------------------------------------- words

    def _report_inputs(self, scales: dict[str, tuple[float, str]], histograms: dict[str, Histogram]) -> None:
        """Report inputs that differ from those used for the model's own scales."""
        for row in audit_scales(scales, histograms).tensors:
            if row.fits:
                continue
            largest, most = max(-row.lowest, row.highest), row.scale * INT8_MAX
            if largest > WRONG_SCALE * most:
                raise UserError(
                    f"Input '{row.tensor}' reaches {largest:.4g}, but the model's range ends at {most:.4g}.",
                    "Scale the samples as in training (images: divide by 255, then mean and deviation).",
                )
            self._diagnostics.warning(
                RULE,
                f"The data for input '{row.tensor}' lie between {row.lowest:.4g} and {row.highest:.4g}; "
                "its own scale covers "
                f"+-{row.scale * INT8_MAX:.4g}: they differ from the data that the model's scales were made with.",
                tensor=row.tensor,
                hint="Check the preprocessing: RGB or BGR, division by 255, mean and standard deviation, layout.",
            )

    def _report_isolated(self, inputs: Iterable[str], histograms: dict[str, Histogram]) -> None:
        """Names inputs whose data hold a few values far from all others: they determine ranges throughout the
        network."""
        for name in inputs:
            histogram = histograms.get(name)
            if histogram is not None and is_isolated(histogram):
                self._diagnostics.warning(
                    RULE,
                    f"The data for input '{name}' reach {histogram.amax:.4g}, but {PERCENTILE:g}% of the "
                    "values stay below "
                    f"{percentile(histogram):.4g}: a few values decide ranges throughout the network.",
                    tensor=name,
                    hint=(
                        "Look for hot pixels or broken samples; if the data cannot be corrected, use "
                        "--calibrate_method percentile."
                    ),
                )

    def _report(self, rows: list[dict[str, Any]], context: Context) -> None:
        diagnostics, samples = self._diagnostics, len(self._samples)
        if samples < FEW_SAMPLES:
            diagnostics.warning(
                RULE,
                (
                    f"Scales were calibrated on {samples} sample{'s' if samples > 1 else ''}: ranges that other inputs "
                    "reach may be clipped."
                ),
                hint="Calibrate on 100 samples or more of the data that the network will see.",
            )
        for row in rows:
            tensor = row["tensor"]
            if not row["amax_seen"]:
                diagnostics.info(
                    RULE,
                    f"Tensor '{tensor}' is 0 in all of the data; its scale is {ZERO_SCALE:.3g}.",
                    tensor=tensor,
                    hint="If it is not 0 on other inputs, calibrate on data that show it.",
                )
            if row["non_finite"]:
                diagnostics.warning(
                    RULE,
                    f"Tensor '{tensor}' had {row['non_finite']} non-finite values, which its scale ignores.",
                    tensor=tensor,
                    hint="Check the data and the preceding layers: 'verify --per_layer' on the same inputs.",
                )
        self._report_dead(context)
        self._report_silent()
        method = ",".join((self._wanted.method, *(f"{op}:{own}" for op, own in self._wanted.own.items())))
        diagnostics.info(
            RULE,
            f"{counted(len(rows), 'tensor')} got a scale from {counted(samples, 'sample')} of data ({method}).",
            data={"tensors": rows, "source": self._samples.source, INPUTS: channel_means(self._samples)},
        )

    def _report_silent(self) -> None:
        silent = [name for name, histogram in self._histograms.items() if not histogram.total]
        if silent:
            self._diagnostics.warning(
                RULE,
                f"{counted(len(silent), 'tensor')} had no finite value in the data and got no scale, for example "
                f"'{silent[0]}'.",
                tensor=silent[0],
                hint="Check the data and the preceding layers.",
                data={"tensors": silent},
            )

    def _report_dead(self, context: Context) -> None:
        """Channels of images that are 0 throughout, in tensors that are not."""
        dead: dict[str, list[int]] = {}
        for name, histogram in self._histograms.items():
            seen = histogram.channels
            if seen is not None and context.types.rank(name) == 4 and seen.any() and not seen.all():
                dead[name] = np.flatnonzero(seen == 0).tolist()
        if dead:
            first = max(dead, key=lambda name: len(dead[name]))
            self._diagnostics.info(
                RULE,
                f"Always 0 in the data: {counted(sum(map(len, dead.values())), 'channel')} of "
                f"{counted(len(dead), 'tensor')}; "
                f"of '{first}' {len(dead[first])} of {len(self._histograms[first].channels)}.",  # type: ignore
                tensor=first,
                hint=(
                    "If they do on other inputs, calibrate on data that show it; their values are clipped to the "
                    "tensor's range."
                ),
                data={"channels": dead},
            )


def _named(wanted: Sequence[str], context: Context) -> list[str]:
    """Tensors with a scale of the model's own, in graph order; of `wanted`, if that is not empty. Raises UserError for
    a tensor without such a scale."""
    stated = {name: scale for name, scale in context.scales.items() if scale.explicit}
    unknown = [name for name in wanted if name not in stated]
    if unknown:
        raise UserError(
            f"--recalibrate: tensor '{unknown[0]}' has no scale in the model.",
            did_you_mean(unknown[0], stated) or "Tensors without one get it from --calibrate alone.",
        )
    return [name for name in context.graph.tensors() if name in (wanted or stated)]


def _note(row: dict[str, Any]) -> str:
    return (
        f"{row['method']} of {row['samples']} samples, largest {row['amax_seen']:.4g}, "
        f"{100 * row['clipped']:.3g}% clipped"
    )


def _cover(context: Context, give: Callable[[str], bool]) -> None:
    """Calls `give` for every tensor that lacks a scale, from the outputs to the inputs, unless its readers propagate
    theirs back (rule S3) or it is inside a normalization."""
    left_alone = inside_normalizations(context.graph)
    for tensor in reversed(context.graph.tensors()):
        if context.lacks(tensor) and tensor not in left_alone and not _handed_back(tensor, context):
            give(tensor)


def _concat_before(tensor: str, graph: Graph) -> Optional[Node]:
    """The Concat whose values the tensor has, in this or another order."""
    node = graph.producer.get(tensor)
    while node is not None and node.is_op(*operators.REARRANGES):
        node = graph.producer.get(node.inputs[0])
    return node if node is not None and node.is_op("Concat") else None


def _concats_before(tensors: Iterable[str], graph: Graph) -> tuple[dict[str, Node], set[str]]:
    """Tensor -> `_concat_before`, and all inputs of these Concats that are not constants."""
    found = {name: node for name in tensors if (node := _concat_before(name, graph)) is not None}
    return found, {part for node in found.values() for part in node.inputs if not graph.is_constant(part)}


def _swallowed(concat: Node, amax: float, seen: Mapping[str, Histogram], graph: Graph) -> Optional[tuple[str, float]]:
    """The input of a Concat with the least SQNR in dB in a range, if that is below LEAST_PART_DB."""
    found: dict[str, float] = {}
    for name in concat.inputs:
        histogram, values = seen.get(name), graph.array(name)
        if histogram is None and values is not None:
            histogram = Histogram()
            histogram.add(values)
        if histogram is not None and histogram.amax > 0:
            found[name] = noise_to_db(float(squared_error(histogram, np.array([amax]))[0]) / energy(histogram))
    worst = min(found, key=lambda name: found[name], default="")
    return (worst, found[worst]) if found and found[worst] < LEAST_PART_DB else None


def _handed_back(tensor: str, context: Context) -> bool:
    """True if an exact rule of a reader gave the tensor its scale."""
    for reader in context.graph.consumers(tensor):
        for rule in (CLIP, HANDED_ON):
            reads = reader.is_op(*rule.ops) and reader.inputs[0] == tensor
            if reads and rule.backward is not None and rule.backward(reader, context):
                return True
    return False
