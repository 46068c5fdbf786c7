"""`qdq-translator restore`: a float ONNX and its calibration cache become an explicit Q/DQ ONNX."""

import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from qdq_translator.commands import explicit
from qdq_translator.commands.located import print_commands, print_json
from qdq_translator.core.command_options import ExplicitCommand
from qdq_translator.core.command_options import RestoreOptions as Options
from qdq_translator.core.disk import appear_together, read_text, refuse_overwriting
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.files import read_layer_argument, stated_beside
from qdq_translator.core.formats.report_rows import RestoreSummary
from qdq_translator.core.rules import inference_options
from qdq_translator.core.words import counted, listed
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.io import load_model, write_graph
from qdq_translator.qdq import restore as made


def run(options: Options) -> int:
    """Write the model; unusable cache entries are reported on stderr."""
    model, source = load_model(options.input_model)
    cache = CalibrationCache.from_text(read_text(Path(options.cache), "Check the path."), options.cache)
    precisions = read_layer_argument(options.layer_arg) if options.layer_arg else {}
    if options.complete:
        return _complete(options, [name for name, kind in precisions.items() if kind != "int8"])
    restored = made.restore(model, cache.scales, precisions, stated_beside(Path(options.cache)))
    output = Path(options.output)
    read = [Path(p) for p in (options.input_model, options.cache, options.layer_arg) if p]
    refuse_overwriting([output, output.with_name(f"{output.name}.data")], read)
    with appear_together(output.parent) as scratch:
        write_graph(
            Graph.from_model(restored.model), scratch / output.name, f"{output.name}.data", source.external_data
        )
    summary = _summary(output, restored, [line for _, line in cache.unreadable])
    if options.json:
        print_json(summary)
    else:
        print(f"{output}: Q/DQ on {counted(summary.tensors, 'tensor')} and {counted(summary.weights, 'weight')}")
    others = {"layers": summary.unknown_layers, "shared": summary.shared_scales}
    _print_notes({**summary.left_out, **others}, options.verbose)
    if not options.json:
        _print_next(output)
    return 0


def _summary(output: Path, restored: made.Restored, unreadable: List[str]) -> RestoreSummary:
    kinds = (made.UNKNOWN, made.UNUSABLE, made.NOT_FLOAT, made.UNARY, made.STAYS_FLOAT)
    return RestoreSummary(
        output=str(output),
        tensors=len(restored.all(made.GIVEN)),
        weights=len(restored.weights),
        left_out={**{kind: restored.all(kind) for kind in kinds}, "unreadable": unreadable},
        without_scale=tuple(restored.all(made.WITHOUT_SCALE)),
        unknown_layers=tuple(restored.unknown_layers),
        shared_scales=tuple(name for name, grouped in restored.weights.items() if grouped),
    )


_NOTES = {
    "unknown": "cache entries name no tensor of the model (some only TensorRT's own network has: rule S10)",
    "unusable": "cache entries have no usable scale",
    "not_float": "cache entries belong to integers or constants",
    "unreadable": "cache lines could not be read",
    "unary": "unary scales (1.0 between Conv and Add, rule S9) were left out",
    "stay_float": "tensors stay float because only layers of the layer argument read them",
    "layers": "layers of the layer argument are not in the model",
    "shared": "grouped ConvTranspose weights share scales between their groups",
}
"""Kind of omitted entry -> the note about it."""


def _print_notes(found: Mapping[str, Sequence[str]], verbose: bool) -> None:
    for kind, what in _NOTES.items():
        if found[kind]:
            names = listed(found[kind], len(found[kind]) if verbose else 3)
            print(f"note: {len(found[kind])} {what}: {names}", file=sys.stderr)


def _complete(options: Options, kept: List[str]) -> int:
    """All scale rules that need no data, and pairs at the places where implicit quantization fuses, in float32."""
    print(
        "note: --complete is 'qdq-translator explicit -c' now, which also has --target orin-dla and --float_type; "
        "this is its float32 form for a GPU.",
        file=sys.stderr,
    )
    output = Path(options.output)
    refuse_overwriting([output, output.with_name(f"{output.name}.data")], [Path(options.input_model)])
    same: Dict[str, Any] = {"input_model": options.input_model, "cache": options.cache, "keep_fp16": kept}
    rules: Dict[str, Any] = dict.fromkeys(inference_options(markers=False), True)
    made = explicit.made(ExplicitCommand(float_type="fp32", **same, **rules))
    path = made.save(output.parent, output.name)
    report = made.report
    print(f"{path}: Q/DQ on {counted(len(report.pairs), 'tensor')} and {counted(len(report.weights), 'weight')}")
    _print_next(path)
    return 0


def _print_next(output: Path) -> None:
    print_commands(f"qdq-translator translate {shlex.quote(str(output))}")
