"""Full translation: an explicit Q/DQ model in, a `Translation` out."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Union

import onnx

from qdq_translator.core.diagnostics import RENAMED_NODES, Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles, model_name, plain_name
from qdq_translator.core.formats.report_rows import Report, WeightCheck
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.options import SOUND, TranslateOptions
from qdq_translator.translation.files.write import write_translation
from qdq_translator.translation.ir.bounds import value_range
from qdq_translator.translation.ir.fixed import with_fixed
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import Opened, Source, check_text, open_model, with_own_weights
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.validate import check_shapes, validate
from qdq_translator.translation.laboratory import Laboratory, needed
from qdq_translator.translation.passes.annotate import annotate, has_place
from qdq_translator.translation.passes.names import automatic_collisions
from qdq_translator.translation.passes.pipeline import run_passes
from qdq_translator.translation.passes.rewrites import report_left
from qdq_translator.translation.planning.decision import Decision, context_of, decide
from qdq_translator.translation.planning.root_causes import explain, find_root_causes
from qdq_translator.translation.planning.saturating import (
    Unsaturated,
    free_on_dla,
    report_idle,
    report_open,
    unsaturated,
)
from qdq_translator.translation.planning.translation import Translated
from qdq_translator.translation.planning.weight_check import check_weights
from qdq_translator.translation.report.data import make_report
from qdq_translator.translation.report.shown import Shown, report_lines
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.scales.table import ScaleTable, TensorScale
from qdq_translator.translation.targets.auto_names import Automatic, automatic_scales, report_without
from qdq_translator.translation.targets.parser_network import supports
from qdq_translator.translation.targets.precision import LayerPlan
from qdq_translator.translation.targets.settings import Settings, resolve, with_other_rules

if TYPE_CHECKING:
    from qdq_translator.translation.planning.earned import Outcome
    from qdq_translator.translation.targets.cost.estimate import Original

Model = Union[str, Path, onnx.ModelProto]


class Translation(Shown, Translated):
    """Result of `translate`: the value, and its export to a report and to files. Nothing is written before `save`."""

    @functools.cached_property
    def rows(self) -> Report:
        """The report before a tail was cut off."""
        return make_report(self)

    @functools.cached_property
    def report(self) -> dict[str, Any]:
        """Content of `NAME_report.json` (docs/report_schema.md)."""
        return plain(self.rows)

    @property
    def layers(self) -> list[LayerPlan]:
        """The plan, one row per layer; `pandas.DataFrame(translation.layers)` makes a table of them."""
        return self.plan

    def to_dict(self) -> dict[str, Any]:
        """A copy of the report."""
        return copy.deepcopy(self.report)

    def _shown_report(self) -> Report:
        return self.rows

    def lines(self) -> list[str]:
        """Model, coverage, estimated time and the largest causes."""
        return ["Translation", *report_lines(self.rows)]

    def save(self, output_dir: Union[str, Path] = "./translated") -> TranslationFiles:
        """Write all files of `TranslationFiles`, all or none. Raises UserError if the folder cannot be written."""
        return write_translation(self, self.report, Path(output_dir))


def translate(
    model: Model,
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    lab: Optional[Laboratory] = None,
    assume_scales: bool = False,
    try_more: bool = True,
    explicit: bool = False,
    given: Optional[Mapping[str, float]] = None,
) -> Translation:
    """Translates one model.

    model: a path, whose files must not change meanwhile, or a ModelProto (copied, not changed). name: base name of the
    files (default: the file's stem, else the graph's name). lab: measures for `--calibrate`, which
    needs it. assume_scales: plan as if all tensors had the same scale (`qdq-translator plan`). try_more: report
    the effect of further options. explicit: for `explicit`, which inserts Q/DQ again (TensorRT 10 and later). given:
    tensor -> scale, for a float model. Raises UserError, always with a remedy.
    """
    opened = Given(model)
    ready = prepared(opened, options, name, lab, assume_scales, explicit, given)
    again = functools.partial(prepared, opened, options, ready.name, lab, explicit=explicit, given=given)
    idle = frozenset(_idle(ready, lab))
    ready = again(idle=idle) if idle else ready
    unchanged = ready.given_scales
    decision = ready.decided(ready.settings, ready.network.scales, ready.network.diagnostics)
    while more := _more_saturating(ready, decision, lab):
        ready = again(saturating=more, idle=idle)
        unchanged = ready.given_scales
        decision = ready.decided(ready.settings, ready.network.scales, ready.network.diagnostics)
    settings, network = ready.settings, ready.network
    report_idle(idle, network.diagnostics)
    if lab is not None and not assume_scales:
        lab.check_function(_read(opened, settings, Diagnostics(), before="quantizers"), network, settings)
    opened.release()
    tried = _Tried(opened, network, unchanged, ready.options, settings, decision)
    may_try = try_more and ready.samples is None
    made = _conclude(network, decision, ready.options, settings, opened.source, ready.name, tried, may_try)
    return _strictly(made)


@dataclasses.dataclass
class Prepared:
    """A model after all passes, with its calibration data (None without --calibrate). `decided` infers its scales and
    decides its plan, for any number of options that change neither layers nor weights."""

    given: Given
    name: str
    options: TranslateOptions
    settings: Settings
    network: Network
    samples: Any
    lab: Optional[Laboratory]
    weighed: Optional[Outcome] = None
    """The plan for these settings and the model's scales, if the search for rewrites made it."""

    @functools.cached_property
    def given_scales(self) -> ScaleTable:
        """The scales of the model itself."""
        return self.network.scales.fork()

    def sketch(self, made: Decision, options: TranslateOptions) -> Translated:
        """The translation of a decision, for simulation: without causes, checks of weights and TensorRT's own names."""
        network, types = self.network, self.network.types
        scales, hardware = made.context.scales, self.settings.hardware
        return Translated(
            name=self.name,
            graph=network.graph,
            types=types,
            scales=scales,
            plan=made.plan,
            diagnostics=Diagnostics(),
            options=options,
            source=self.given.source,
            hardware=hardware,
            shared_ranges=made.shared,
            dla=made.dla,
            costs=made.costs,
            rewrites=made.rewrites,
            planned_types=types,
        )

    def decided(self, settings: Settings, scales: ScaleTable, diagnostics: Diagnostics) -> Decision:
        """Infer scales and decide. scales: those of the model, to which the inferred ones are added."""
        if self.weighed is not None and settings is self.settings and scales is self.network.scales:
            diagnostics.extend(self.weighed.messages)
            return self.weighed.decision
        context, data = context_of(self.network, scales, settings), None
        if settings.calibration is not None:
            data = needed(self.lab).observer(settings, self.samples, diagnostics)
            data.recalibrate(context)
        return decide(self.network, context, settings, diagnostics, data)


def prepared(
    model: Union[Model, Given],
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    lab: Optional[Laboratory] = None,
    assume_scales: bool = False,
    explicit: bool = False,
    given: Optional[Mapping[str, float]] = None,
    saturating: frozenset[str] = frozenset(),
    idle: frozenset[tuple[str, int]] = frozenset(),
) -> Prepared:
    """The first half of `translate`, which explains the arguments. model: a `Given` stays open for another reading,
    until its owner releases it. saturating, idle: see `Settings`. Raises UserError."""
    options, diagnostics = options or TranslateOptions(), Diagnostics()
    settings = resolve(options, diagnostics, assume_scales, explicit, given)
    settings = dataclasses.replace(settings, saturating=saturating, idle=idle)
    opened = model if isinstance(model, Given) else Given(model)
    (network, weighed), samples = _earned(opened, settings, diagnostics, keep=opened is model), None
    if opened is not model:
        opened.release()
    if assume_scales:
        network.scales.assume(name for name in network.graph.tensors() if network.types.is_float(name))
    if settings.calibration is not None:
        samples = needed(lab).samples(network.graph, settings)
        needed(lab).refit(network, settings, samples)
    return Prepared(opened, name or opened.name, options, settings, network, samples, lab, weighed)


def _more_saturating(ready: Prepared, decision: Decision, lab: Optional[Laboratory]) -> frozenset[str]:
    """The symmetric quantizers whose saturation must be a node, if the plan has further ones (rule Q9); none without
    the rules of the presets, which is NVIDIA's behaviour."""
    settings, network = ready.settings, ready.network
    as_is = settings.asymmetric == "error" or not SOUND.difference(ready.options.without) <= settings.policy.on
    if settings.assume_scales or as_is:
        return frozenset()
    rows = _acting(ready, list(unsaturated(network, decision)), lab)
    found = settings.saturating.union(row.quantizer for row in rows)
    return found if found != settings.saturating else frozenset()


def _idle(ready: Prepared, lab: Optional[Laboratory]) -> Iterator[tuple[str, int]]:
    """The bounds of quantizers with zero points that no data reach and a DLA cannot have for nothing: each would be
    several layers. A lower bound of 0 is a Relu."""
    network, ranges = ready.network, {}
    if ready.settings.hardware.generation and ready.samples is not None:
        for name, (_, (low, high)) in network.saturations.items():
            least = -math.inf if low in (None, 0.0) else low
            ranges[name] = least, math.inf if high is None or free_on_dla(low, high) else high
    acting = needed(lab).exceeded(network, ready.samples, ranges) if ranges else {}
    for name, ends in acting.items():
        for end, acts in enumerate(ends):
            if not acts and math.isfinite(ranges[name][end]):
                yield network.saturations[name][0], end


def _acting(ready: Prepared, rows: list[Unsaturated], lab: Optional[Laboratory]) -> list[Unsaturated]:
    """The saturations that become a node, as `planning.saturating` explains; the others are reported."""
    settings, network = ready.settings, ready.network
    if rows and ready.samples is not None:
        ranges = {row.tensor: (-128 * row.scale, 127 * row.scale) for row in rows}
        acting = needed(lab).exceeded(network, ready.samples, ranges)
        return [row for row in rows if any(acting[row.tensor])]
    if not settings.hardware.generation:
        return rows
    chosen = [row for row in rows if free_on_dla(value_range(network.graph, row.tensor)[0], 127 * row.scale)]
    report_open([row for row in rows if row not in chosen], network.diagnostics)
    return chosen


def translate_part(
    graph: Graph, scales: Mapping[str, TensorScale], options: TranslateOptions, name: str, source: Source
) -> Translation:
    """A part of a translated network: planned again with its existing scales only."""
    diagnostics = Diagnostics()
    settings = resolve(options, diagnostics)
    network = Network(graph, diagnostics)
    network.scales.settle(options.on_conflict, diagnostics)
    for tensor, scale in scales.items():
        network.scales.infer(tensor, scale.value, scale.origin)
    network.withhold(*(tensor for tensor in graph.tensors() if tensor not in scales))
    decision = decide(network, context_of(network, network.scales, settings), settings, diagnostics)
    return _strictly(_conclude(network, decision, options, settings, source, name))


def _strictly(made: Translation) -> Translation:
    """The translation as it is. Raises UserError for a warning with `--strict`."""
    warnings = made.diagnostics.warnings
    if made.options.strict and warnings:
        raise UserError(
            f"Warnings are errors with --strict (1 of {len(warnings)}): {warnings[0]}",
            "" if warnings[0].hint else "Translate without --strict to see them all.",
        )
    return made


def _conclude(
    network: Network,
    decision: Decision,
    options: TranslateOptions,
    settings: Settings,
    source: Source,
    name: str,
    tried: Optional[_Tried] = None,
    may_try: bool = False,
) -> Translation:
    """Build the value from the decision. tried: for examining other options (may_try: even if no scale is missing)."""
    graph, types, context, diagnostics = network.graph, network.types, decision.context, network.diagnostics
    scales, dla, costs, rewrites = context.scales, decision.dla, decision.costs, decision.rewrites
    automatic, plan = _automatic(network, decision, options, settings)
    saved = None
    if dla is not None and costs is not None:  # imported here, because translation for a GPU does not need them
        from qdq_translator.translation.planning.regions import report_placed
        from qdq_translator.translation.planning.what_if import saved_by_scales, what_if_on_dla

        saved = saved_by_scales(dla, costs)
    plan = explain(plan, (causes := find_root_causes(context, plan, network.users_names(), saved)).causes)
    if dla is not None and tried is not None:
        if may_try and not settings.assume_scales:
            causes = dataclasses.replace(causes, what_if=what_if_on_dla(decision, tried, *tried.may_rewrite))
        report_left(rewrites, dla, diagnostics, None if options.dla_rewrites else tried.rules)
        report_placed(decision.placed, costs, diagnostics)
    _report_weights(weights := check_weights(graph, types, network.trained), diagnostics)
    if options.annotate and has_place(graph, diagnostics):
        annotate(graph, types, scales, plan)
    return Translation(
        name=name,
        graph=graph,
        types=types,
        scales=scales,
        automatic=automatic.scales,
        plan=plan,
        weights=weights,
        diagnostics=diagnostics,
        options=options,
        source=source,
        hardware=settings.hardware,
        causes=causes,
        shared_ranges=decision.shared,
        dla=dla,
        costs=costs,
        rewrites=rewrites,
        users_nodes=network.users_nodes(),
        planned_types=types if dla is None else network.planned_types,
        trained=network.trained,
    )


def _automatic(
    network: Network, decision: Decision, options: TranslateOptions, settings: Settings
) -> tuple[Automatic, list[LayerPlan]]:
    """Scales of tensors that only TensorRT's own network has, and the plan, with a remark on layers that lack one."""
    graph, hardware, automatic, diagnostics = network.graph, settings.hardware, Automatic(), network.diagnostics
    renamed = {name for d in diagnostics for name in d.data.get(RENAMED_NODES, ())} if settings.keep_model else set()
    certain = not settings.keep_model or not (renamed or automatic_collisions(graph))
    if hardware.origin != "default" and supports(hardware.tensorrt) and not options.no_auto_names and certain:
        automatic = automatic_scales(graph, network.types, decision.context.scales, hardware.tensorrt)
    plan = report_without(decision.plan, automatic, hardware.tensorrt, diagnostics)
    if renamed:  # a layer argument cannot name them in the user's file
        plan = [dataclasses.replace(row, listed=False) if row.name in renamed else row for row in plan]
    return automatic, plan


class Given:
    """The given model, which is read again for each selection of rewrites."""

    def __init__(self, model: Model) -> None:
        self._model, self._kept = model, None  # type: Model, Optional[Opened]
        self.checked = False
        """Whether its shapes fit each other."""
        self.types: Optional[TensorTypes] = None
        """Before all passes, for the readings of one search."""
        self.source = Source("", "")
        self.baked: dict[str, Any] = {}
        """See `Network`."""

    @property
    def name(self) -> str:
        """Base name of its files. `graph` checks the texts of a model in memory."""
        model = self._model
        return plain_name(model.graph.name) if isinstance(model, onnx.ModelProto) else model_name(os.fspath(model))

    def graph(self, keep: bool = False) -> Graph:
        """The graph before all passes. keep: the next call shares the weights; else they are read again."""
        opened, self._kept = self._kept or self._open(), None
        self.source = opened.source
        if not keep:
            return opened.graph()
        self._kept = opened
        return Graph.from_picture((opened.model, {name: weight.copy() for name, weight in opened.weights.items()}))

    def release(self) -> None:
        """Free the weights unless networks that were read still use them."""
        self._kept = None
        self.baked.clear()

    def _open(self) -> Opened:
        if not isinstance(self._model, onnx.ModelProto):
            return open_model(self._model)
        copy = onnx.ModelProto()
        copy.CopyFrom(self._model)
        check_text(copy)
        return Opened(*with_own_weights(copy), Source("", ""))


def _read(
    given: Given,
    settings: Settings,
    diagnostics: Diagnostics,
    keep: bool = False,
    before: str = "",
    original: Optional[Original] = None,
) -> Network:
    """The network after all passes, or those `before` one. keep: see `Given.graph`. original: of an earlier reading."""
    graph = given.graph(keep)
    if settings.fixed:
        graph = with_fixed(graph, settings.fixed)
    validate(graph)
    network = Network(graph, diagnostics, settings.input_shapes)
    if not given.checked:
        given.types = check_shapes(graph, settings.input_shapes, batch_of_one=bool(settings.hardware.generation))
        given.checked = True
    network.before = given.types
    network.original, network.baked = original, given.baked
    run_passes(network, settings, before=before)
    return network


def _earned(
    given: Given, settings: Settings, diagnostics: Diagnostics, keep: bool = False
) -> tuple[Network, Optional[Outcome]]:
    """The network that `_read` returns (keep: for a reading after this one), without the rewrites that lose too much
    precision (rule F12) or make the network slower by the estimate (rule R1); its plan, if that is known by now."""
    said, weighing, network = Diagnostics(), None, None  # type: Diagnostics, Optional[Outcome], Optional[Network]
    weighed = bool(settings.hardware.generation) and settings.rewrites in ("on", "approximate")

    def read(settings: Settings, said: Diagnostics) -> Network:
        original = None if network is None else network.original
        return _read(given, settings, said, weighed or keep, original=original)

    network = read(settings, said)
    if weighed:
        from qdq_translator.translation.planning import earned

        lossy = earned.too_lossy(network, settings)
        if lossy:
            settings, said = dataclasses.replace(settings, refuted=lossy), Diagnostics()
            network = read(settings, said)
            earned.report_left_out(lossy, said)
        network, settings, said, weighing = earned.faster(network, settings, said, lossy, read)
    given.types = None
    diagnostics.extend(said)
    network.diagnostics = diagnostics
    return network, weighing if settings.calibration is None else None


_LARGEST_TRIED = 1 << 27
"""Weights up to which a network is read again to find the effect of `--dla_rewrites` (512 MiB in float32)."""


@dataclasses.dataclass
class _Tried:
    """Try the model with other options: on the same network, or on one that is read again if rewrites change."""

    _model: Given
    _network: Network
    _given: ScaleTable
    _options: TranslateOptions
    _settings: Settings
    _now: Decision
    _rewritten: dict[str, Network] = dataclasses.field(default_factory=dict)

    def __call__(self, change: dict[str, Any]) -> Decision:
        """The decision with other options. change: options and their values. Raises UserError as `translate` does."""
        settings = with_other_rules(self._settings, dataclasses.replace(self._options, **change))
        network, given = self._network, self._given
        like: Optional[Decision] = self._now
        if settings.rewrites != self._settings.rewrites:
            if settings.rewrites not in self._rewritten:
                self._rewritten[settings.rewrites] = _earned(self._model, settings, Diagnostics())[0]
                self._model.release()
            network = self._rewritten[settings.rewrites]
            given, like = network.scales, None
        return decide(network, context_of(network, given.fork(), settings), settings, Diagnostics(), like=like)

    @property
    def rules(self) -> list[str]:
        """Rules that `--dla_rewrites` applied, if it was tried."""
        return list(dict.fromkeys(a.rule for a in self._rewritten["on"].applied)) if "on" in self._rewritten else []

    @property
    def may_rewrite(self) -> tuple[bool, bool]:
        """Whether reading it again with rewrites, and with approximations, is possible and cheap enough."""
        sizes = (math.prod(tensor.dims) for tensor in self._network.graph.initializers.values())
        small = sum(sizes) <= _LARGEST_TRIED
        return small and self._settings.rewrites == "off", small and self._settings.rewrites in ("off", "on")


def _report_weights(weights: list[WeightCheck], diagnostics: Diagnostics) -> None:
    for row in weights:
        if row.exact:
            continue
        place = {"node": row.node, "tensor": row.weight}
        if row.note:
            diagnostics.warning("W1", f"Weight '{row.weight}' of '{row.node}': {row.note}.", **place)
            continue
        below = row.channels - row.full_channels - row.mixed_channels
        if row.one_scale:
            why = "it has one scale for all of them, because it is not the second matrix of a product of two"
        elif row.mixed_channels:
            more = f", {below} do not reach +-127" if below else ""
            why = f"{row.mixed_channels} of {row.channels} output channels have several scales{more}"
        else:
            why = f"{below} of {row.channels} channels do not reach +-127"
        diagnostics.info(
            "W1",
            f"TensorRT will requantize weight '{row.weight}' of '{row.node}': {100 * row.share:.4g}% of its quantized "
            f"values stay as trained ({why}); largest error {100 * row.largest_error:.2g}% of the channel's range.",
            **place,
            data=plain(row),
        )
