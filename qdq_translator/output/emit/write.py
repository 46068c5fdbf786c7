"""All files of one translation, written so that they appear together or not at all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Optional

from qdq_translator._version import __version__
from qdq_translator.core.disk import appear_together
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.layer_precisions import format_layer_precisions, fp16_layers
from qdq_translator.core.formats.sets import MODEL_KEY, SET_DIGITS, SET_KEY
from qdq_translator.core.options import TranslateCommand, effective, preset_flags
from qdq_translator.core.words import others, percent
from qdq_translator.ir.io import write_graph
from qdq_translator.output.emit import integrity
from qdq_translator.output.report.data import format_report, is_dynamic
from qdq_translator.passes.annotate import annotated_copy
from qdq_translator.planning.translation import Translated

CONFIG_SCHEMA_VERSION = 2


def precision_config(translation: Translated) -> dict[str, Any]:
    """`NAME_precision_config.json`: NVIDIA's two keys first, then ours."""
    scales = translation.tensor_scales
    config: dict[str, Any] = {
        "int8_tensor_scales": scales,
        "fp16_nodes": translation.fp16_nodes,
        "schema_version": CONFIG_SCHEMA_VERSION,
        "generator": f"qdq-translator {__version__}",
        "scale_origins": translation.scale_origins,
        "automatic_tensor_scales": translation.automatic,
        "diagnostics": [d.as_dict() for d in translation.diagnostics],
        "options": effective(translation.options),
        "source": {"file": translation.source.file, "sha256": translation.source.sha256},
        "cache_version": {"number": translation.hardware.cache_number, "origin": translation.hardware.origin},
    }
    return config


def write_translation(translation: Translated, report: dict[str, Any], folder: Path) -> TranslationFiles:
    files = TranslationFiles(folder, translation.name)
    with appear_together(folder) as scratch:
        temporary = TranslationFiles(scratch, translation.name)
        config, cache = precision_config(translation), translation.cache.to_text()
        layer_argument = format_layer_precisions(fp16_layers(translation.fp16_nodes))
        wrote: dict[str, Any] = {}
        graph, source, metadata = translation.graph, translation.source, {MODEL_KEY: "0" * SET_DIGITS}

        def seal() -> dict[str, str]:
            """When the model is written: the checksums of its weights are taken on the way."""
            wrote.update(integrity.contents(graph, cache, layer_argument, config))
            metadata[MODEL_KEY] = config[SET_KEY] = wrote[SET_KEY]
            return metadata

        write_graph(graph, temporary.model, files.model_data.name, source.external_data, metadata, seal)
        if translation.options.annotate:
            annotated = annotated_copy(graph, translation.types, translation.scales, translation.plan)
            if annotated is not None:  # its external data are those of the other, byte for byte
                write_graph(annotated, temporary.annotated, files.model_data.name, source.external_data, metadata)
        _write(temporary.config, indented(config) + "\n")
        _write(temporary.cache, cache)
        _write(temporary.layer_arg, layer_argument)
        _write(temporary.report, format_report({**report, "integrity": wrote}))
    return files


def indented(value: Any, margin: str = "\n") -> str:
    """`json.dumps(value, indent=4)`, several times faster: lists and objects of plain values are written in C."""
    inner = margin + "    "
    if not isinstance(value, (dict, list, tuple)) or not value:
        return json.dumps(value)
    parts = value.values() if isinstance(value, dict) else value
    if not any(isinstance(part, (dict, list, tuple)) for part in parts):
        text = json.dumps(value, separators=("," + inner, ": "))
        return text[0] + inner + text[1:-1] + margin + text[-1]
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {indented(part, inner)}" for key, part in value.items()]
        return "{" + inner + ("," + inner).join(rows) + margin + "}"
    return "[" + inner + ("," + inner).join([indented(part, inner) for part in value]) + margin + "]"


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))


def summarize(
    translation: Translated,
    report: dict[str, Any],
    files: TranslationFiles,
    options: TranslateCommand,
    split: Optional[dict[str, Any]] = None,
) -> dict[str, Any]:
    """What `translate` prints at its end and gives with `--json`: plain values. split: the manifest, where a tail was cut off.
    `failed` names missed thresholds."""
    behind = frozenset(split["tail"] if split else ())
    checks = (
        _too_few_macs(report, options),
        _falls_back(report, options, behind),
        too_long(report, options.fail_over_ms),
    )
    failed = [sentence for sentence in checks if sentence]
    dla = report["dla"]
    return {
        "model": translation.source.file,
        "files": {key: str(getattr(files, key)) for key in ("model", "config", "cache", "layer_arg", "report")},
        "cache_header": translation.cache.header,
        "cache_origin": report["cache_version"]["origin"],
        "scales": {
            "total": len(report["scales"]),
            "explicit": sum(row["explicit"] for row in report["scales"]),
            "automatic": len(translation.automatic),
        },
        "coverage": report["coverage"],
        "fp16_nodes": len(translation.fp16_nodes),
        "weights": {
            "total": len(translation.weights),
            "exact": sum(row.exact for row in translation.weights),
        },
        "root_causes": {key: report["root_causes"][key] for key in ("groups", "what_if")},
        "dla": None
        if dla is None
        else {
            "gpu_operators": _gpu_operators(dla),
            **{key: dla[key] for key in ("counts", "shares", "transitions", "subgraphs", "notes")},
        },
        "cost": report["cost"],
        "split": None
        if split is None
        else {key: split[key] for key in ("folder", "parts", "tail", "tail_macs_share", "proof")},
        "preset": preset_flags(translation.options),
        "dla_rewrites": _rewrites(report["dla_rewrites"]["applied"]),
        "dynamic_inputs": [row["name"] for row in report["inputs"] if is_dynamic(row["shape"])],
        "diagnostics": report["diagnostics"],
        "failed": "; ".join(failed),
    }


def _gpu_operators(dla: dict[str, Any]) -> dict[str, int]:
    """ONNX operator -> how many of its layers go to the GPU, in graph order."""
    return dict(Counter(row["op"] for row in dla["layers"] if row["verdict"] == "gpu"))


def _rewrites(applied: list[dict[str, Any]]) -> str:
    """'D4 once, D5 3 times', '' where nothing was rewritten."""
    rules = [row["rule"] for row in applied]
    counts = [(rule, rules.count(rule)) for rule in dict.fromkeys(rules)]
    return ", ".join(f"{rule} {'once' if count == 1 else f'{count} times'}" for rule, count in counts)


def _too_few_macs(report: dict[str, Any], options: TranslateCommand) -> str:
    """With a DLA as target only what runs in INT8 there counts."""
    wanted, macs = options.fail_under_int8_macs, report["coverage"]["macs"]
    if wanted is None:
        return ""
    if macs["total"] is None:
        return "the share of MACs in INT8 is unknown because shapes are dynamic; give them with --shapes"
    dla = report["dla"]
    share = dla["shares"]["dla-int8"]["macs_share"] if dla else macs["int8"] / macs["total"] if macs["total"] else None
    if share is None or 100 * share >= wanted:
        return ""
    return (
        f"{percent(share, 1)} of the MACs are planned in INT8{' on the DLA' if dla else ''}, below "
        f"--fail_under_int8_macs {wanted:g}; 'qdq-translator report' names the causes"
    )


def too_long(report: dict[str, Any], wanted: Optional[float]) -> str:
    """What `--fail_over_ms` says of a report; '' where it is kept."""
    cost = report["cost"]
    if wanted is None or cost is None:
        return ""
    if cost["milliseconds"] is None:
        why = "shapes are dynamic; give them with --shapes" if cost["unknown_layers"] else cost["note"]
        return f"--fail_over_ms is given and the time on the DLA is unknown: {why}"
    if cost["milliseconds"] <= wanted:
        return ""
    return f"{cost['milliseconds']:.2f} ms on the DLA ({cost['what']}), over --fail_over_ms {wanted:g}"


def _falls_back(report: dict[str, Any], options: TranslateCommand, behind: frozenset[str]) -> str:
    """behind: layers that are not for the DLA."""
    if not options.fail_on_gpu_fallback or report["dla"] is None:
        return ""
    layers = [row for row in report["dla"]["layers"] if row["verdict"] == "gpu" and row["name"] not in behind]
    if not layers:
        return ""
    first = layers[0]
    return (
        f"{first['op']} '{first['name']}'{others(layers)} cannot run on the DLA ({first['findings'][0]['text']}) and "
        "--fail_on_gpu_fallback is given; 'qdq-translator report' lists them, --dla_rewrites may replace them"
    )
