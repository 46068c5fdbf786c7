"""`explicit` from a model to files: translate, insert Q/DQ pairs, check that no scale is missing, set types, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence, Union

import onnx
from onnx import TensorProto

from qdq_translator.core.command_options import ExplicitOptions
from qdq_translator.core.disk import write_json
from qdq_translator.core.errors import ModelError, UserError
from qdq_translator.core.formats.files import (
    EXPLICIT_SUFFIX,
    MODEL_KEY,
    SET_DIGITS,
    SET_KEY,
    digest_of_json,
    set_of_model,
)
from qdq_translator.core.formats.report_rows import (
    GENERATOR,
    ExplicitLayers,
    ExplicitReport,
    ExplicitTarget,
    FloatLayer,
    OpsetChange,
    Source,
)
from qdq_translator.core.formats.rows import plain, read
from qdq_translator.core.formats.schemas import EXPLICIT_REPORT, read_json
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.switch import appear_together, destination
from qdq_translator.core.words import counted, listed, others
from qdq_translator.translation.files.integrity import model_contents
from qdq_translator.translation.ir.constants import is_dequantize, is_quantize
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import load_model, write_graph
from qdq_translator.translation.ir.operators import CLAMPS, WEIGHTED
from qdq_translator.translation.ir.types import open_sizes
from qdq_translator.translation.laboratory import Laboratory
from qdq_translator.translation.planning.translation import Translated
from qdq_translator.translation.qdq.explicit import Placed, place_pairs
from qdq_translator.translation.qdq.float_types import (
    FP16,
    FP16_FP32_SCALES,
    FP32,
    Form,
    Typing,
    beyond_float16,
    floor_scales,
    needs_float32,
)
from qdq_translator.translation.qdq.pairs import with_opset
from qdq_translator.translation.report.shown import Shown
from qdq_translator.translation.scales.inference.formulas import inside_normalizations
from qdq_translator.translation.targets.precision import FP16 as HIGHER
from qdq_translator.translation.targets.precision import INT8, ON_DLA, LayerPlan
from qdq_translator.translation.translator import translate

SCHEMA_VERSION = 1
_ADJUST, _UINT8 = "adjust_for_dla", "enable_uint8_and_asymmetric_quantization_dla"
"""Names of `OnnxParserFlag` for a DLA."""
IO_TYPES = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8}


@dataclass(frozen=True, eq=False, repr=False)
class Explicit(Shown):
    """An explicit network. graph: the network to write; report: content of `NAME_explicit_report.json`."""

    name: str
    graph: Graph
    translated: Translated
    report: ExplicitReport

    @property
    def model(self) -> onnx.ModelProto:
        """The network."""
        return self.graph.to_model()

    def to_dict(self) -> dict[str, Any]:
        """The report with JSON types."""
        return dict(plain(self.report))

    def lines(self) -> list[str]:
        """Figures about the network."""
        r = self.report
        return [
            f"Explicit: {self.name}, for {r.target} ({r.platform})",
            f"{r.form}, opset {r.opset.after}",
            f"{counted(len(r.pairs), 'Q/DQ pair')}, {counted(len(r.weights), 'INT8 weight')}",
            f"{counted(r.layers.int8, 'layer')} in INT8, {counted(len(r.stays_float), 'layer')} above",
            "next: save it; qdq-translator build --print has the command for TensorRT",
        ]

    def save(self, folder: Union[str, Path], file: str = "") -> Path:
        """Writes network and report, both or none; returns the network's path. file: default NAME_explicit.onnx."""
        path = Path(folder) / (file or f"{self.name}{EXPLICIT_SUFFIX}")
        report, metadata = self.to_dict(), {MODEL_KEY: "0" * SET_DIGITS}

        def seal() -> dict[str, str]:
            contents = {"model": model_contents(self.graph), "report": report}
            metadata[MODEL_KEY] = report[SET_KEY] = digest_of_json(contents, SET_DIGITS)
            return metadata

        place = destination(path)
        own = place.is_file() and set_of_model(place)
        with appear_together(place.parent, [f"{place.name}.data"] if own else ()) as scratch:
            external = self.translated.source.external_data
            write_graph(self.graph, scratch / place.name, f"{place.name}.data", external, metadata, seal)
            write_json(scratch / f"{place.stem}_report.json", report)
            read_report(scratch / place.name)
            load_model(scratch / place.name, weights=False)
        return path


def read_report(model: Path) -> Optional[ExplicitTarget]:
    """The report next to an explicit network; None if there is none. Raises UserError if it cannot be read."""
    path = model.with_name(f"{model.stem}_report.json")
    if not path.is_file():
        return None
    found = read_json(path, EXPLICIT_REPORT, "Write the network again.")
    in_model = set_of_model(model)
    if in_model and found.get(SET_KEY) != in_model:
        raise UserError(f"{path.name} is not of the network {model.name}.", "Write the network again.")
    return read(ExplicitTarget, found)


def explicit(
    model: Union[str, Path, onnx.ModelProto],
    options: Optional[TranslateOptions] = None,
    how: Optional[ExplicitOptions] = None,
    scales: Optional[Mapping[str, float]] = None,
    name: Optional[str] = None,
    lab: Optional[Laboratory] = None,
) -> Explicit:
    """A Q/DQ network for strong typing. model, options, name, lab: see `translate`. scales: tensor ->
    scale, for a float model (a calibration cache). Raises UserError."""
    options, how = options or TranslateOptions(), how or ExplicitOptions()
    translated = translate(model, options, name, lab, try_more=False, explicit=True, given=scales)
    _refuse_foreign(translated.graph)
    for_dla = bool(translated.hardware.generation)
    notes: list[str] = []
    placed, form = _written(translated, how, notes)
    graph = placed.graph
    if lab is not None and not placed.zero_points:
        lab.check_pairs(translated.graph, graph, options.sizes, translated.diagnostics)
    on_dla = [row for row in translated.plan if for_dla and row.device == ON_DLA]
    if for_dla:
        bare = _lacking(on_dla, placed)
        if bare and not how.allow_fp16:
            raise _incomplete(bare)
        _fix_shapes(graph, translated)
    _set_io_types(graph, how.io_types)
    single, casts = _halved(graph, form, translated.tensor_scales, on_dla) if form.half else ({}, 0)
    report = _report(translated, placed, form, how, single, casts, notes)
    return Explicit(translated.name, graph, translated, report)


def _refuse_foreign(graph: Graph) -> None:
    """Raises ModelError for an operator outside ONNX: strong typing needs the types of all tensors."""
    foreign = next((node for node in graph.nodes if not node.is_standard), None)
    if foreign is not None:
        raise ModelError(
            f"{foreign.op_type} {foreign.label} of domain '{foreign.domain}' is not an ONNX operator, so the types of "
            "its tensors are unknown.",
            "Cut it off ('qdq-translator translate --parts'), and add it again with a TensorRT plugin.",
        )


def _halved(
    graph: Graph, form: Form, scales: Mapping[str, float], on_dla: Sequence[LayerPlan]
) -> tuple[dict[str, str], int]:
    """Converts the graph to float16. Returns the nodes that stay float32, with the reason, and the number of Casts.
    Raises UserError if one of these runs on the DLA."""
    single = beyond_float16(graph, scales, form.least)
    bad = [row.name for row in on_dla if row.name in single]
    if bad:
        raise UserError(
            f"'{bad[0]}' cannot compute in FP16; the DLA has only INT8 and FP16: {single[bad[0]]}{others(bad)}.",
            "Scale the network's values, or cut the layer off with 'split'.",
        )
    typing = Typing(graph, form, frozenset(single))
    typing.run()
    return single, len(typing.casts)


def _fix_shapes(graph: Graph, translated: Translated) -> None:
    """Sets static shapes, which a DLA requires. Raises UserError for an input of unknown size."""
    sizes = open_sizes(graph, translated.options.sizes)
    for name, value in graph.inputs.items():
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, sizes.get(name, ())):
            dim.dim_value = size
        if not value.type.tensor_type.HasField("shape") or any(
            not d.HasField("dim_value") or d.dim_value < 1 for d in dims
        ):
            raise UserError(
                f"The graph input '{name}' has dynamic sizes, and a DLA needs static ones.",
                f"Give them with --shapes, e.g. --shapes {name}:{'x'.join(str(d.dim_value or 1) for d in dims)}.",
            )


def _lacking(rows: Sequence[LayerPlan], placed: Placed) -> list[tuple[LayerPlan, str]]:
    """Layers with a tensor that lacks a required scale, and that tensor. Exempt are tensors between a product and the
    Add, Relu or Clip that it fuses with, and those inside a decomposed LayerNormalization, which is FP16 regardless of
    its scales."""
    graph, left_alone = placed.graph, inside_normalizations(placed.graph)

    def fuses(name: str) -> bool:
        maker, reader = graph.producer.get(name), graph.only_consumer(name)
        if maker is None or reader is None or not {maker.name, reader.name} <= placed.int8:
            return False
        return maker.is_op(*WEIGHTED) and reader.is_op("Add", *CLAMPS)

    found = ((row, [n for n in row.missing if n not in left_alone and not fuses(n)]) for row in rows if row.avoidable)
    return [(row, names[0]) for row, names in found if names]


def _incomplete(rows: Sequence[tuple[LayerPlan, str]]) -> UserError:
    """Error that names each layer, its tensor without scale, and the remedies."""
    named = [f"'{row.name}' ('{tensor}')" for row, tensor in rows]
    cures = list(dict.fromkeys(row.cure.replace("translate with ", "") for row, _ in rows if row.cure))[:3]
    return UserError(
        f"{counted(len(rows), 'layer')} for the DLA without a scale on every tensor: {listed(named, 5)}.",
        f"Options that give scales: {'; '.join(cures) or '--calibrate DATA'}. --allow_fp16 lets these layers be FP16.",
    )


def _written(translated: Translated, how: ExplicitOptions, notes: list[str]) -> tuple[Placed, Form]:
    """The network with its pairs, in an opset that has them."""
    if how.float_type == "fp32":
        return place_pairs(translated, with_opset(translated.graph, FP32.opset, "Q/DQ per channel")), FP32
    keeps = translated.options.asymmetric == "keep"
    form = FP16_FP32_SCALES if how.scale_type == "fp32" or keeps else FP16
    placed = place_pairs(translated, with_opset(translated.graph, form.opset, "Q/DQ in float16"))
    small = needs_float32(placed) if form.half_scales and how.scale_type == "auto" else []
    if small:
        notes.append(
            f"Scales stay float32 (opset {FP16_FP32_SCALES.opset}), because '{small[0]}'{others(small)} would be no "
            "normal float16 number; --scale_type fp16 writes the nearest one instead."
        )
        form = FP16_FP32_SCALES
        placed = place_pairs(translated, with_opset(translated.graph, form.opset, "Q/DQ with float32 scales"))
    count = floor_scales(placed, form.least) if form.half_scales else 0
    if count:
        notes.append(f"{count} scales below 6.1e-05, the smallest normal float16 number, became 6.1e-05.")
    return placed, form


def _set_io_types(graph: Graph, wanted: str) -> None:
    """Set types of graph inputs and outputs. Raises UserError for INT8 at a tensor without a separate pair."""
    if wanted == "same":
        return
    for name, value in [*graph.inputs.items(), *graph.outputs.items()]:
        kind = value.type.tensor_type
        if kind.elem_type not in IO_TYPES.values():  # indices and masks keep their type
            continue
        if wanted == "int8":
            kind.elem_type = (_int8_input if name in graph.inputs else _int8_output)(graph, name)
        else:
            kind.elem_type = IO_TYPES[wanted]


def _int8_input(graph: Graph, name: str) -> int:
    readers = graph.consumers(name)
    if not readers or not all(map(is_quantize, readers)):
        who = next((r.label for r in readers if not is_quantize(r)), "nothing")
        raise UserError(
            f"The graph input '{name}' cannot be INT8: {who} reads it without a Q/DQ pair.",
            "Give it a scale (--calibrate), or use --io_types fp16.",
        )
    stored = graph.initializers[readers[0].inputs[2]].data_type
    for quantizer in readers:
        graph.replace_uses(quantizer.outputs[0], name)
        graph.remove(quantizer)
    return stored


def _int8_output(graph: Graph, name: str) -> int:
    maker = graph.producer.get(name)
    if maker is None or not is_dequantize(maker) or maker.inputs[0] not in graph.producer:
        raise UserError(
            f"The graph output '{name}' cannot be INT8, because it has no scale.",
            "Give it one with --calibrate --calibrate_outputs, or use --io_types fp16.",
        )
    stored = maker.inputs[0]
    for reader in graph.consumers(name):
        graph.replace_use(reader, name, stored)
    quantizer = graph.producer[stored]
    graph.remove(maker)
    graph.rename_output(quantizer, stored, name)
    return graph.initializers[quantizer.inputs[2]].data_type


def _report(
    translated: Translated,
    placed: Placed,
    form: Form,
    how: ExplicitOptions,
    single: dict[str, str],
    casts: int,
    notes: Sequence[str],
) -> ExplicitReport:
    hardware, plan = translated.hardware, translated.plan
    planned = [row.name for row in plan if row.precision == INT8]
    higher = [row for row in plan if row.precision == HIGHER and row.name not in placed.int8]
    lost = tuple(name for name in planned if name not in placed.int8)
    return ExplicitReport(
        schema_version=SCHEMA_VERSION,
        kind="qdq-translator explicit network",
        generator=GENERATOR,
        source=Source(translated.source.file, translated.source.sha256),
        target=hardware.target,
        platform=hardware.platform.name if hardware.platform else "",
        form=form.name,
        opset=OpsetChange(translated.graph.opset(), placed.graph.opset()),
        io_types=how.io_types,
        parser_flags=(*[_ADJUST] * bool(hardware.generation), *[_UINT8] * bool(placed.zero_points)),
        pairs=placed.pairs,
        zero_points=placed.zero_points,
        weights=placed.weights,
        without_pair=placed.fused,
        layers=ExplicitLayers(len(placed.int8), len(planned), lost),
        stays_float=tuple(FloatLayer(row.name, row.op, row.reason, row.cure) for row in higher),
        float32=single,
        casts=casts,
        notes=tuple(notes),
        diagnostics=tuple(translated.diagnostics),
    )
