"""`qdq-translator explicit -c CACHE --for onnxruntime`: a float ONNX and its calibration cache become a Q/DQ ONNX."""

import shlex
import sys
from pathlib import Path
from typing import List, Mapping, Sequence

from qdq_translator.commands.located import print_commands, print_json
from qdq_translator.core.command_options import ExplicitCommand
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.disk import refuse_overwriting
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import read_layer_argument, read_lone_cache
from qdq_translator.core.formats.report_rows import RestoreSummary
from qdq_translator.core.switch import appear_together, destination
from qdq_translator.core.words import counted, listed
from qdq_translator.lab.laboratory import OnnxRuntime
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import load_model, write_graph
from qdq_translator.translation.qdq import restore as made


def restore(source: str, output: Path, options: ExplicitCommand) -> int:
    """Write the model with a pair for every entry of the cache; unusable entries are reported on stderr."""
    if not options.cache:
        raise UsageError("--for onnxruntime restores a network from its cache.", "Give the cache with -c.")
    model, read_from = load_model(source)
    cache, stated = read_lone_cache(Path(options.cache), Path(source))
    named = options.keep_fp16
    from_file = bool(named) and named[0].startswith("@")
    precisions = read_layer_argument(named[0][1:]) if from_file else dict.fromkeys(named, "fp16")
    restored = made.restore(model, cache.scales, precisions, stated)
    graph = Graph.from_model(restored.model)
    OnnxRuntime().check_pairs(Graph.from_model(load_model(source)[0]), graph, {}, Diagnostics())
    read = [Path(p) for p in (source, options.cache, *(name.lstrip("@") for name in named)) if p]
    refuse_overwriting([output, output.with_name(f"{output.name}.data")], read)
    place = destination(output)
    with appear_together(place.parent) as scratch:
        write_graph(graph, scratch / place.name, f"{place.name}.data", read_from.external_data)
        load_model(scratch / place.name, weights=False)
    summary = _summary(output, restored, [line for _, line in cache.unreadable])
    if options.json:
        print_json(summary)
    else:
        print(f"{output}: Q/DQ on {counted(summary.tensors, 'tensor')} and {counted(summary.weights, 'weight')}")
    others = {"layers": summary.unknown_layers, "shared": summary.shared_scales}
    _print_notes({**summary.left_out, **others}, options.verbose)
    if not options.json:
        print_commands(f"qdq-translator translate {shlex.quote(str(output))}")
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
