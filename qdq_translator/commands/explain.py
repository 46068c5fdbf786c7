"""`qdq-translator explain`: a rule, a limit of the DLA, a platform, a message or a whole log, in words."""

import sys
from pathlib import Path
from textwrap import fill
from typing import Dict, List, Optional, Sequence

from qdq_translator.api.explaining import about_tensor, explained, is_log, key_of, lookup, occurrences, read_any
from qdq_translator.board.engine import migration
from qdq_translator.board.engine.layer_info import EngineLayer, fused_names
from qdq_translator.board.engine.messages import MINOR, BuildLog, Message, messages, origin
from qdq_translator.commands import platforms
from qdq_translator.core.boards import BOARDS
from qdq_translator.core.command_options import ExplainOptions as Options
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.files import locate
from qdq_translator.core.formats.report_rows import LayerPlan
from qdq_translator.core.formats.rows import json_text, plain
from qdq_translator.core.rules import RULES, docs_page
from qdq_translator.core.words import counted
from qdq_translator.translation.report.tables import LINES
from qdq_translator.translation.targets.platforms import PLATFORMS

Plan = Dict[str, LayerPlan]
"""Layer, or tensor that it writes -> row of the report's plan."""
_SHOWN = 6
SEND = "the lines before this one (trtexec --verbose), versions of TensorRT, CUDA and JetPack, the layer's node"
"""What to ask or report with, where no cause is known."""
_REWRITE = "rewrite for the DLA"
"""The title shared by many rules."""


def run(options: Options) -> int:
    """Print one paragraph per name; status 1 if a name is unknown."""
    if not options.names:
        _print_names(options.all)
        return 0
    if options.names == ["platforms"]:
        return platforms.run(options.json)
    logs = [name for name in options.names if is_log(name)]
    if options.json and len(logs) != 1:
        raise UsageError("--json is for one log.", "Give one file.")
    plan = _plan(options) if logs else {}
    status = 0
    for name in options.names:
        if name not in logs:
            status |= _explain_name(name, options)
            continue
        if _printed_uses(name, options.json):
            continue
        log = read_any(name)
        if options.json:
            _print_json(log, plan)
        else:
            print_log(
                log, options.all, plan, heading="standard input" if name == "-" else "text" if "\n" in name else name
            )
    return status


def _printed_uses(name: str, as_json: bool) -> bool:
    """Prints the uses of what TensorRT removed; False for what is no program or configuration."""
    found = None if name == "-" or "\n" in name else migration.uses(Path(name))
    if found is None:
        return False
    if as_json:
        rows = [{"line": use.line, "text": use.text, "why": use.why, **vars(use.row)} for use in found]
        print(json_text({"file": name, "uses": rows}, indent=2, ensure_ascii=False))
    else:
        print("\n".join(migration.lines(Path(name), found)))
    return True


def _print_names(everything: bool) -> None:
    """The names by kind, or one line for each."""
    texts = explained()
    if everything:
        for key, (title, paragraphs) in texts.items():
            print(f"{key:<12} {paragraphs[0] if title.endswith(_REWRITE) else title}")
        for message in messages():
            print(f"{message.id:<20} {message.happened}")
        return
    limits = [name[4:] for name in texts if name.startswith("DLA ")]
    kinds = {"rules": list(RULES), "DLA limits": limits, "platforms": [row.name for row in PLATFORMS]}
    kinds["boards"] = list(BOARDS)
    for kind, names in kinds.items():
        print(fill(f"{kind:<12}{', '.join(names)}", 78, subsequent_indent=" " * 12, break_on_hyphens=False))
    print(f"{'messages':<12}{len(messages())} of TensorRT, its parser and tools: give a log, or a line of it")
    print("--all prints a line for each name.")


def _explain_name(name: str, options: Options) -> int:
    files = locate(options.translation, options.model) if options.translation is not None else None
    try:
        found = (about_tensor(files, name) if files is not None else []) or lookup(name)
    except UserError as error:
        print(f"qdq-translator explain: {error}", file=sys.stderr)
        return 1
    if not isinstance(found, list):
        print(_worded(found))
        return 0
    for title, paragraphs in found:
        lines = [fill(p, 78, initial_indent="  ", subsequent_indent="  ") for p in paragraphs]
        if title.startswith("Rule "):
            lines.append(f"  Described in {docs_page(RULES[key_of(name)].page)}")
        print("\n".join([title, *lines, ""]))
    return 0


def _worded(
    message: Message,
    title: str = "",
    lines: Sequence[str] = (),
    said: str = "",
    also: Sequence[Message] = (),
    unless: str = "",
) -> str:
    """A message as a paragraph. title: replaces the event text. lines: printed between it and the cause. said: the line
    of the log, quoted where no cause is known. also: further messages that fit it. unless: an unknown error before."""

    def entry(name: str, text: str) -> str:
        text = fill(
            f"{name + ':':<9}{text}", 76, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False
        )
        return f"  {text}"

    title = title or f"{message.happened} [{message.id}]"
    claims = not message.is_silent
    about = [
        entry("cause", message.cause if claims else "not known from this line"),
        *([f"  {'remedy:':<9}{message.remedy}"] if message.remedy and claims else []),
        *([entry("or", f"{other.happened} {other.cause} [{other.id}]") for other in also]),
        *([entry("unless", f"an earlier error that is not known led to it: {unless}")] if unless and claims else []),
        *([] if claims or not said else [entry("line", said), entry("writer", origin(said))]),
        *([] if claims else [entry("send", SEND)]),
    ]
    return "\n".join(
        [
            fill(title, 78, subsequent_indent="  ", break_on_hyphens=False),
            *(fill(text, 78, initial_indent="  ", subsequent_indent="    ") for text in lines),
            *about,
            entry("source", f"{message.source} [{message.status}]") + "\n",
        ]
    )


def print_log(
    log: BuildLog, everything: bool = False, plan: Optional[Plan] = None, heading: str = "", lines: int = LINES
) -> None:
    """Print event, layers, cause and remedy of each known message, the most likely cause first; harmless ones and
    consequences on a line at the end. Without `everything`, at most `lines`: messages that no longer fit are
    named on a line each, then counted.

    plan: to compare with."""
    if heading:
        middle = f" ({log.skipped >> 20} MiB in the middle were not read)" if log.skipped else ""
        print(f"{heading}: {log.lines} lines{middle}{_devices(log)}\n")
    brief: List[str] = []
    used = 0
    for entry in log.ranked():
        title = f"{entry.count} x {entry.message.happened} [{entry.message.id}]"
        named = _layers(list(entry.names), everything, plan or {})
        text = _worded(entry.message, title, named, entry.first, list(entry.also.values()), entry.unless)
        height = text.count("\n") + 1
        if everything or (_explains(entry.message, used) and not brief and used + height <= lines * 2 / 3):
            print(text)
            used += height
        else:
            brief.append(title)
    fitting = brief[: max(lines - used - 4, 0)]
    for title in fitting:
        print(title)
    if len(brief) > len(fitting):
        print(f"... and {counted(len(brief) - len(fitting), 'more message')} (--all)")
    elif brief:
        print("--all has their causes.")
    if log.unknown_count:
        print(f"{log.unknown_count} warnings or errors are not known, the first: {log.unknown[0]}")
    if not log.found and not log.unknown_count:
        print("No warning, no error and no other known message.")


def _explains(message: Message, used: int) -> bool:
    """True if a message is shown with its cause and remedy. A note or a consequence is only if it lists causes and no
    message was shown before it. used: number of those."""
    return message.kind not in MINOR or (bool(message.causes) and not used)


def _devices(log: BuildLog) -> str:
    known = log.dla or log.gpu
    return f", {len(log.dla)} layers or regions on the DLA, {len(log.gpu)} on the GPU" if known else ""


def _layers(names: Sequence[str], everything: bool, plan: Plan) -> List[str]:
    """A line for each layer or tensor of a message, and its plan."""
    shown = names if everything else names[:_SHOWN]
    more = [f"... and {len(names) - len(shown)} more (--all lists them)"] if len(names) > len(shown) else []
    return [f"{name}{_planned(name, plan)}" for name in shown] + more


def _planned(name: str, plan: Plan) -> str:
    """The plan's prediction for the layer or tensor, '' without a plan."""
    if not plan:
        return ""
    inside = EngineLayer(name, "", (), ()).region
    parts = inside.split("...") if inside else fused_names(name, plan)
    row = next((plan[part] for part in parts if part in plan), None)
    if row is None:
        return ": not a layer of the model"
    if row.device == "gpu" and "DLA" in row.reason:
        return f": predicted, {row.reason}"
    return f": planned {row.precision.upper()}{' on the DLA' if row.device == 'dla' else ''}, not predicted"


def _plan(options: Options) -> Plan:
    if options.translation is None:
        return {}
    (rows,) = locate(options.translation, options.model).report_parts("plan")
    return {**{tensor: row for row in rows for tensor in row.outputs}, **{row.name: row for row in rows}}


def _print_json(log: BuildLog, plan: Plan) -> None:
    rows = plain(occurrences(log))
    if plan:
        rows = [{**row, "planned": {name: _planned(name, plan)[2:] for name in row["names"]}} for row in rows]
    whole = {"lines": log.lines, "messages": rows, "unknown": log.unknown_count, "unknown_examples": log.unknown}
    print(json_text(whole, indent=2, ensure_ascii=False))
