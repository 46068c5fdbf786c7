"""Lines of build logs and their meaning: a table (`messages.json`), each row with cause, remedy and public source.

A row has one or more case-insensitive patterns. Of the rows that fit a line, one of kind `general` counts only if no
other does, and one that names a more specific row `below` it counts only without that row; several that are left all
fit, in the order of the table. A row with `causes` names a symptom that has several: it gives them with a test for
each, claims none, and counts only if no row that claims one fits: a row is written so if its text does not prove the
cause. A `general` row without causes gives the meaning of the line only. In a whole log errors precede warnings
(`BuildLog.ranked`). Names that TensorRT removed are read by `removed`. Nothing here imports TensorRT.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional

from qdq_translator.board.engine import removed
from qdq_translator.board.engine.removed import Removal
from qdq_translator.core.disk import open_file
from qdq_translator.core.errors import UserError

_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")
"""Python's regular expression parser: a separate module before 3.11."""
_TABLE = Path(__file__).with_name("messages.json")
_LONGEST, _READ = 2000, 1 << 16
"""Characters of a line that are searched (a bound for the patterns), and that are read."""
_MOST = 3 << 20
"""Bytes that are read at the beginning and at the end of a longer file."""
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
GENERAL = "general"
"""Kind of a row that claims no cause and counts only alone."""
ANY = "*"
"""A value of `below`: of the rows that match a line, every other one that claims a cause comes first."""
MINOR = ("note", "consequence")
"""Kinds that do not explain a failure by themselves."""


@dataclass(frozen=True, eq=False)
class Message:
    """A row. `kind`: fallback, scale, cache, build, format, memory, engine, parser, board, general (no cause is
    claimed), note (harmless) or consequence (of an earlier line). `status`: maintainer, documented, measured, user
    report or inferred. `below`: ids of more specific rows. `removal`: the name that TensorRT removed, if the message is
    about one."""

    id: str
    kind: str
    keys: frozenset[str]
    pattern: re.Pattern[str]
    happened: str
    cause: str
    remedy: str
    source: str
    status: str
    below: frozenset[str] = frozenset()
    removal: Optional[Removal] = None
    writers: tuple[str, ...] = ()
    """Keys of `WRITERS`: the row does not apply to a line that shows another writer only. 'compiler' is for lines of
    compilers and linkers, too; no other row applies to them."""
    causes: tuple[str, ...] = ()
    """The usual causes of a message that is only a symptom, each with what shows it; () where `cause` is a claim."""
    versions: tuple[str, ...] = ()
    """TensorRT versions from the first to before the second, '' for open: no other log has this cause."""

    @property
    def claims(self) -> bool:
        """True if the row names one cause."""
        return self.kind != GENERAL and not self.causes

    @property
    def is_silent(self) -> bool:
        """True if the row names no causes at all."""
        return self.kind == GENERAL and not self.causes


@dataclass(frozen=True)
class Found:
    """A line that a row explains; `layer` and `tensor` as spelled in the log, '' if the line names none. `also`: rows
    that fit, too, and are neither more specific nor less."""

    message: Message
    text: str
    layer: str
    tensor: str
    also: tuple[Message, ...] = ()


@functools.lru_cache(maxsize=None)
def messages() -> tuple[Message, ...]:
    table = rows()
    for row in table:
        patterns = enumerate(row.pop("patterns"))
        text = "|".join(re.sub(r"\(\?P<(\w+)>", rf"(?P<\1_{place}>", pattern) for place, pattern in patterns)
        row.update(keys=_literals(_parser.parse(text)), pattern=re.compile(text, re.IGNORECASE))
        if "causes" in row:
            row["cause"] = usual(row["causes"])
        for key in ("below", "writers", "versions", "causes"):
            row[key] = (frozenset if key == "below" else tuple)(row.get(key, ()))
    return tuple(Message(**row) for row in table)


def usual(causes: list[str]) -> str:
    """The causes of a symptom in a sentence."""
    return "Usually one of: " + "; ".join(f"({place}) {text}" for place, text in enumerate(causes, 1)) + "."


def rows() -> list[dict[str, Any]]:
    """The rows of the table as they are written."""
    table: list[dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


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


def recognize(line: str, version: Optional[tuple[int, int]] = None) -> Optional[Found]:
    """The row that explains a line, or None. Verbose lines matter only if an assertion failed. version: TensorRT's,
    where it is known: rows of other versions do not apply."""
    if "[V] " in line and "ssert" not in line:
        return None
    if removed.may_name(line):
        text = plain(line)
        gone, announced = removed.named_in(text), removed.deprecated_in(text)
        about = _about(gone) if gone else _announcing(announced) if announced else None
        if about is not None:
            return Found(about, text, "", "")
    line = " ".join(line[:_LONGEST].translate(_QUOTES).split())
    left = _most_specific([one for one in _fitting(line) if version_fits(one[0], version)])
    if not left:
        return None
    message, match = left[0]
    names = {name.partition("_")[0]: value for name, value in match.groupdict().items() if value}
    also = tuple(other for other, _ in left[1:])
    return Found(message, plain(line), names.get("layer") or "", names.get("tensor") or "", also)


def _fitting(line: str) -> Iterator[tuple[Message, re.Match[str]]]:
    """All rows whose patterns are in a line, in the order of the table."""
    lower = line.lower()
    hits = _index().keys() & {lower[start : start + 4] for start in range(len(lower) - 3)}
    text = plain(line)
    for place in sorted({place for hit in hits for key, place in _index()[hit] if key in lower}):
        message = messages()[place]
        match = message.pattern.search(text)
        if not match and text != line:
            match = message.pattern.search(line)  # the matching text is in the prefix
        if match and writer_fits(message, text):
            yield message, match


_COMPILER = re.compile(
    r"\.(?:cpp|cc|cxx|c|h|hpp|cu|cuh)(?::\d+|\(\d+)[:,)\d]*:? (?:fatal |catastrophic )?(?:error|warning)\b"
    r"|\bld(?:\.\w+)?: |undefined reference to|unresolved external symbol|ld returned \d|has no member"
)
_CORE = r"\[\w+\.(?:cpp|h)::[^\]]*\] Error Code|\bI(?:Builder|\w*ExecutionContext|\w*Engine|Runtime)::\w+: Error Code"
WRITERS = {
    "trtexec": (r"\bTensorRT\.trtexec\b|\btrtexec\b", "trtexec"),
    "parser": (r"onnx2trt|OnnxParser|ModelImporter|[oO]p_?[iI]mporters?\.cpp|In node -?\d+", "TensorRT's ONNX parser"),
    "dla": (r"(?i)nvdla|\bdla\b|nvmedia|cudla", "the DLA's compiler or runtime"),
    "myelin": (r"(?i)myelin", "Myelin, TensorRT's compiler of fused regions"),
    "onnxruntime": (r"onnxruntime|ONNXRuntimeError|TensorRT EP|ExecutionProvider", "ONNX Runtime"),
    "deepstream": (r"(?i)nvinfer gst|gstnvinfer|nvdsinfer|deepstream|gst", "DeepStream"),
    "triton": (r"(?i)tritonserver|triton-server|model_repository", "Triton"),
    "ultralytics": (r"\bultralytics\b", "ultralytics"),
    "modelopt": (r"modelopt", "ModelOpt"),
    "torch": (r"Torch-TensorRT|torch_tensorrt|torch2trt|\btorch[./]", "PyTorch or a converter of its models"),
    "tensorflow": (r"(?i)tensorflow|tf2tensorrt|tf-?trt", "TensorFlow"),
    "core": (_CORE, "TensorRT"),
    "python": (r"^(?:E +)?(?:[\w.]+\.)?\w*(?:Error|Exception|Warning): |^ *File|^(?:E +)?assert |Traceback", "Python"),
    "compiler": (_COMPILER.pattern, "a C++ compiler or linker"),
    "tensorrt": (r"(?i)tensorrt|\btrt|nvinfer|error code \d|Error\[\d+\]|\[\d+\] |\w+\.cpp::", "TensorRT"),
    "shell": (r"command not found|No such file", "the shell"),
}
"""Key -> how a line shows that it is from that program, and its name; the first that fits names the writer."""
_BY = {key: re.compile(pattern) for key, (pattern, _) in WRITERS.items()}


def writer_fits(message: Message, text: str) -> bool:
    """False for a line whose writers are known and none of the row's, and for a line of a compiler or linker and a row
    that is not about them."""
    if "compiler" in message.writers:
        return True
    if _COMPILER.search(text):
        return False
    known = _writers(text) if message.writers else frozenset()
    return not known or not known.isdisjoint(message.writers)


@functools.lru_cache(maxsize=1)
def _writers(text: str) -> frozenset[str]:
    """The keys of the writers that a line shows; 'tensorrt' only if it shows no part of it."""
    known = frozenset(key for key in WRITERS if _BY[key].search(text))
    return known - {"tensorrt"} if known & {"core", "parser", "dla", "myelin", "trtexec"} else known


def version_fits(message: Message, version: Optional[tuple[int, int]]) -> bool:
    """True if the cause that the row names exists in TensorRT `version` (major, minor), or if it is None (unknown)."""
    first, end = [tuple(map(int, text.split("."))) if text else None for text in message.versions or ("", "")]
    return version is None or ((first is None or first <= version) and (end is None or version < end))


def _most_specific(fitting: list[tuple[Message, re.Match[str]]]) -> list[tuple[Message, re.Match[str]]]:
    """The rows that claim a cause, else those of symptoms, without those that are below another one; else the first."""
    specific = [one for one in fitting if one[0].kind != GENERAL]
    present = {message.id for message, _ in specific} | ({ANY} if len(specific) > 1 else set())
    left = [one for one in specific if not one[0].below & present]
    return [one for one in left if one[0].claims] or left or (specific or fitting)[:1]


_CODES = {
    1: "unspecified",
    2: "internal",
    3: "argument",
    4: "configuration",
    5: "allocation",
    6: "initialization",
    7: "execution",
    8: "computation",
    9: "state",
    10: "unsupported",
}
"""TensorRT's error codes: NvInferRuntimeBase.h, ErrorCode."""


def origin(line: str) -> str:
    """Who wrote a line, where in its source, and what its error code means, as far as the line gives it."""
    writer = next((name for key, (_, name) in WRITERS.items() if _BY[key].search(line)), "an unknown program")
    place = re.search(r"\w+\.(?:cpp|h|cu)::?[\w~]*(?:::\d+)?", line)
    code = re.search(r"Error(?: Code |\[)(\d+)", line)
    meaning = _CODES.get(int(code[1])) if code else None
    return ", ".join(
        [writer, *([place[0]] if place else []), *([f"error code {code[1]}: {meaning}"] if code and meaning else [])]
    )


@functools.lru_cache(maxsize=None)
def _about(gone: Removal) -> Message:
    """The message that a name is missing which TensorRT removed."""
    headers = gone.language == "cpp" and gone.removed
    quantizes = "explicit MODEL -c CACHE" if gone.needs_scales else "explain PROGRAM"
    needs = "the scales of the calibration cache become Q/DQ nodes of the ONNX model; " if gone.needs_scales else ""
    needs = needs or ("the ONNX model itself has to state its types; " if gone.onnx.startswith("yes (typed)") else "")
    return Message(
        id=f"removed {gone.name}",
        kind="build",
        keys=frozenset(),
        pattern=re.compile(re.escape(gone.name)),
        happened=f"{_shown(gone.name)} is {gone.since}.",
        cause=f"The program was written for an earlier TensorRT: {needs}instead: {gone.replacement or 'nothing'}."
        + (f" If yours is older than {gone.removed}, its headers are too old for the program." if headers else ""),
        remedy=f"qdq-translator {quantizes}",
        source=removed.source(),
        status="documented",
        removal=gone,
    )


def _shown(name: str) -> str:
    """A header as such, another name in quotes."""
    return f"The header {name[10:-1]}" if name.startswith("#include <") else f"'{name}'"


def _announcing(row: Removal) -> Message:
    """The message that a compiler calls a name deprecated: a note, in any version."""
    about = _about(row)
    return replace(
        about, id=f"deprecated {row.name}", kind="note", removal=None, happened=f"'{row.name}': {row.since}."
    )


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
    unless: str = ""
    """An error of the same writer before its first line that no row knows: perhaps the cause."""
    also: dict[str, Message] = field(default_factory=dict)
    """Id -> further messages that fit its lines."""


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
    unknown_errors: dict[frozenset[str], str] = field(default_factory=dict)
    """Writers -> the first unknown line that is an error."""
    lines: int = 0
    is_known_program: bool = False
    version: Optional[tuple[int, int]] = None
    """TensorRT's version, if the log states it."""
    skipped: int = 0
    """Bytes in the middle of the file that were not read."""

    @property
    def cache_rejected(self) -> bool:
        return _CACHE_REJECTED in self.found

    def ranked(self) -> list[Occurrences]:
        """The known messages, most likely cause first: errors before warnings, error codes and consequences last."""

        def rank(entry: Occurrences) -> tuple[bool, bool, bool]:
            kind = entry.message.kind
            return kind in MINOR, not entry.is_error, kind == GENERAL

        known = (entry for entry in self.found.values() if self._applies(entry.message))
        return sorted(known, key=rank)

    def _applies(self, message: Message) -> bool:
        """False for a name that TensorRT removed after the version that the log states."""
        return message.removal is None or removed.applies(message.removal, self.version)

    def add(self, line: str) -> None:
        self.lines += 1
        self.version = self.version or removed.stated_version(line)
        found = recognize(line, self.version)
        if found is not None:
            self._add_message(found, line[:_LONGEST])
        elif "Layer] " in line or "Set layer " in line:
            self._add_layer(plain(line))
        elif _PROBLEM.search(line[:_LONGEST]):
            self.unknown_count += 1
            if len(self.unknown) < 3:
                self.unknown.append(plain(line))
            if _ERROR.search(line[:_LONGEST]):
                self.unknown_errors.setdefault(_writers(line[:_LONGEST]), plain(line))
        if not self.is_known_program:
            self.is_known_program = found is not None or any(word in line for word in _WRITERS)

    def _add_message(self, found: Found, line: str) -> None:
        message, name = found.message, found.layer or found.tensor
        if message.id not in self.found:
            wrote = _writers(line)
            unless = next((text for others, text in self.unknown_errors.items() if not wrote.isdisjoint(others)), "")
            self.found[message.id] = Occurrences(message, found.text, 0, {}, unless=unless)
        entry = self.found[message.id]
        entry.count += 1
        entry.also.update({other.id: other for other in found.also})
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
    """The known messages, layers and versions in the lines of a log file. Of more than 6 MiB only both ends are read;
    '-' is standard input. Raises UserError if the file cannot be read, or if another program wrote it.
    """
    log = parse_log(_lines(path))
    if not log.is_known_program:
        raise UserError(
            f"{path} contains no line of TensorRT, DeepStream, ONNX Runtime or cuDLA.",
            "Give the output of trtexec or of the program that built or ran the engine.",
        )
    log.skipped = max(0, path.stat().st_size - 2 * _MOST) if path.is_file() else 0
    return log


def _lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 or UTF-16 (Windows' shell) text, at most 64 Ki characters each, without the zeros that a log
    emptied in use begins with: the cause of a failure is among the last ones, the version among the first."""
    import io
    import sys

    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) if str(path) == "-" else open_file(path) as buffered:
            encoding = _encoding(buffered.peek(2))
            size = path.stat().st_size if path.is_file() else 0
            text: io.TextIOBase = io.TextIOWrapper(buffered, encoding, errors="replace")
            if size > 2 * _MOST:
                head = buffered.read(_MOST)
                buffered.seek((size - _MOST) & ~1)  # UTF-16 has two bytes a character
                text = io.StringIO(
                    (head + "\n".encode(encoding)[-2:] + buffered.read(_MOST)).decode(encoding, "replace")
                )
            yield from (line.lstrip("\0") for line in iter(lambda: text.readline(_READ), ""))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path} cannot be read: {reason}.", "Check the path.") from error


def _encoding(head: bytes) -> str:
    """Recognizes UTF-16 by its byte order mark, or by the one zero byte of its first character."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if head[:2] == b"\0\0":
        return "utf-8-sig"
    return {b"\0": "utf-16-be"}.get(head[:1], "utf-16-le" if head[1:2] == b"\0" else "utf-8-sig")
