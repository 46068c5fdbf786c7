"""Lines of build logs and their meaning: a table (`messages.json`), each row with cause, remedy and public source.

A row has one or more case-insensitive patterns. The first row that matches wins, so special cases precede general ones;
in a whole log errors precede warnings (`BuildLog.ranked`). Nothing here imports TensorRT.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional

from qdq_translator.core.disk import open_file
from qdq_translator.core.errors import UserError

_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")
"""Python's regular expression parser: a separate module before 3.11."""
_TABLE = Path(__file__).with_name("messages.json")
_LONGEST, _READ = 2000, 1 << 16
"""Characters of a line that are searched (a bound for the patterns), and that are read."""
_QUOTES = str.maketrans("‘’“”", "''\"\"")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(
    r"^(?:\s*(?:[>|*`]+ ?|\[(?!DlaLayer\]|GpuLayer\])[^\[\]]{1,80}\]:?|(?:WARNING|ERROR|INFO|VERBOSE):"
    r"|\d+:\d\d:\d\d\.\d+\s[^\]]*\]:|\d{4}-\d\d-\d\d [\d:.,]+))*\s*(?:- ?)?(?:\d+: )?"
)
"""Time stamps, severities and places in TensorRT's source, of trtexec, Python, DeepStream, ONNX Runtime and PyTorch."""
_PROBLEM = re.compile(r"\[[WEF]\]|\[[WEF]:|\b(?:WARNING|ERROR|Error\[)")
_WRITERS = ("TRT", "TensorRT", "trtexec", "nvinfer", "NvDsInfer", "DLA", "cudla", "cuDLA")
_ERROR = re.compile(r"\[[EF]\]|\[[EF]:|\bERROR\b|Error\[")
_MILD = re.compile(r"\[[WIV]\]|\[[WIV]:|\b(?:WARN(?:ING)?|INFO)\b|[Ww]arning:")
_FALLBACK, _SCALE, _CACHE_REJECTED = "fallback", "scale", "cache-mismatch"
MINOR = ("note", "consequence")
"""Kinds that do not explain a failure by themselves."""


@dataclass(frozen=True, eq=False)
class Message:
    """A row. `kind`: fallback, scale, cache, build, format, memory, engine, parser, board, general (an error code
    alone), note (harmless) or consequence (of an earlier line). `status`: maintainer, documented, measured, user report
    or inferred."""

    id: str
    kind: str
    keys: frozenset[str]
    pattern: re.Pattern[str]
    happened: str
    cause: str
    remedy: str
    source: str
    status: str


@dataclass(frozen=True)
class Found:
    """A line that a row explains; `layer` and `tensor` as spelled in the log, '' if the line names none."""

    message: Message
    text: str
    layer: str
    tensor: str


@functools.lru_cache(maxsize=None)
def messages() -> tuple[Message, ...]:
    rows = json.loads(_TABLE.read_text(encoding="utf-8"))
    for row in rows:
        text = "|".join(row.pop("patterns"))
        row.update(keys=_literals(_parser.parse(text)), pattern=re.compile(text, re.IGNORECASE))
    return tuple(Message(**row) for row in rows)


def _literals(parsed: Any) -> frozenset[str]:
    """Lower-case texts, one of which is in every match; the shortest is as long as possible. May be empty."""
    found, run = [], ""
    for name, value in [*parsed, ("", None)]:
        if str(name) == "LITERAL":
            run += chr(value).lower()
            continue
        found.append(frozenset([run] if run else []))
        run = ""
        if str(name) == "SUBPATTERN":
            found.append(_literals(value[-1]))
        elif str(name) == "MAX_REPEAT" and value[0]:
            found.append(_literals(value[2]))
        elif str(name) == "BRANCH":
            branches = [_literals(branch) for branch in value[1]]
            found.append(frozenset().union(*branches) if all(branches) else frozenset())
    return max(found, key=lambda texts: min(map(len, texts), default=0))


@functools.lru_cache(maxsize=None)
def _index() -> dict[str, list[tuple[str, int]]]:
    """First four characters of a key -> keys that begin with them, and the positions of their rows."""
    index: dict[str, list[tuple[str, int]]] = {}
    for place, message in enumerate(messages()):
        for key in message.keys:
            index.setdefault(key[:4], []).append((key, place))
    return index


def plain(line: str) -> str:
    """The line without colors, time stamp and severity, at most 2000 characters; single blanks, plain quotes."""
    line = " ".join(line[:_LONGEST].translate(_QUOTES).split())
    return _PREFIX.sub("", _COLOR.sub("", line) if "\x1b" in line else line).strip()


def recognize(line: str) -> Optional[Found]:
    """The row that explains a line, or None. Verbose lines matter only if an assertion failed."""
    if "[V] " in line and "ssert" not in line:
        return None
    line = " ".join(line[:_LONGEST].translate(_QUOTES).split())
    lower = line.lower()
    hits = _index().keys() & {lower[start : start + 4] for start in range(len(lower) - 3)}
    candidates = {place for hit in hits for key, place in _index()[hit] if key in lower}
    if not candidates:
        return None
    text = plain(line)
    lower = text.lower()
    for place in sorted(candidates):
        message = messages()[place]
        match = message.pattern.search(text)
        if not match and not any(key in lower for key in message.keys):
            match = message.pattern.search(line)  # the matching text is in the prefix
        if match:
            names = match.groupdict()
            return Found(message, text, names.get("layer") or "", names.get("tensor") or "")
    return None


@dataclass
class Occurrences:
    """How often a message occurred, whether as an error, and the layers or tensors that it named, once each and in
    order.
    """

    message: Message
    first: str
    count: int
    names: dict[str, str]
    is_error: bool = False


@dataclass
class BuildLog:
    """A build log. `dla`, `gpu`: layers by device; `set_precisions`: layer -> precision (10.x); `fallbacks`: (layer,
    sentence); `found`: id -> occurrences of known messages; `unknown`: the first of `unknown_count` other problems."""

    dla: list[str] = field(default_factory=list)
    gpu: list[str] = field(default_factory=list)
    set_precisions: dict[str, str] = field(default_factory=dict)
    fallbacks: dict[tuple[str, str], None] = field(default_factory=dict)
    missing_scales: dict[str, None] = field(default_factory=dict)
    found: dict[str, Occurrences] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    unknown_count: int = 0
    lines: int = 0
    is_known_program: bool = False

    @property
    def cache_rejected(self) -> bool:
        return _CACHE_REJECTED in self.found

    def ranked(self) -> list[Occurrences]:
        """The known messages, most likely cause first: errors before warnings, error codes and consequences last."""

        def rank(entry: Occurrences) -> tuple[bool, bool, bool]:
            kind = entry.message.kind
            return kind in MINOR, not entry.is_error, kind == "general"

        return sorted(self.found.values(), key=rank)

    def add(self, line: str) -> None:
        self.lines += 1
        found = recognize(line)
        if found is not None:
            self._add_message(found, line[:_LONGEST])
        elif "Layer] " in line or "Set layer " in line:
            self._add_layer(plain(line))
        elif _PROBLEM.search(line[:_LONGEST]):
            self.unknown_count += 1
            if len(self.unknown) < 3:
                self.unknown.append(plain(line))
        if not self.is_known_program:
            self.is_known_program = found is not None or any(word in line for word in _WRITERS)

    def _add_message(self, found: Found, line: str) -> None:
        message, name = found.message, found.layer or found.tensor
        entry = self.found.setdefault(message.id, Occurrences(message, found.text, 0, {}))
        entry.count += 1
        mild = message.kind in (_FALLBACK, _SCALE) or _MILD.search(line)
        entry.is_error = entry.is_error or not mild or bool(_ERROR.search(line))
        if name:
            entry.names.setdefault(name, found.text)
        if message.kind == _FALLBACK and found.layer:
            self.fallbacks[(found.layer, found.text)] = None
        elif message.kind == _SCALE and found.tensor:
            self.missing_scales[found.tensor] = None

    def _add_layer(self, text: str) -> None:
        device, _, name = text.partition("] ")
        if device == "[DlaLayer":
            self.dla.append(name)
        elif device == "[GpuLayer":
            self.gpu.append(re.sub(r"^[A-Z][A-Z_]*: ", "", name))
        elif match := re.match(r"Set layer (.*) to precision (\w+)$", text):
            self.set_precisions[match[1]] = match[2]


def parse_log(lines: Iterable[str]) -> BuildLog:
    """The output of trtexec or of another builder, with or without time stamps."""
    log = BuildLog()
    for line in lines:
        log.add(line)
    return log


def read_log(path: Path) -> BuildLog:
    """The same for a file of any size; '-' is standard input. Raises UserError if it cannot be read or is from another
    program.
    """
    log = parse_log(_lines(path))
    if not log.is_known_program:
        raise UserError(
            f"{path} contains no line of TensorRT, DeepStream, ONNX Runtime or cuDLA.",
            "Give the output of trtexec or of the program that built or ran the engine.",
        )
    return log


def _lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 or UTF-16 (Windows' shell) text, at most 64 Ki characters each."""
    import io
    import sys

    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) if str(path) == "-" else open_file(path) as buffered:
            text = io.TextIOWrapper(buffered, _encoding(buffered.peek(2)), errors="replace")
            yield from iter(lambda: text.readline(_READ), "")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path} cannot be read: {reason}.", "Check the path.") from error


def _encoding(head: bytes) -> str:
    """Recognizes UTF-16 by its byte order mark, or by the zero byte of its first character."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return {b"\0": "utf-16-be"}.get(head[:1], "utf-16-le" if head[1:2] == b"\0" else "utf-8-sig")
