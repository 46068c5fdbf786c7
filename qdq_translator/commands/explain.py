"""`qdq-translator explain`: a rule, a limit of the DLA, a platform, a message or a whole log, in words."""

import json
import os
import sys
from pathlib import Path
from textwrap import fill
from typing import Dict, List, Optional, Sequence, Tuple, Union

from qdq_translator.commands.located import locate
from qdq_translator.core.command_options import ExplainOptions as Options
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.engine_rows import LogMessage
from qdq_translator.core.formats.report_rows import LayerPlan
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.core.rules import RULES, described, docs_page
from qdq_translator.core.words import counted
from qdq_translator.engine.layer_info import EngineLayer, fused_names
from qdq_translator.engine.messages import MINOR, BuildLog, Message, messages, parse_log, read_log, recognize
from qdq_translator.output.report.tables import LINES
from qdq_translator.targets.platforms import PLATFORMS

Plan = Dict[str, LayerPlan]
"""Layer, or tensor that it writes -> row of the report's plan."""
_SHOWN = 6
_REWRITE = "rewrite for the DLA"
"""The title shared by many rules."""


def run(options: Options) -> int:
    """Print one paragraph per name; status 1 if a name is unknown."""
    if not options.names:
        _print_names(options.all)
        return 0
    logs = [name for name in options.names if _is_log(name)]
    if options.json and len(logs) != 1:
        raise UsageError("--json is for one log.", "Give one file.")
    plan = _plan(options) if logs else {}
    status = 0
    for name in options.names:
        if name not in logs:
            status |= _explain_name(name)
            continue
        log = _read(name)
        if options.json:
            _print_json(log, plan)
        else:
            print_log(
                log, options.all, plan, heading="standard input" if name == "-" else "text" if "\n" in name else name
            )
    return status


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
    for kind, names in kinds.items():
        print(fill(f"{kind:<12}{', '.join(names)}", 78, subsequent_indent=" " * 12, break_on_hyphens=False))
    print(f"{'messages':<12}{len(messages())} of TensorRT, its parser and tools: give a log, or a line of it")
    print("--all prints a line for each name.")


def _is_log(name: str) -> bool:
    """A file, standard input, or several lines of text."""
    return name == "-" or "\n" in name.strip() or os.path.isfile(name)


def _read(name: str) -> BuildLog:
    return parse_log(name.splitlines()) if "\n" in name.strip() else read_log(Path(name))


def _explain_name(name: str) -> int:
    try:
        found = _lookup(name)
    except UserError as error:
        print(f"qdq-translator explain: {error}", file=sys.stderr)
        return 1
    if not isinstance(found, list):
        print(_worded(found))
        return 0
    for title, paragraphs in found:
        lines = [fill(p, 78, initial_indent="  ", subsequent_indent="  ") for p in paragraphs]
        if title.startswith("Rule "):
            lines.append(f"  Described in {docs_page(RULES[_key(name)].page)}")
        print("\n".join([title, *lines, ""]))
    return 0


def _lookup(name: str) -> Union[Message, List[Tuple[str, List[str]]]]:
    """The message, or (title, paragraphs) of each rule, limit or platform of that name. Raises UserError for none."""
    texts, key = explained(), _key(name)
    found = [texts[k] for k in (key, f"DLA {key}") if k in texts]
    if found:
        return found
    line = recognize(name)
    message = next((row for row in messages() if row.id == name.lower()), line.message if line else None)
    if message is None:
        hint = did_you_mean(key, texts) or "'qdq-translator explain' lists all."
        if " " in name.strip():
            hint = "Give the whole log: the cause of a failure is often an earlier line."
        raise UserError(f"'{name}' is no file, rule, limit, platform or known message.", hint)
    return message


def _worded(message: Message, title: str = "", lines: Sequence[str] = ()) -> str:
    """title: replaces the event text. lines: printed between it and the cause."""

    def entry(name: str, text: str) -> str:
        text = fill(
            f"{name + ':':<9}{text}", 76, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False
        )
        return f"  {text}"

    title = title or f"{message.happened} [{message.id}]"
    return "\n".join(
        [
            fill(title, 78, subsequent_indent="  ", break_on_hyphens=False),
            *(fill(text, 78, initial_indent="  ", subsequent_indent="    ") for text in lines),
            entry("cause", message.cause),
            *([f"  {'remedy:':<9}{message.remedy}"] if message.remedy else []),
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
        print(f"{heading}: {log.lines} lines{_devices(log)}\n")
    brief: List[str] = []
    used = 0
    for entry in log.ranked():
        title = f"{entry.count} x {entry.message.happened} [{entry.message.id}]"
        text = _worded(entry.message, title, _layers(list(entry.names), everything, plan or {}))
        height = text.count("\n") + 1
        if everything or (entry.message.kind not in MINOR and not brief and used + height <= lines * 2 / 3):
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


def occurrences(log: BuildLog) -> Tuple[LogMessage, ...]:
    """The known messages of a log."""
    keys = ("id", "kind", "happened", "cause", "remedy", "source", "status")
    return tuple(
        LogMessage(**{key: getattr(entry.message, key) for key in keys}, count=entry.count, names=tuple(entry.names))
        for entry in log.ranked()
    )


def _print_json(log: BuildLog, plan: Plan) -> None:
    rows = plain(occurrences(log))
    if plan:
        rows = [{**row, "planned": {name: _planned(name, plan)[2:] for name in row["names"]}} for row in rows]
    whole = {"lines": log.lines, "messages": rows, "unknown": log.unknown_count, "unknown_examples": log.unknown}
    print(json.dumps(whole, indent=2, ensure_ascii=False))


def _key(name: str) -> str:
    """'W-C1' and 'c1' -> 'C1'; 'DLA P3' and platforms as they are."""
    last = name.upper().split("-")[-1] if name[1:2] == "-" else name.upper()
    return name.lower() if "-" in name and name[1:2] != "-" else last


def explanation(name: str) -> Tuple[str, List[str]]:
    """(title, paragraphs) of a rule, a limit, a platform, a diagnostic, a message of a log, or a log file. Raises
    UserError for another name."""
    if _is_log(name):
        log = _read(name)
        found = [" ".join([f"{row.count} x", *_paragraphs(row.message)]) for row in log.ranked()]
        unknown = [
            f"{log.unknown_count} warnings or errors are not known, the first: {line}" for line in log.unknown[:1]
        ]
        return f"{name}: {log.lines} lines", found + unknown
    about = _lookup(name)
    return about[0] if isinstance(about, list) else (about.happened, _paragraphs(about)[1:])


def _paragraphs(message: Message) -> List[str]:
    remedy = [f"Remedy: {message.remedy}"] if message.remedy else []
    return [message.happened, f"Cause: {message.cause}", *remedy, f"Source: {message.source} [{message.status}]"]


def explained() -> "dict[str, tuple[str, list[str]]]":
    """Name -> (title, paragraphs): rules, limits as 'DLA P3', platforms."""
    from qdq_translator.targets.dla.limits import LIMITS

    def paragraphs(*parts: str) -> "list[str]":
        return [part for part in parts if part]

    texts = {}
    for row in RULES.values():
        flags = " or ".join(f"--{name}" for name in row.options)
        texts[row.id] = (
            f"Rule {row.id}: {row.words}",
            paragraphs(*described(row.id), f"Switched on by {flags}." if flags else ""),
        )
    for limit in LIMITS:
        where = {"gpu": "The layer runs on the GPU.", "dla-fp16": "The layer runs in FP16 on the DLA."}[limit.effect]
        ops = "every operator" if limit.ops == ("*",) else ", ".join(limit.ops)
        only = f" Only {limit.only.capitalize()}." if limit.only else ""
        texts[f"DLA {limit.id}"] = (
            f"DLA limit {limit.id}: {limit.text}",
            paragraphs(f"{where}{only}", f"Applies to {ops}.", f"Source: {limit.source} [{limit.status}]."),
        )
    for p in PLATFORMS:
        version = ".".join(map(str, p.tensorrt))
        header = f"cache header TRT-{p.cache_version}" if p.has_implicit_int8 else "no implicit quantization"
        dla = f"{p.dla.capitalize()}'s DLA" if p.dla else "no DLA for translations"
        texts[p.name] = (
            f"Platform {p.name}: TensorRT {version}, {header}, {dla}",
            paragraphs(
                f"{p.note[:1].upper()}{p.note[1:]}." if p.note else "",
                f"{p.dla_too_old[:1].upper()}{p.dla_too_old[1:]}." if p.dla_too_old else "",
                f"Source: {p.source}.",
            ),
        )
    return texts
