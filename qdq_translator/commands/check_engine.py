"""`qdq-translator report LAYER_INFO`: the built engine versus the plan."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from rich.console import Console

from qdq_translator.api.explaining import occurrences
from qdq_translator.board.engine.inspector import EngineCheck, check_engine, planned
from qdq_translator.board.engine.layer_info import read_layer_info
from qdq_translator.board.engine.messages import read_log
from qdq_translator.board.engine.unfused import Explicit, explain_unfused, read_explicit
from qdq_translator.commands.explain import print_log
from qdq_translator.commands.located import is_explicit, print_commands
from qdq_translator.core.command_options import ReportOptions as Options
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.engine_rows import ExtraLayer
from qdq_translator.core.formats.files import TranslationFiles, locate
from qdq_translator.core.formats.rows import json_text, plain
from qdq_translator.translation.files.trtexec.request import Remembered
from qdq_translator.translation.report.tables import LINES, Section, print_fitted, print_pairs, print_table, title

Sections = List[Section]
_OF_THE_LOG = 15
"""Lines without --all."""


def run(options: Options) -> int:
    """Print a table or JSON; status 1 only if required by --strict or --fail_on_gpu_fallback."""
    (info, *more), log = options.layer_info, next(iter(options.log), None)
    if more:
        raise UsageError("Layer information was given twice.", "Leave --layer_info out.")
    if is_explicit(options.translation):
        return _explicit(options, info, log)
    check = inspect(locate(options.translation, options.model), info, log)
    _print(options, check, {})
    _print_next(options, info)
    return int((options.strict and not check.obeys) or (options.fail_on_gpu_fallback and bool(check.gpu_fallbacks)))


def _explicit(options: Options, info: str, log: Optional[str]) -> int:
    """Check the engine of a network with Q/DQ and print the findings, Q/DQ pairs that were not fused among them.
    Returns the exit status."""
    network = read_explicit(Path(options.translation))
    check = inspect_explicit(network, info, log)
    rows = explain_unfused(network.graph, check)
    unfused = {"unfused_qdq": [{k: v for k, v in plain(row).items() if k != "milliseconds"} for row in rows]}
    _print(options, check, unfused)
    for row in () if options.json else rows:
        print(f"{row.layer}: {row.pattern or 'no pattern of the network explains it'}. {row.cure}".rstrip())
    if rows and not options.json:
        print(f"'qdq-translator explicit {options.translation}' places all pairs again.")
    _print_next(options, info)
    return int(options.strict and bool(rows or not check.obeys))


def _print_next(options: Options, info: str) -> None:
    if not options.json:
        words = ["qdq-translator", "report", "-t", options.translation, "--layer_info", info]
        print_commands(shlex.join([*words, "--html", "engine.html"]), stream=sys.stderr)


def inspect_explicit(network: Explicit, layer_info: str, log_file: Optional[str]) -> EngineCheck:
    """The engine of `layer_info` against the plan of an explicit network. Raises UserError for an engine of another
    network.
    """
    return _compared(layer_info, log_file, network.report.source.file, network.plan, {})


def _compared(
    layer_info: str, log_file: Optional[str], model: str, plan: Any, precisions: Dict[str, str]
) -> EngineCheck:
    """Raises UserError for the layer information of another model."""
    built = read_layer_info(Path(layer_info))
    check = check_engine(plan, built, read_log(Path(log_file)) if log_file else None, precisions)
    if not any(verdict.engine_layer for verdict in check.verdicts):
        raise UserError(
            f"No layer of {layer_info} has a name of {model}.",
            "Give the layer information of an engine that was built from this model.",
        )
    return check


def inspect(files: TranslationFiles, layer_info: str, log_file: Optional[str]) -> EngineCheck:
    """The engine of `layer_info` against the plan of a translation. Raises UserError for an engine of another model or
    device.
    """
    precisions = files.read_layer_precisions() if files.layer_arg.exists() else {}
    check = _compared(layer_info, log_file, files.model.name, planned(files), precisions)
    made = Remembered.of(files)
    on_dla = any(region.device == "DLA" for region in check.regions) or any(v.device == "DLA" for v in check.verdicts)
    unknown = any(not region.device for region in check.regions)
    if on_dla and made.target == "gpu":
        raise UserError(
            f"The engine of {layer_info} has layers on a DLA, but the model was translated for gpu.",
            "Translate it with --on dla, or give the layer information of the GPU engine.",
        )
    if made.on_dla and not (on_dla or unknown or check.gpu_fallbacks or (check.log is not None and check.log.dla)):
        raise UserError(
            f"The engine of {layer_info} has no layer on a DLA, but the model was translated for {made.target}.",
            "Build it with the command of 'qdq-translator build --print', or translate the model with --on gpu.",
        )
    return check


def _print(options: Options, check: EngineCheck, more: Dict[str, Any]) -> None:
    log = check.log
    if options.json:
        found = {"messages": plain(occurrences(log))} if log is not None else {}
        print(json_text({**check.as_dict(), **more, **found}, indent=2, ensure_ascii=False))
        return
    told = log is not None and bool(log.found)
    draw(check, options.all, LINES - _OF_THE_LOG if told else LINES)
    if log is not None and told:
        print_log(log, options.all, lines=_OF_THE_LOG)


def draw(check: EngineCheck, everything: bool, lines: int) -> None:
    """Print summary and tables."""
    print_fitted(Console(highlight=False), sections(check, everything), lines, everything)


def sections(check: EngineCheck, everything: bool) -> Sections:
    """Printers of the parts of a check, from the top. Without `everything`, items with one cause share a line with a
    count and an example."""
    parts = (_print_summary, _print_layers, _print_lists, _print_verdict)
    return [partial(part, check=check, everything=everything) for part in parts]


def _print_summary(console: Console, check: EngineCheck, everything: bool) -> None:
    summary = check.summary()
    int8 = summary.int8
    rows = (
        (f"{int8['obeyed']} of {sum(int8.values())}", "layers planned in INT8 run in INT8"),
        (int8["disobeyed"], "planned in INT8, run in a higher precision"),
        (int8["unseen"], "planned in INT8, inside a region or without a type: not visible"),
        (int8["dissolved"], "planned in INT8, dissolved (data movement)"),
        (int8["missing"], "planned in INT8, found nowhere in the engine"),
        (summary.disobediences, "layers compared with the plan in all"),
        (summary.unfused_qdq, "Q/DQ nodes left unfused"),
        (summary.quantizers, "conversions to or from INT8, standalone scales"),
        (summary.reformats, "other reformats"),
        (summary.dla_subgraphs, "DLA subgraphs"),
        (summary.gpu_fallbacks, "layers that fell back from DLA to GPU"),
        (summary.missing_scales, "tensors whose scale TensorRT missed"),
        (summary.unmatched_precisions, "names of the layer list that matched no layer"),
    )
    print_pairs(console, [(str(count), words) for index, (count, words) in enumerate(rows) if index == 0 or count])
    if check.cache_rejected:
        console.print("\nTensorRT rejected the calibration cache: its header has another version or algorithm.")


def _print_layers(console: Console, check: EngineCheck, everything: bool) -> None:
    shown = [v for v in check.verdicts if everything or v.is_disobedience or v.verdict == "missing"]
    if not shown:
        return
    title(console, "Layers" if everything else "Different from the plan, or not found")
    if everything:
        cells = ((v.name, v.op, v.planned, v.actual or v.verdict, v.why or v.verdict) for v in shown)
        print_table(console, ("layer", "op", "plan", "engine", "why"), cells)
        return
    alike: Dict[Tuple[str, str, str], List[str]] = {}
    for v in shown:
        alike.setdefault((v.planned, v.actual or v.verdict, v.why), []).append(f"{v.op} '{v.name}'")
    rows = ((str(len(layers)), *key, layers[0]) for key, layers in alike.items())
    print_table(console, ("layers", "plan", "engine", "why", "for example"), rows, right=(0,))


def _print_lists(console: Console, check: EngineCheck, everything: bool) -> None:
    """Prints each item with its cause; without `everything` one per cause."""
    lists: Tuple[Tuple[str, Sequence[Tuple[str, str]]], ...] = (
        ("Q/DQ left unfused", [(e.name, e.change) for e in check.unfused_qdq]),
        ("Conversions to or from INT8", [(e.name, e.change) for e in check.quantizers]),
        ("Reformats", [(_moved(e), e.why) for e in check.reformats]),
        ("Fell back to the GPU", [(e.layer, e.cause) for e in check.gpu_fallbacks]),
        ("Missing scales", [(name, "") for name in check.missing_scales]),
        ("Names that matched no layer", [(name, "") for name in check.unmatched_precisions]),
        ("Regions", [(f"{r.name}: {len(r.nodes)} layers", r.device or "device unknown") for r in check.regions]),
    )
    for heading, items in ((heading, items) for heading, items in lists if items):
        title(console, heading)
        for name, cause in items if everything else _one_each(items):
            console.print(f"  {name}{f' ({cause})' if cause else ''}", markup=False)


def _moved(layer: ExtraLayer) -> str:
    """`CHW32 -> CHW4 between 'c1' and 'resize_14'`."""
    if not layer.between:
        return layer.name
    writer, reader = (repr(name) if name else end for name, end in zip(layer.between, ("the input", "the output")))
    return f"{layer.layouts} between {writer} and {reader}"


def _one_each(items: Sequence[Tuple[str, str]]) -> Iterator[Tuple[str, str]]:
    """The first name of each cause with the number of others."""
    alike: Dict[str, List[str]] = {}
    for name, cause in items:
        alike.setdefault(cause, []).append(name)
    for cause, names in alike.items():
        yield names[0] + (f" and {len(names) - 1} more" if names[1:] else ""), cause


def lines_of(items: Sequence[Tuple[str, str]], everything: bool) -> Section:
    """Names, each with its cause; without `everything` one per cause."""

    def section(console: Console) -> None:
        for name, cause in items if everything else _one_each(items):
            console.print(f"{name}: {cause}", markup=False)

    return section


def _print_verdict(console: Console, check: EngineCheck, everything: bool) -> None:
    console.print("\nThe engine obeys the plan." if check.obeys else "\nThe engine does not obey the plan.")
