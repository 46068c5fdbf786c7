"""The way through the house: an explicit Q/DQ model in, a `Translation` out."""

from __future__ import annotations

import dataclasses
import os
from functools import cached_property
from pathlib import Path
from typing import Any, Optional, Union

import onnx

from qdq_translator.auto_names import Automatic, automatic_scales, report_without
from qdq_translator.diagnostics import Diagnostics
from qdq_translator.emit.calibration_cache import CalibrationCache, make_cache
from qdq_translator.emit.files import TranslationFiles, model_name, plain_name
from qdq_translator.errors import UsageError, UserError
from qdq_translator.graph import Graph
from qdq_translator.inference import Context, infer_scales
from qdq_translator.inference.unify import SharedRange, unify_scales
from qdq_translator.io import Source, load_model
from qdq_translator.kept import kept_layers
from qdq_translator.options import TranslateOptions, parse_shapes
from qdq_translator.parser_network import supports
from qdq_translator.passes import cleanup, names
from qdq_translator.passes.annotate import annotate
from qdq_translator.passes.dla import Rewrites, report_left, rewrite_for_dla
from qdq_translator.passes.fold_batchnorm import fold_batchnorm
from qdq_translator.passes.fold_pad import fold_pads
from qdq_translator.passes.kernel_shape import complete_convolutions
from qdq_translator.passes.opset import lower_opset
from qdq_translator.passes.strip import TrainedWeight, strip
from qdq_translator.precision import LayerPlan, explain, fp16_nodes, make_plan
from qdq_translator.root_causes import RootCauses, find_root_causes
from qdq_translator.scales import ScaleTable
from qdq_translator.targets.dla.verdicts import DlaPlan, judge, tensorrt_version
from qdq_translator.targets.platforms import (
    DEFAULT_CACHE_VERSION,
    Platform,
    cache_version,
    find_platform,
    installed_tensorrt,
    tensorrt_major,
)
from qdq_translator.types import TensorTypes
from qdq_translator.validate import validate
from qdq_translator.weight_check import WeightCheck, check_weights


@dataclasses.dataclass(frozen=True)
class CacheVersion:
    """The number in the cache header and who said so: 'option', 'platform', 'installed' or 'default'."""

    number: str
    origin: str
    platform: Optional[Platform] = None

    @property
    def tensorrt_major(self) -> int:
        return tensorrt_major(self.number)


@dataclasses.dataclass
class Translation:
    """A translated model and everything known about it. Nothing is written before `save`."""

    name: str
    graph: Graph
    types: TensorTypes
    scales: ScaleTable
    automatic: dict[str, float]
    plan: list[LayerPlan]
    weights: list[WeightCheck]
    diagnostics: Diagnostics
    options: TranslateOptions
    source: Source
    version: CacheVersion
    causes: RootCauses
    shared_ranges: list[SharedRange]
    dla: Optional[DlaPlan]
    rewrites: Rewrites

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The stripped model: no Q/DQ, all tensors float."""
        return self.graph.to_model()

    @cached_property
    def tensor_scales(self) -> dict[str, float]:
        """Every float tensor of the stripped model that has a scale, in graph order: inputs, then node outputs."""
        ordered = [*self.graph.inputs, *(name for node in self.graph.nodes for name in node.outputs)]
        return {n: self.scales[n].value for n in ordered if n in self.scales and self.types.is_float(n)}

    @property
    def fp16_nodes(self) -> list[str]:
        return fp16_nodes(self.plan)

    @property
    def cache(self) -> CalibrationCache:
        """What TensorRT reads: the tensors of the model, then those that only its own network has (rule S10)."""
        entries = {**self.tensor_scales, **self.automatic}
        return make_cache(self.version.number, entries, entries)

    @cached_property
    def report(self) -> dict[str, Any]:
        """What `NAME_report.json` holds (docs/report_schema.md)."""
        from qdq_translator.report.data import make_report

        return make_report(self)

    def save(self, output_dir: Union[str, Path] = "./translated") -> TranslationFiles:
        """Writes all files of `TranslationFiles`, all or none. Raises UserError where the folder cannot be written."""
        from qdq_translator.emit.write import write_translation

        return write_translation(self, Path(output_dir))


def resolve_version(options: TranslateOptions, diagnostics: Diagnostics) -> CacheVersion:
    """`--trt_calib_version`, else `--platform`, else the installed TensorRT, else 8600 with a note.

    Raises UsageError for a number or a platform that is none, UserError for TensorRT 11 and later.
    """
    platform = find_platform(options.platform) if options.platform else None
    if options.trt_calib_version:
        number = str(options.trt_calib_version)
        if not number.isdigit() or not 4 <= len(number) <= 6 or number.startswith("0"):
            raise UsageError(
                f"--trt_calib_version {number} is no TensorRT version number.",
                "It counts like 8602 (8.6.2) or 100300 (10.3.0).",
            )
        _refuse_explicit_only(tensorrt_major(number), f"--trt_calib_version {number}")
        return CacheVersion(number, "option", platform)
    if platform is not None:
        return CacheVersion(platform.cache_version, "platform", platform)
    installed = installed_tensorrt()
    if installed is not None and installed[0] < 11:
        return CacheVersion(cache_version(installed), "installed")
    diagnostics.info(
        "F6",
        f"No platform was named and no TensorRT with implicit INT8 is installed: the cache header says {DEFAULT_CACHE_VERSION}. "
        "TensorRT 10 rejects it.",
        mend="Name the target with --platform (for example jetpack-6.2) or --trt_calib_version.",
    )
    return CacheVersion(DEFAULT_CACHE_VERSION, "default")


def _refuse_explicit_only(major: int, who: str) -> None:
    if major >= 11:
        raise UserError(
            f"{who} means TensorRT {major}, which has no implicit quantization.",
            "Build the Q/DQ model itself there, strongly typed ('qdq-translator restore --complete').",
        )


def translate(
    model: Union[str, Path, onnx.ModelProto],
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
) -> Translation:
    """Translates one model.

    model: a path, or a ModelProto (copied, not changed). name: what the files are called (default: the file's stem,
    else the graph's name). Raises UserError, always with a way to mend it.
    """
    options = options or TranslateOptions()
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        model, source = copy, Source("", "")
        name = name or plain_name(model.graph.name)
    else:
        name = name or model_name(os.fspath(model))
        model, source = load_model(model)
    diagnostics = Diagnostics()
    version = resolve_version(options, diagnostics)
    graph = Graph.from_model(model)
    del model
    validate(graph)
    names.name_nodes(graph, diagnostics)
    names.clean_tensor_names(graph)
    if options.rename_node_outputs:
        names.rename_node_outputs(graph)

    scales = ScaleTable()
    trained = strip(graph, scales, diagnostics, options)
    scales.settle(options.on_conflict, diagnostics)
    graph = _fold(graph, scales, trained, options)

    input_shapes = parse_shapes(options.shapes)
    tensorrt = version.platform.tensorrt if version.platform else tensorrt_version(version.number)
    rewrites = rewrite_for_dla(graph, scales, trained, options, tensorrt, diagnostics, input_shapes)
    _fit_to_parser(graph, input_shapes, version, diagnostics)
    # nodes that the passes added are called after tensors, whose names may hold what a layer's must not
    names.name_nodes(graph, Diagnostics())
    for old, new in names.avoid_automatic_names(graph, diagnostics).items():
        if old in trained:
            trained[new] = trained.pop(old)
    types = TensorTypes(graph, input_shapes)
    cleanup.remove_wrong_shapes(graph, types, diagnostics)

    context = Context(graph, types, scales, options, rewrites.derived, rewrites.withheld)
    infer_scales(context, diagnostics)
    shared = unify_scales(context, diagnostics)
    automatic = Automatic()
    if version.origin != "default" and supports(tensorrt) and not options.no_auto_names:
        automatic = automatic_scales(graph, types, scales, tensorrt)
    kept = kept_layers(options.keep_fp16, (node.name for node in graph.nodes), rewrites.nodes)
    plan = make_plan(graph, types, scales, kept)
    causes = find_root_causes(context, plan)
    plan = report_without(explain(plan, causes), automatic, tensorrt, diagnostics)
    dla = None
    if options.target != "gpu":
        dla = judge(context, plan, tensorrt, version.platform)
        report_left(rewrites, dla, diagnostics)
    weights = check_weights(graph, trained)
    _report_weights(weights, diagnostics)
    if options.annotate:
        annotate(graph, types, scales, plan, dla, diagnostics)
    translation = Translation(
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
        version,
        causes,
        shared,
        dla,
        rewrites,
    )
    if options.strict and diagnostics.warnings:
        first = diagnostics.warnings[0]
        raise UserError(
            f"Warnings are errors with --strict (1 of {len(diagnostics.warnings)}): {first}",
            "" if first.mend else "Translate without --strict to see them all.",
        )
    return translation


def _fold(graph: Graph, scales: ScaleTable, trained: dict[str, TrainedWeight], options: TranslateOptions) -> Graph:
    """Rules F1 to F4. Weights that were copied or renamed keep their trained codes in `trained`."""
    cleanup.constants_to_initializers(graph)
    if options.graph_optimizer == "onnxoptimizer":
        from qdq_translator.passes.onnxoptimizer_backend import optimize

        graph = optimize(graph, scales, trained)
    ranks: list[TensorTypes] = []

    def rank(tensor: str) -> Optional[int]:
        if not ranks:
            ranks.append(TensorTypes(graph))
        return ranks[0].rank(tensor)

    for weight in fold_batchnorm(graph, scales, rank):
        if weight.old in trained:
            trained[weight.new] = trained[weight.old]
    fold_pads(graph, scales)
    cleanup.remove_dead_nodes(graph)
    cleanup.remove_unused_initializers(graph)
    return graph


def _fit_to_parser(
    graph: Graph, input_shapes: dict[str, list[int]], version: CacheVersion, diagnostics: Diagnostics
) -> None:
    """Rule F6."""
    complete_convolutions(graph, diagnostics)
    if version.tensorrt_major == 8 and graph.opset() > 17:
        before = graph.opset()
        try:
            rewritten = lower_opset(graph, TensorTypes(graph, input_shapes))
        except UserError as error:
            if version.origin != "default":
                raise
            diagnostics.warning("F6", error.what, mend=error.mend)
            return
        cleanup.remove_unused_initializers(graph)
        diagnostics.info(
            "F6",
            f"Opset {before} became 17, the highest that TensorRT 8.x reads"
            + (f"; {len(rewritten)} nodes were rewritten for it." if rewritten else "."),
            data={"rewritten": rewritten},
        )


def _report_weights(weights: list[WeightCheck], diagnostics: Diagnostics) -> None:
    for row in weights:
        if row.exact:
            continue
        if row.note:
            diagnostics.warning(
                "W1", f"Weight '{row.weight}' of '{row.node}': {row.note}.", node=row.node, tensor=row.weight
            )
            continue
        below = row.channels - row.full_channels - row.mixed_channels
        why = f"{below} of {row.channels} channels do not reach +-127"
        if row.mixed_channels:
            why = f"{row.mixed_channels} of {row.channels} output channels have several scales" + (
                f", {below} do not reach +-127" if below else ""
            )
        diagnostics.info(
            "W1",
            f"TensorRT will requantize weight '{row.weight}' of '{row.node}': {100 * row.share:.4g}% of its codes come out as "
            f"trained ({why}); largest error {100 * row.largest_error:.2g}% of "
            "the channel's range.",
            node=row.node,
            tensor=row.weight,
            data=row.as_dict(),
        )
