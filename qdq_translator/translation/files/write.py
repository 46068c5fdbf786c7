"""All files of one translation, written so that they appear together or not at all."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence

from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.files import (
    DIGESTS_KEY,
    MODEL_KEY,
    SET_DIGITS,
    SET_KEY,
    TranslationFiles,
    digest_of_json,
    earlier_files,
    refuse_mixture,
)
from qdq_translator.core.formats.layer_precisions import format_layer_precisions
from qdq_translator.core.formats.rows import json_text, plain
from qdq_translator.core.options import TranslateCommand, effective, preset_flags
from qdq_translator.core.switch import appear_together
from qdq_translator.core.words import others, percent
from qdq_translator.translation.files import integrity
from qdq_translator.translation.ir.io import open_model, write_graph
from qdq_translator.translation.passes.annotate import annotated_copy
from qdq_translator.translation.planning.translation import Translated
from qdq_translator.translation.report.data import format_report

CONFIG_SCHEMA_VERSION = 2
_LARGE = 2**19
"""Bytes of a report."""
_ALWAYS = ("source", "coverage", "inputs", "outputs", "cost", "integrity")


def precision_config(translation: Translated, cache: str, layer_argument: str) -> dict[str, Any]:
    """`NAME_precision_config.json`: NVIDIA's two keys, followed by ours. cache, layer_argument: the texts of these
    files."""
    scales = translation.tensor_scales
    wide = [name for name, precision in translation.layer_precisions.items() if precision == "fp32"]
    return {
        "int8_tensor_scales": scales,
        "fp16_nodes": translation.fp16_nodes,
        **({"fp32_nodes": wide} if wide else {}),
        **({"gpu_nodes": translation.gpu_nodes} if translation.gpu_nodes else {}),
        "schema_version": CONFIG_SCHEMA_VERSION,
        "generator": rows.GENERATOR,
        "scale_origins": plain(translation.scale_origins),
        "automatic_tensor_scales": translation.automatic,
        "diagnostics": plain([*translation.diagnostics]),
        "options": effective(translation.options),
        "source": {"file": translation.source.file, "sha256": translation.source.sha256},
        "cache_version": {"number": translation.hardware.cache_number, "origin": translation.hardware.origin},
        DIGESTS_KEY: {"cache": digest_of_json(cache), "layer_arg": digest_of_json(layer_argument)},
    }


@contextlib.contextmanager
def replacing(files: TranslationFiles) -> Iterator[TranslationFiles]:
    """The files of a new set, to be written; at the end they replace `files` in one step, and files that only the
    earlier set has are removed. Raises UserError as `appear_together`."""
    with appear_together(files.folder, earlier_files(files)) as scratch:
        yield TranslationFiles(scratch, files.name)


def write_translation(translation: Translated, report: dict[str, Any], folder: Path) -> TranslationFiles:
    files = TranslationFiles(folder, translation.name)
    with replacing(files) as temporary:
        cache = translation.cache.to_text()
        layer_argument = format_layer_precisions(translation.layer_precisions)
        config = precision_config(translation, cache, layer_argument)
        wrote: dict[str, Any] = {}
        graph, source, metadata = translation.graph, translation.source, {MODEL_KEY: "0" * SET_DIGITS}

        def seal() -> dict[str, str]:
            """Return the final metadata: the weights' checksums are computed while writing."""
            wrote.update(integrity.contents(graph, cache, layer_argument, config))
            metadata[MODEL_KEY] = config[SET_KEY] = wrote[SET_KEY]
            return metadata

        write_graph(graph, temporary.model, files.model_data.name, source.external_data, metadata, seal)
        if translation.options.annotate:
            annotated = annotated_copy(graph, translation.types, translation.scales, translation.plan)
            if annotated is not None:  # its external data equal those of the other, byte for byte
                write_graph(annotated, temporary.annotated, files.model_data.name, source.external_data, metadata)
        _write(temporary.config, json_text(config, indent=4) + "\n")
        _write(temporary.cache, cache)
        _write(temporary.layer_arg, layer_argument)
        _write(temporary.report, format_report({**report, "integrity": wrote}))
        _read_back(temporary)
    return files


def _read_back(files: TranslationFiles) -> None:
    """Reads a new set as every reader does, before anyone can see it; of a large report only some keys, because
    checking all needs half as long as the translation. Raises UserError."""
    files.read_config()
    files.read_cache()
    files.read_layer_precisions()
    files.read_report(*_ALWAYS if files.report.stat().st_size > _LARGE else ())
    open_model(files.model)
    refuse_mixture(files)


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))


def summarize(
    source: str,
    translation: Translated,
    report: rows.Report,
    files: TranslationFiles,
    options: TranslateCommand,
    split: Optional[rows.CutParts],
) -> rows.Summary:
    """The final summary of `translate`, also its `--json` output. source: the model as named on the command line.
    split: the manifest, if a tail was cut off. `failed` names missed thresholds."""
    behind = frozenset(split.tail if split else ())
    checks = (
        _too_few_macs(report, options),
        _falls_back(report, options, behind),
        too_long(report.cost, options.fail_over_ms),
    )
    dla = report.dla
    return rows.Summary(
        source=source,
        model=translation.source.file,
        files={key: str(getattr(files, key)) for key in ("model", "config", "cache", "layer_arg", "report")},
        cache_header=translation.cache.header,
        cache_origin=report.cache_version.origin,
        scales=rows.ScaleCounts(
            len(report.scales), sum(row.explicit for row in report.scales), len(translation.automatic)
        ),
        coverage=report.coverage,
        fp16_nodes=len(translation.layer_precisions),
        weights=rows.WeightCounts(len(report.weights), sum(row.exact for row in report.weights)),
        root_causes=rows.CauseSummary(report.root_causes.groups, report.root_causes.what_if),
        dla=None
        if dla is None
        else rows.DlaSummary(
            gpu_operators(dla.layers), dla.counts, dla.shares, dla.transitions, dla.subgraphs, dla.notes
        ),
        cost=report.cost,
        split=split,
        preset=tuple(preset_flags(translation.options)),
        dla_rewrites=_rewrites(report.dla_rewrites.applied),
        dynamic_inputs=tuple(row.name for row in report.inputs if row.is_dynamic),
        diagnostics=report.diagnostics,
        failed="; ".join(filter(None, checks)),
    )


def gpu_operators(layers: Sequence[rows.Verdict]) -> dict[str, int]:
    """ONNX operator -> how many of its layers run on the GPU, in graph order."""
    return dict(Counter(row.op for row in layers if row.verdict == "gpu"))


def _rewrites(applied: Sequence[rows.Applied]) -> str:
    """The rewrites and their numbers: 'D4 once, D5 3 times', '' if nothing was rewritten."""
    counts = Counter(row.rule for row in applied)
    return ", ".join(f"{rule} {'once' if count == 1 else f'{count} times'}" for rule, count in counts.items())


def _too_few_macs(report: rows.Report, options: TranslateCommand) -> str:
    """Why too few MACs are in INT8 for the option, '' if they are enough; for a DLA only its own count."""
    wanted, macs = options.fail_under_int8_macs, report.coverage.macs
    if wanted is None:
        return ""
    if macs.total is None:
        return "the share of MACs in INT8 is unknown because shapes are dynamic; give them with --shapes"
    dla = report.dla
    share = dla.shares.dla_int8.macs_share if dla else (macs.int8 or 0) / macs.total if macs.total else None
    if share is None or 100 * share >= wanted:
        return ""
    return (
        f"{percent(share, 1)} of the MACs are planned in INT8{' on the DLA' if dla else ''}, below "
        f"--fail_under_int8_macs {wanted:g}; 'qdq-translator report' names the causes"
    )


def too_long(cost: Optional[rows.Cost], wanted: Optional[float]) -> str:
    """Why an estimate exceeds `--fail_over_ms`; '' if it does not."""
    if wanted is None or cost is None:
        return ""
    if cost.milliseconds is None:
        return f"--fail_over_ms is given and the time on the DLA is unknown: {cost.note}"
    if cost.milliseconds <= wanted:
        return ""
    return f"{cost.milliseconds:.2f} ms on the DLA ({cost.what}), over --fail_over_ms {wanted:g}"


def _falls_back(report: rows.Report, options: TranslateCommand, behind: frozenset[str]) -> str:
    """Why the network falls back to the GPU, '' if it does not. behind: layers that are not for the DLA."""
    if not options.fail_on_gpu_fallback or report.dla is None:
        return ""
    layers = [row for row in report.dla.layers if row.verdict == "gpu" and row.name not in behind]
    if not layers:
        return ""
    first = layers[0]
    return (
        f"{first.op} '{first.name}'{others(layers)} cannot run on the DLA ({first.findings[0].text}) and "
        "--fail_on_gpu_fallback is given; 'qdq-translator report' lists them, --dla_rewrites may replace them"
    )
