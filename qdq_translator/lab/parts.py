"""Parts of a network as files: of a translation or of a model, each set proved to give the bits of the whole.

`prove` runs the whole and the chained parts in ONNX Runtime and compares every bit of every output. `cut_tail` adds
parts without decode tail to a whole translation.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence, Tuple

import onnx

from qdq_translator.core.disk import file_digest, write_file, write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.files import SPLIT_SUFFIX, TranslationFiles, model_name
from qdq_translator.core.formats.rows import plain, read
from qdq_translator.core.options import TranslateOptions, options_of
from qdq_translator.core.switch import appear_together
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.metrics import same_bits
from qdq_translator.lab.simulate.run import Sliced
from qdq_translator.translation import parts as cuts
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import Source, open_graph, write_graph
from qdq_translator.translation.ir.types import TensorTypes, open_sizes
from qdq_translator.translation.parts import Borders, Part, Planned
from qdq_translator.translation.report.data import format_report
from qdq_translator.translation.scales.table import Origin, TensorScale
from qdq_translator.translation.translator import Translation, translate, translate_part

SCHEMA_VERSION = 1
_SAMPLES = 2
"""Random inputs of the proof."""


def prove(whole: Graph, parts: Sequence[Part], shapes: Mapping[str, Sequence[int]], samples: int) -> int:
    """Runs both on random inputs; returns the number of runs. Raises UserError if a single bit of an output differs."""
    inputs = random_samples(input_specs(whole.picture()[0], shapes), {}, samples, 0)
    graphs = (whole, *(part.graph for part in parts))
    types = [TensorTypes(g, {n: sizes for n, sizes in shapes.items() if n in g.inputs}) for g in graphs]
    session, *chain = (Sliced(g, own, "split") for g, own in zip(graphs, types))
    for feed in inputs:
        wanted, known = dict(session.run(feed)), dict(feed)
        for part, own in zip(parts, chain):
            known.update(own.run({name: known[name] for name in part.inputs}))
        for name, value in wanted.items():
            if name in known and not same_bits(value, known[name]):
                raise UserError(
                    f"The parts, one after the other, do not give the bits of the whole at output '{name}'.",
                    "Nothing was written; cut it at other tensors with --begin and --end.",
                )
    return inputs.runs


# ---------------- from files to files


def split_translation(
    files: TranslationFiles, output: Path, borders: Sequence[Borders] = (), graph: Optional[Graph] = None
) -> rows.SplitManifest:
    """Split a translation into several, each with all files, and a manifest. borders: of the DLA's parts; empty: those
    that `choose` finds. graph: of the model file, if it was read before. Raises UserError if it cannot be cut."""
    report, config = files.report_rows(), files.read_config()
    options = options_of(config.get("options", {}), _KEPT)
    if graph is None:
        graph, source = open_graph(files.model)
    else:
        source = Source(files.model.name, file_digest(files.model), files.model_data.exists())
    origins = config.get("scale_origins", {})
    scales = {
        name: TensorScale(value, Origin(**origins.get(name, {"rule": "S1"})))
        for name, value in config["int8_tensor_scales"].items()
    }
    listed = {*config["fp16_nodes"], *config.get("fp32_nodes", ())}
    on_dla = {row.name for row in report.dla.layers if row.subgraph >= 0} if report.dla else set()

    def save(part: Part, name: str, folder: Path) -> tuple[str, Optional[Translation]]:
        own = Graph.from_picture(part.graph.picture())
        held = {tensor: scales[tensor] for tensor in own.tensors() if tensor in scales}
        kept = [layer for layer in part.layers if layer in listed]
        target = options.target if on_dla.intersection(part.layers) else "gpu"
        asked = dataclasses.replace(options, shapes=[], keep_fp16=kept, target=target)
        made = translate_part(own, held, asked, name, source)
        return made.save(folder).model.name, made

    borders = list(filter(any, borders)) or cuts.choose(graph, report)
    return _split(graph, Planned(graph), report, options, output, borders, files.name, scales, save)


def cut_tail(
    translation: Translation,
    files: TranslationFiles,
    always: bool = False,
    ends: Tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Optional[rows.CutParts]:
    """Write the DLA's part and the tail to `NAME_parts/`, in addition to the whole, and list them in its report.
    Returns the parts; None if there is no tail to cut off.

    files: of `translation`. always: cut where the DLA's part begins and ends, or at the tensors `ends`. Raises
    UserError as `split_translation`; the whole is kept.
    """
    begin, end = ends if always else ((), cuts.tail_begins(translation.graph, translation.rows))
    if not always and not end:
        return None
    manifest = split_translation(files, files.parts, [(begin, end)], translation.graph)
    told = plain(manifest)
    translation.report["parts"] = {
        "folder": files.parts.name,
        **{key: told[key] for key in ("parts", "tail", "tail_macs_share", "proof")},
    }
    report = {**files.read_report(), "parts": translation.report["parts"]}
    write_file(files.report, format_report(report).encode("utf-8", "surrogateescape"))
    return read(rows.CutParts, {**told, "folder": str(files.parts)})


def split_model(
    path: Path, options: TranslateOptions, output: Path, borders: Sequence[Borders] = ()
) -> rows.SplitManifest:
    """Split an ONNX model, float or with Q/DQ, into several untranslated ONNX models, and a manifest.

    Planned as in `qdq-translator plan`. Raises UserError if it cannot be cut.
    """
    planned = translate(path, options, assume_scales=True)
    known = Planned(planned.graph, planned.rewrites.applied)
    graph, source = open_graph(path)
    borders = list(filter(any, borders)) or [
        (known.own(graph, begin, False), known.own(graph, end, True))
        for begin, end in cuts.choose(planned.graph, planned.rows)
    ]

    def save(part: Part, name: str, folder: Path) -> tuple[str, Optional[Translation]]:
        write_graph(part.graph, folder / f"{name}.onnx", f"{name}.onnx.data", source.external_data)
        return f"{name}.onnx", None

    report = dataclasses.replace(planned.rows, source=rows.Source(source.file, source.sha256))
    del planned
    known.graph.initializers.clear()  # only its layers are needed
    return _split(graph, known, report, options, output, borders, model_name(str(path)), {}, save)


_Save = Callable[[Part, str, Path], Tuple[str, Optional[Translation]]]
"""Writes a part under a name into a folder; returns its model file, and its translation if there is one."""


def _split(
    graph: Graph,
    planned: Planned,
    report: rows.Report,
    options: TranslateOptions,
    output: Path,
    borders: Sequence[Borders],
    name: str,
    scales: Mapping[str, TensorScale],
    save: _Save,
) -> rows.SplitManifest:
    sizes = open_sizes(graph, options.sizes)
    types = TensorTypes(graph, sizes)
    parts = cuts.cut(graph, types, borders)
    runs = prove(graph, parts, sizes, _SAMPLES)
    behind = cuts.tail(graph, planned, report)
    macs = {row.name: row.macs or 0 for row in report.plan}
    total = sum(macs.values())
    seen = [part.role for part in parts]
    counts = [seen[: index + 1].count(role) for index, role in enumerate(seen)]
    names = [f"{name}_{role}{count if count > 1 else ''}" for role, count in zip(seen, counts)]
    with appear_together(output) as scratch:
        manifest = rows.SplitManifest(
            schema_version=SCHEMA_VERSION,
            kind="qdq-translator split",
            generator=rows.GENERATOR,
            source=report.source,
            parts=tuple(_row(part, types, scales, *save(part, own, scratch)) for part, own in zip(parts, names)),
            tail=tuple(behind),
            tail_macs_share=sum(macs.get(name, 0) for name in behind) / total if total else None,
            proof=rows.Proof(runs),
        )
        write_json(scratch / f"{name}{SPLIT_SUFFIX}", manifest)
    return manifest


_KEPT = ("trt_calib_version", "platform", "target", "power_mode", "dla_clock", "cost_model", "shapes", "no_auto_names")
"""Options of a translation that apply to its parts. They inherit graph and scales."""


def _row(
    part: Part, types: TensorTypes, scales: Mapping[str, TensorScale], file: str, made: Optional[Translation]
) -> rows.UnplacedPart:
    def end(name: str) -> rows.Border:
        scale = scales[name].value if name in scales else None
        kind, shape = types.elem_type(name), types.shape(name)
        form = "fp16:chw16" if scale is None else "int8:chw32"
        return rows.Border(
            name,
            onnx.TensorProto.DataType.Name(kind).lower() if kind else None,
            None if shape is None else tuple(shape),
            scale,
            form if part.role == "dla" else "",
        )

    inputs, outputs = (tuple(map(end, names)) for names in (part.inputs, part.outputs))
    common = (part.role, file, len(part.layers), inputs, outputs)
    if made is None or made.dla is None or made.costs is None:
        return rows.UnplacedPart(*common)
    return rows.Part(*common, len(made.dla.fallbacks), made.dla.subgraphs, made.costs.milliseconds)
