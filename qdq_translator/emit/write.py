"""All files of one translation, written so that they appear together or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qdq_translator._version import __version__
from qdq_translator.emit.files import TranslationFiles
from qdq_translator.emit.layer_precisions import format_layer_precisions, fp16_layers
from qdq_translator.io import appear_together, write_graph
from qdq_translator.options import effective
from qdq_translator.report.data import make_report

if TYPE_CHECKING:
    from qdq_translator.options import TranslateCommand
    from qdq_translator.translator import Translation

CONFIG_SCHEMA_VERSION = 1


def precision_config(translation: Translation) -> dict[str, Any]:
    """`NAME_precision_config.json`: NVIDIA's two keys first, then ours."""
    scales = translation.tensor_scales
    config: dict[str, Any] = {
        "int8_tensor_scales": scales,
        "fp16_nodes": translation.fp16_nodes,
        "schema_version": CONFIG_SCHEMA_VERSION,
        "generator": f"qdq-translator {__version__}",
        "scale_origins": {name: translation.scales[name].origin.as_dict() for name in scales},
        "automatic_tensor_scales": translation.automatic,
        "diagnostics": [d.as_dict() for d in translation.diagnostics],
        "options": effective(translation.options),
        "source": {"file": translation.source.file, "sha256": translation.source.sha256},
        "cache_version": {"number": translation.version.number, "origin": translation.version.origin},
    }
    return config


def write_translation(translation: Translation, folder: Path) -> TranslationFiles:
    files = TranslationFiles(folder, translation.name)
    with appear_together(folder) as scratch:
        temporary = TranslationFiles(scratch, translation.name)
        write_graph(translation.graph, temporary.model, files.model_data.name, translation.source.external_data)
        _write(temporary.config, json.dumps(precision_config(translation), indent=4) + "\n")
        _write(temporary.cache, translation.cache.to_text())
        _write(temporary.layer_arg, format_layer_precisions(fp16_layers(translation.fp16_nodes)))
        _write(temporary.report, json.dumps(make_report(translation), indent=2) + "\n")
    return files


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))


def summarize(translation: Translation, files: TranslationFiles, options: TranslateCommand) -> dict[str, Any]:
    """What `translate` prints at its end and gives with `--json`: plain values. `failed` names a missed threshold."""
    report = make_report(translation)
    macs = report["coverage"]["macs"]
    failed = ""
    if options.fail_under_int8_macs is not None:
        if macs["total"] is None:
            failed = "the share of MACs in INT8 is unknown because shapes are dynamic; give them with --shapes"
        elif macs["total"] and 100 * macs["int8"] / macs["total"] < options.fail_under_int8_macs:
            failed = (
                f"{100 * macs['int8'] / macs['total']:.1f}% of the MACs are planned in INT8, below "
                f"--fail_under_int8_macs {options.fail_under_int8_macs:g}; 'qdq-translator report' names the causes"
            )
    return {
        "model": translation.source.file,
        "files": {key: str(getattr(files, key)) for key in ("model", "config", "cache", "layer_arg", "report")},
        "cache_header": translation.cache.header,
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
        "diagnostics": report["diagnostics"],
        "failed": failed,
    }
