"""Full translation: an explicit Q/DQ model in, a `Translation` out."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

import onnx

from qdq_translator.core.diagnostics import RENAMED_NODES, Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles, model_name, plain_name
from qdq_translator.core.formats.report_rows import Report, WeightCheck
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.progress import Progress, silent
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.io import Opened, Source, check_text, open_model, with_own_weights
from qdq_translator.ir.operators import RANDOM
from qdq_translator.ir.validate import validate
from qdq_translator.output.emit.write import write_translation
from qdq_translator.output.report.data import make_report
from qdq_translator.output.report.shown import Shown, report_lines
from qdq_translator.passes.annotate import annotate, has_place
from qdq_translator.passes.names import automatic_collisions
from qdq_translator.passes.pipeline import run_passes
from qdq_translator.passes.rewrites import report_left
from qdq_translator.planning.decision import Decision, context_of, decide
from qdq_translator.planning.root_causes import explain, find_root_causes
from qdq_translator.planning.translation import Translated
from qdq_translator.planning.weight_check import check_weights
from qdq_translator.scales.network import Network
from qdq_translator.scales.table import ScaleTable, TensorScale
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.targets.auto_names import Automatic, automatic_scales, report_without
from qdq_translator.targets.parser_network import supports
from qdq_translator.targets.precision import LayerPlan
from qdq_translator.targets.settings import EVERYWHERE, Settings, resolve, with_other_rules

if TYPE_CHECKING:
    from qdq_translator.simulate.inputs import Samples


Model = Union[str, Path, onnx.ModelProto]


class Translation(Shown, Translated):
    """Result of `translate`: the value, and its export to a report and to files. Nothing is written before `save`."""

    @cached_property
    def rows(self) -> Report:
        """The report before a tail was cut off."""
        return make_report(self)

    @cached_property
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
    model: Union[Model, _Given],
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    progress: Progress = silent,
    assume_scales: bool = False,
    where: Evaluation = HERE,
    try_more: bool = True,
    explicit: bool = False,
    given: Optional[Mapping[str, float]] = None,
) -> Translation:
    """Translates one model.

    model: a path, whose files must not change meanwhile, or a ModelProto (copied, not changed). name: base name of the
    files (default: the file's stem, else the graph's name). progress: receives the progress of calibration
    (`--calibrate`). assume_scales: plan as if all tensors had the same scale (`qdq-translator plan`). where: executes
    the calibration (default: this process). try_more: report the effect of further options. explicit: for `explicit`,
    which inserts Q/DQ again (TensorRT 10 and later). given: tensor -> scale, for a float model. Raises UserError,
    always with a remedy.
    """
    options = options or TranslateOptions()
    diagnostics = Diagnostics()
    settings = resolve(options, diagnostics, assume_scales, explicit, given)
    given_model = model if isinstance(model, _Given) else _Given(model)
    network = _earned(given_model, settings, diagnostics, where)
    graph, scales, types = network.graph, network.scales, network.types
    if assume_scales:
        scales.assume(name for name in graph.tensors() if types.is_float(name))
    unchanged = scales.fork()

    samples = _data(graph, settings) if settings.calibration is not None else None
    if samples is not None:
        _refit(network, settings, samples, where)
    types = network.types
    context = context_of(network, scales, settings)
    data = None
    if samples is not None and settings.calibration is not None:
        from qdq_translator.simulate.calibration.data_scales import DataScales

        data = DataScales(samples, settings.calibration, diagnostics, progress, where)
        data.recalibrate(context)
    decision = decide(network, context, settings, diagnostics, data)
    tried = _Tried(given_model, network, unchanged, options, settings, decision)
    name, may_try = name or given_model.name, try_more and data is None
    made = _conclude(network, decision, options, settings, given_model.source, name, tried, may_try)
    if settings.prove and made.rewrites.applied and not assume_scales:
        _prove_precision(given_model, made, settings, where=where, given=given)
    return _strictly(made)


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
    """The same. Raises UserError for warnings with `--strict`."""
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
    if dla is not None and costs is not None:
        from qdq_translator.planning.what_if import saved_by_scales, what_if_on_dla

        saved = saved_by_scales(dla, costs)
    causes = find_root_causes(context, plan, network.users_names(), saved)
    plan = explain(plan, causes.causes)
    if dla is not None and tried is not None:
        if may_try and not settings.assume_scales:
            causes = dataclasses.replace(causes, what_if=what_if_on_dla(decision, tried, *tried.may_rewrite))
        report_left(rewrites, dla, diagnostics, None if options.dla_rewrites else tried.rules)
    weights = check_weights(graph, types, network.trained)
    _report_weights(weights, diagnostics)
    if options.annotate and has_place(graph, diagnostics):
        annotate(graph, types, scales, plan)
    return Translation(
        name,
        graph,
        types,
        scales,
        automatic.scales,
        plan,
        weights,
        diagnostics,
        options,
        source,
        settings.hardware,
        causes,
        decision.shared,
        dla,
        costs,
        rewrites,
        network.users_nodes(),
        types if dla is None else network.planned_types,
        network.trained,
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


class _Given:
    """The given model, which is read again for each selection of rewrites."""

    def __init__(self, model: Model) -> None:
        self._model, self._kept = model, None  # type: Model, Optional[Opened]
        self.source = Source("", "")

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

    def _open(self) -> Opened:
        if not isinstance(self._model, onnx.ModelProto):
            return open_model(self._model)
        copy = onnx.ModelProto()
        copy.CopyFrom(self._model)
        check_text(copy)
        return Opened(*with_own_weights(copy), Source("", ""))


def _read(given: _Given, settings: Settings, diagnostics: Diagnostics, keep: bool = False) -> Network:
    """The network after all passes. keep: see `_Given.graph`."""
    graph = given.graph(keep)
    validate(graph)
    network = Network(graph, diagnostics, settings.input_shapes)
    run_passes(network, settings)
    return network


_NOT_PROVED = "its rewrite could not be proved to be the same function"


def _earned(given: _Given, settings: Settings, diagnostics: Diagnostics, where: Evaluation = HERE) -> Network:
    """As `_read`, without the rewrites that lose too much precision (rule F12) or make the network slower by the
    estimate (rule R1). A Clip is removed instead of rewritten if the calibration data do not reach its bounds (rule
    F12)."""
    said = Diagnostics()
    weighed = bool(settings.hardware.generation) and settings.rewrites in ("on", "approximate")

    def read(settings: Settings, said: Diagnostics) -> Network:
        return _read(given, settings, said, settings.prove or weighed)

    network = read(settings, said)
    if settings.calibration and any(op == "Clip" for one in network.applied for _, op in one.before):
        from qdq_translator.simulate.calibration.data_scales import clip_reach

        plain = _read(given, dataclasses.replace(settings, rewrites="off"), Diagnostics())
        reach = clip_reach(plain, _data(plain.graph, settings), where)
        settings, said = dataclasses.replace(settings, reach=reach), Diagnostics()
        network = read(settings, said)
    if weighed:
        from qdq_translator.planning import earned

        lossy = earned.too_lossy(network, settings)
        if lossy:
            settings, said = dataclasses.replace(settings, refuted=lossy), Diagnostics()
            network = read(settings, said)
            earned.report_left_out(lossy, said)
        network, settings, said = earned.faster(network, settings, said, lossy, read)
    if settings.prove:
        network, said = _proved(given, settings, network, said)
    else:
        given.release()
    diagnostics.extend(said)
    network.diagnostics = diagnostics
    return network


def _proved(given: _Given, settings: Settings, network: Network, said: Diagnostics) -> tuple[Network, Diagnostics]:
    """The network and its messages without the rewrites that compute another function in ONNX Runtime (`--prove`)."""
    from qdq_translator.simulate.prove import SAMPLES, prove

    refuted = {rule: dict(nodes) for rule, nodes in settings.refuted.items()}
    messages = Diagnostics()
    while True:
        scales = {tensor: scale.value for tensor, scale in network.scales.items()}
        found = prove(network.stages, settings.input_shapes, scales)
        if not found:
            break
        known = {rule: set(nodes) for rule, nodes in refuted.items()}
        for row in found:
            # a rule that rewrites the same nodes again does not check exclusions of nodes: the whole rule is left out
            again = known.get(row.rule, set()).issuperset(row.nodes)
            refuted.setdefault(row.rule, {}).update(dict.fromkeys([EVERYWHERE] if again else row.nodes, _NOT_PROVED))
            messages.warning(
                row.rule,
                f"The rewrite of '{row.nodes[0]}' is reverted, because the proof found a difference: {row.what}.",
                node=row.nodes[0],
                hint="The layer stays as it was.",
                data={"nodes": list(row.nodes)},
            )
        settings, said = dataclasses.replace(settings, refuted=dict(refuted)), Diagnostics()
        network = _read(given, settings, said, True)
    said.extend(messages)
    count = sum(len(stage.applied) for stage in network.stages)
    network.stages.clear()
    said.info(
        "D0",
        f"--prove: ONNX Runtime computes the same with each of {count} rewrites and without it, for {SAMPLES} inputs "
        "a rewrite.",
    )
    if settings.rewrites != "approximate" and not any(node.is_op(*RANDOM, "Dropout") for node in network.graph.nodes):
        _prove_whole(given, network, settings, said)
    return network, said


def _prove_whole(given: _Given, network: Network, settings: Settings, diagnostics: Diagnostics) -> None:
    """Compares the model without its quantizers with the network that is written, on calibration data or random inputs.
    Raises UserError if they differ; adds a note if ONNX Runtime cannot run one of them."""
    from qdq_translator.simulate.run import ExplicitNetwork
    from qdq_translator.simulate.verdict import other_function, without_rounding

    scales = {tensor: scale.value for tensor, scale in network.scales.items()}
    try:
        samples, _ = _proof_inputs(network.graph, settings, scales)
        explicit = ExplicitNetwork.of(given.graph(keep=True))
        without_rounding(explicit.graph, explicit.ends)
        differing = other_function(explicit.graph, network.graph, samples)
    except UserError as error:
        diagnostics.info("D0", f"--prove: the network as a whole could not be compared: {error}")
        return
    for output, db in differing.items():
        raise UserError(
            f"--prove: output '{output}' of the translated network is {db:.1f} dB away from the model as given, "
            "both in float.",
            "This is a bug: please report it with the model; --without dla_rewrites may avoid it.",
        )


def _prove_precision(model: _Given, made: Translation, settings: Settings, **more: Any) -> None:
    """SQNR and INT8 values of the planned precision, without the rewrites and with them, on the calibration data or
    random inputs. more: further arguments of `translate`."""
    from qdq_translator.planning.steps import MOST
    from qdq_translator.simulate.prove import planned_precision

    options = dataclasses.replace(
        made.options, dla_rewrites=False, prove=False, dla_output="same", preset=None, without=[], strict=False
    )
    try:
        plain = translate(model, options, try_more=False, **more)
        samples, which = _proof_inputs(made.graph, settings, made.tensor_scales)
        feeds = (samples.feed(run) for run in range(min(samples.runs, PROVED_RUNS)))
        found = planned_precision(plain, made, feeds)
    except UserError as error:
        made.diagnostics.info("D0", f"--prove: the planned precision could not be compared: {error}")
        return
    values = (
        f"{found.equal:.2%} of the INT8 values of {found.tensors} tensors are equal"
        if found.tensors
        else "no INT8 tensor is in both"
    )
    change = f"{found.before:.1f} dB without the rewrites, {found.after:.1f} dB with them"
    text = f"--prove, in the planned precision on {which}: {change}; {values}."
    data = {"before": found.before, "after": found.after, "equal": found.equal, "first": found.first}
    worse = found.after < min(found.before - MOST, ONE_ROUNDING)
    tell = made.diagnostics.warning if worse else made.diagnostics.info
    tell("D0", text, tensor=found.first, data=data)


def _proof_inputs(graph: Graph, settings: Settings, scales: Mapping[str, float]) -> tuple[Samples, str]:
    """Proof inputs and their description."""
    if settings.calibration is not None:
        return _data(graph, settings), "calibration data"
    from qdq_translator.simulate.prove import random_inputs

    return random_inputs(graph, settings.input_shapes, scales), "random inputs"


ONE_ROUNDING = 25.0
"""Least SQNR in dB after one rounding to INT8, of a tensor whose root mean square is a 25th of its range."""
PROVED_RUNS = 16
_LARGEST_TRIED = 1 << 27
"""Weights up to which a network is read again to find the effect of `--dla_rewrites` (512 MiB in float32)."""


@dataclasses.dataclass
class _Tried:
    """Try the model with other options: on the same network, or on one that is read again if rewrites change."""

    _model: _Given
    _network: Network
    _given: ScaleTable
    _options: TranslateOptions
    _settings: Settings
    _now: Decision
    _rewritten: dict[str, Network] = dataclasses.field(default_factory=dict)

    def __call__(self, change: dict[str, Any]) -> Decision:
        """change: options and their values. Raises UserError as `translate` does."""
        settings = with_other_rules(self._settings, dataclasses.replace(self._options, **change))
        network, given = self._network, self._given
        like: Optional[Decision] = self._now
        if settings.rewrites != self._settings.rewrites:
            if settings.rewrites not in self._rewritten:
                self._rewritten[settings.rewrites] = _earned(self._model, settings, Diagnostics())
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


def _data(graph: Graph, settings: Settings) -> Samples:
    """The calibration data."""
    from qdq_translator.simulate.calibration.data_scales import load_data

    assert settings.calibration is not None
    return load_data(graph, settings.calibration, settings.input_shapes)


def _refit(network: Network, settings: Settings, samples: Samples, where: Evaluation) -> None:
    """Apply `--equalize` and `--unify_scales requantize`. Raises UserError for `--equalize` of a network with its own
    scales, because its quantized weights would change; and if the proof refutes the added Scales, which is a bug."""
    from qdq_translator.simulate.calibration.equalize import equalize
    from qdq_translator.simulate.calibration.requantize import requantize
    from qdq_translator.simulate.inputs import only_finite
    from qdq_translator.simulate.prove import prove

    assert settings.calibration is not None
    equalizes = settings.calibration.equalize
    requantizes = settings.policy.unify == "requantize" and bool(settings.hardware.generation)
    if equalizes and (settings.keep_model or next(iter(network.scales.items()), None) is not None):
        raise UserError(
            "--equalize rescales weights, and this model has scales or weights that must stay as they are.",
            "Give the float model and --calibrate, without --keep_model.",
        )
    if equalizes or requantizes:
        samples = only_finite(samples, settings.calibration.ignore_nonfinite, where=where)
    if equalizes:
        equalize(network, settings, samples, where).report(network.diagnostics)
    if requantizes:
        requantize(network, settings, samples, network.diagnostics, where)
        for row in prove(network.stages, settings.input_shapes, {}):
            raise UserError(
                f"--prove: '{row.nodes[0]}': {row.what}.", "This is a bug: please report it with the model."
            )
        network.stages.clear()


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
