"""What `explain` prints: rules, limits, platforms, boards, scales of tensors, messages and logs, in words."""

from __future__ import annotations

import os
from operator import attrgetter
from pathlib import Path
from typing import List, Sequence, Tuple, Union

from qdq_translator.board.engine.messages import BuildLog, Message, messages, parse_log, read_log, recognize
from qdq_translator.core.boards import BOARDS
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.engine_rows import LogMessage
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.report_rows import LayerPlan, TensorScale
from qdq_translator.core.parsing import did_you_mean, sentence
from qdq_translator.core.rules import RULES, described
from qdq_translator.core.words import counted
from qdq_translator.translation.targets.platforms import PLATFORMS, Platform, find_platform


def is_log(name: str) -> bool:
    """A file (a pipe, too, so that its refusal says what it is), standard input, or several lines of text."""
    return name == "-" or "\n" in name.strip() or (os.path.exists(name) and not os.path.isdir(name))


def read_any(name: str) -> BuildLog:
    return parse_log(name.splitlines()) if "\n" in name.strip() else read_log(Path(name))


def lookup(name: str) -> Union[Message, List[Tuple[str, List[str]]]]:
    """The message, or (title, paragraphs) of each rule, limit, platform or board. Raises UserError for none."""
    texts, key = explained(), key_of(name)
    found = [texts[k] for k in (key, f"DLA {key}") if k in texts] or _combined(name)
    if found:
        return found
    line = recognize(name)
    message = next((row for row in messages() if row.id == name.lower()), line.message if line else None)
    if message is None:
        hint = did_you_mean(key, texts) or "'qdq-translator explain' lists all."
        if " " in name.strip():
            hint = "Give the whole log: the cause of a failure is often an earlier line."
        raise UserError(f"'{name}' is no file, rule, limit, platform, board or known message.", hint)
    return message


def occurrences(log: BuildLog) -> Tuple[LogMessage, ...]:
    """The known messages of a log."""
    keys = ("id", "kind", "happened", "cause", "remedy", "source", "status")
    return tuple(
        LogMessage(
            **{**{key: getattr(entry.message, key) for key in keys}, **_abstained(entry.message)},
            count=entry.count,
            names=tuple(entry.names),
        )
        for entry in log.ranked()
    )


def _abstained(message: Message) -> dict[str, str]:
    """Empty cause and remedy of a message that claims none."""
    return {"cause": "", "remedy": ""} if message.is_silent else {}


def key_of(name: str) -> str:
    """'W-C1' and 'c1' -> 'C1'; 'DLA P3', platforms and boards as they are."""
    if name.lower() in BOARDS:
        return name.lower()
    last = name.upper().split("-")[-1] if name[1:2] == "-" else name.upper()
    return name.lower() if "-" in name and name[1:2] != "-" else last


def explanation(name: str) -> Tuple[str, List[str]]:
    """(title, paragraphs) of a rule, a limit, a platform, a board, a diagnostic, a message of a log, or a log file.
    Raises UserError for another name."""
    if is_log(name):
        log = read_any(name)
        found = [" ".join([f"{row.count} x", *_paragraphs(row.message)]) for row in log.ranked()]
        unknown = [
            f"{log.unknown_count} warnings or errors are not known, the first: {line}" for line in log.unknown[:1]
        ]
        return f"{name}: {log.lines} lines", found + unknown
    about = lookup(name)
    return about[0] if isinstance(about, list) else (about.happened, _paragraphs(about)[1:])


def _paragraphs(message: Message) -> List[str]:
    if message.is_silent:
        return [message.happened, "Cause: not known from this line", f"Source: {message.source} [{message.status}]"]
    remedy = [f"Remedy: {message.remedy}"] if message.remedy else []
    return [message.happened, f"Cause: {message.cause}", *remedy, f"Source: {message.source} [{message.status}]"]


def explained() -> dict[str, tuple[str, list[str]]]:
    """Name -> (title, paragraphs): rules, limits as 'DLA P3', platforms, boards."""
    from qdq_translator.translation.targets.dla.limits import LIMITS

    def paragraphs(*parts: str) -> list[str]:
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
    texts.update({p.name: _about_platform(p) for p in PLATFORMS})
    return {**texts, **_boards()}


def _about_platform(p: Platform) -> tuple[str, list[str]]:
    """(title, paragraphs) of a platform."""
    header = f"cache header TRT-{p.cache_version}" if p.has_implicit_int8 else "no implicit quantization"
    dla = f"{p.dla.capitalize()}'s DLA" if p.dla else "no DLA for translations"
    notes = [f"{text[:1].upper()}{text[1:]}." for text in (p.note, p.dla_too_old, f"source: {p.source}") if text]
    return f"Platform {p.name}: TensorRT {'.'.join(map(str, p.tensorrt))}, {header}, {dla}", notes


def _combined(name: str) -> list[tuple[str, list[str]]]:
    """A platform with another TensorRT, spelled as for --platform, or a board with a platform; [] for another name."""
    board, at, platform = name.strip().lower().partition("@")
    try:
        if at:
            found = _combined(platform) if board in BOARDS else []
            return [_boards()[board], *found] if found else []
        return [_about_platform(find_platform(name, explicit=True))]
    except UsageError:
        return []


def _boards() -> dict[str, tuple[str, list[str]]]:
    """Name -> (title, paragraphs) of each board."""
    texts = {}
    for board in BOARDS.values():
        dla = f"{counted(board.cores, 'DLA core')} of {board.dla.capitalize()}" if board.dla else "no DLA"
        platforms = f"Platforms: {', '.join(board.platforms) or 'any'}; --board {board.name}@PLATFORM selects one."
        paragraphs = [platforms, f"Power modes: {', '.join(board.modes)}.", f"Source: {board.source}."]
        texts[board.name] = (f"Board {board.name}: {dla}", paragraphs)
    return texts


def about_tensor(files: TranslationFiles, name: str) -> List[Tuple[str, List[str]]]:
    """Why a tensor of a translation has its scale: value, rule and origin, and the layers that read it; why not, if it
    has none. [] for a name that is no tensor of it."""
    scales, plan = files.report_parts("scales", "plan")
    ends = _neighbours(plan, name)
    row = next((row for row in scales if row.tensor == name), None)
    if row is not None:
        size = f"scale {row.scale:.6g}: INT8 covers -{127 * row.scale:.6g} to {127 * row.scale:.6g}"
        return [(f"Tensor {name}: {size}", [_origin(row), *ends])]
    why = next((layer.reason for layer in plan if name in (*layer.inputs, *layer.outputs)), None)
    return [] if why is None else [(f"Tensor {name}: no scale", [sentence(why)] * bool(why) + ends)]


def _origin(row: TensorScale) -> str:
    where = [f"node '{row.node}'"] if row.node else []
    where += [f"tensor '{row.source}'"] if row.source and row.source != row.tensor else []
    origin = f"From {' and '.join(where)}, by rule {row.rule}" if where else f"By rule {row.rule}"
    return f"{origin} ({RULES[row.rule].words})." if row.rule in RULES else f"{origin}."


def _neighbours(plan: Sequence[LayerPlan], name: str) -> List[str]:
    """The layers that write and read a tensor, in two sentences."""
    makers, readers = (
        [f"{row.op} '{row.name}' ({row.precision.upper()})" for row in plan if name in ends(row)]
        for ends in (attrgetter("outputs"), attrgetter("inputs"))
    )
    more = " and others" if len(readers) > 5 else ""
    return [f"Written by {maker}." for maker in makers] + (
        [f"Read by {', '.join(readers[:5])}{more}."] if readers else []
    )
