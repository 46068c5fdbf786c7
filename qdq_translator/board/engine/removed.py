"""What TensorRT 8 to 11 removed, and how a message about it reads: rows of `removed.json` and one reader per language.

The rows come from public release notes, headers and binding modules (`python -m benchmarks.removed_names`).
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

_TABLE = Path(__file__).with_name("removed.json")


@dataclass(frozen=True)
class Removal:
    """A name that a later TensorRT lacks. language: python, cpp, trtexec, deepstream, onnxruntime or triton. removed,
    deprecated: versions, '' for none. replacement: in words. onnx: 'yes' if the model needs Q/DQ nodes, 'yes (typed)'
    if it needs types, 'no' if only the call changes; ' on 11' behind it where the key itself stays."""

    name: str
    language: str
    removed: str
    deprecated: str
    replacement: str
    onnx: str
    status: str

    @property
    def needs_scales(self) -> bool:
        """True if the name is replaced by Q/DQ nodes in the model, made from a calibration cache or from ranges."""
        return self.onnx in ("yes", "yes on 11")

    @property
    def is_silent(self) -> bool:
        """Whether no message tells that the meaning changed."""
        return self.status in ("renumbered", "changed")

    @property
    def since(self) -> str:
        """`removed in TensorRT 11.0 (deprecated since 10.1)`, as far as it is known."""
        if self.status == "kept (weak typing)":
            return "rests on weak typing, which TensorRT 11 removed"
        if not self.removed:
            return f"deprecated since TensorRT {self.deprecated}" if self.deprecated else self.status
        product = "TensorRT " if self.removed[0].isdigit() else ""
        if self.is_silent:
            return f"another meaning in {product}{self.removed}"
        before = f" (deprecated since {self.deprecated})" if self.deprecated else ""
        return f"removed in {product}{self.removed}{before}"


@functools.lru_cache(maxsize=None)
def removals() -> dict[tuple[str, str], Removal]:
    """(language, name) -> row."""
    rows = json.loads(_TABLE.read_text(encoding="utf-8"))["rows"]
    return {(row[1], row[0]): Removal(*row) for row in rows}


@functools.lru_cache(maxsize=None)
def source() -> str:
    """The source of the rows, with the day on which they were read."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    return f"{table['source']} ({table['date']})"


@functools.lru_cache(maxsize=None)
def members(language: str) -> dict[str, list[Removal]]:
    """Last part of the name -> rows of that language, signatures in brackets left out."""
    found: dict[str, list[Removal]] = {}
    for (spoken, name), row in removals().items():
        if spoken == language and " " not in name.partition("(")[0].strip():
            found.setdefault(re.split(r"::|\.", name.partition("(")[0].strip())[-1], []).append(row)
    return found


def python_name(owner: str, member: str) -> Optional[Removal]:
    """The row of `owner.member`; a layer class has what `ILayer` lost, and an enumeration's name may be cut off. owner:
    '' for the module itself."""
    for row in members("python").get(member, ()):
        known = row.name.partition(".")[0]
        cut = len(owner) > 12 and known.startswith(owner)
        if known == (owner or "trt") or cut or (known == "ILayer" and owner.endswith("Layer")):
            return row
    return None


def cpp_name(owner: str, member: str) -> Optional[Removal]:
    """The row of `owner::member`, or of the class `member` of a namespace."""
    rows = members("cpp").get(member, ())
    owner = owner.rpartition("::")[2]
    for row in rows:
        parts = row.name.partition("(")[0].split("::")
        if parts[-2:-1] == [owner] or (parts[-2:-1] == ["ILayer"] and owner.endswith("Layer")):
            return row
    namespaces = ("", "nvinfer1", "plugin", "nvcaffeparser1", "nvuffparser", "nvonnxparser")
    return next((row for row in rows if len(row.name.split("::")) == 2 and owner in namespaces), None)


_MODULE = r"(?:tensorrt|tensorrt_bindings)(?:\.\w+)*"
_MESSAGES = {
    "python": (
        "type object '(?:[A-Za-z_]\\w*\\.)*OWNER' has no attribute 'MEMBER'",
        "'(?:[A-Za-z_]\\w*\\.)*OWNER' object has no attribute 'MEMBER'",
        f"module '{_MODULE}' has no attribute 'MEMBER'",
        f"cannot import name 'MEMBER' from '{_MODULE}'",
        "property 'MEMBER' of '(?:\\w+\\.)*OWNER' object has no setter",
        "(?P<nameless>property) of '(?:\\w+\\.)*OWNER' object has no setter",
        "object of type '(?:\\w+\\.)*OWNER' has no (?P<member>len)\\(",
        r"\b(?P<member>add_quantize|(?:de)?register_creator)\(\): incompatible function arguments",
        r"\b(?P<member>deserialize_cuda_engine)\(\): incompatible function.*Invoked with: .*[Ss]tream_?[Rr]eader",
    ),
    "cpp": (
        "OWNER'\\}? has no member named 'MEMBER'",
        '"OWNER" has no member(?: class)? "MEMBER"',
        "no (?:member|type) named 'MEMBER' in (?:namespace )?'OWNER'",
        "'MEMBER'(?: ?:)? is not a member of '(?:\\w+ )?OWNER'",
        "'MEMBER' in (?:namespace|class) 'OWNER' does not name a",
        "'(?:OWNER::)?MEMBER' (?:was not declared|has not been declared|does not name a type)",
        "'(?:OWNER::)?MEMBER' ?: (?:base class undefined|undeclared identifier|identifier not found|illegal qualified"
        " name|the symbol to the left of)",
        "(?:unknown type name|use of undeclared identifier|syntax error: identifier) '(?:OWNER::)?MEMBER'",
        'identifier "(?:OWNER::)?MEMBER" is undefined',
        r"(?:undefined reference to|undefined symbol:?|unresolved external symbol) .*?OWNER::MEMBER\b",
        r"no matching (?:member )?function for call to '(?:OWNER::)?MEMBER\(",
        r"(?P<member>Nv\w+\.h)'?: No such file",
        r"(?:cannot open (?:source|include) file:? ['\"]?|')(?P<member>Nv\w+\.h)\b",
        r"(?:find|no creator for|creator for|get) plugin:? '?(?P<plugin>\w+)",
    ),
    "trtexec": (
        r"Unknown option: (?P<member>--\w+)",
        r"Unknown (?P<owner>preview feature|tactic source): (?P<member>\w+)",
        r"(?P<member>Invalid TensorFormat) \w+:\w+",
    ),
    "deepstream": (r"Unknown or legacy key specified '(?P<member>[\w-]+)'",),
}
"""Language -> how its messages read. MEMBER is the missing name, OWNER its class, enumeration or namespace."""
_WRAPPED = {"preview feature": "--preview=+{}", "tactic source": "--tacticSources=-{}"}
_WORDS = re.compile(
    r"has no |named '|not a member|does not name|declared|no matching|import name|incompatible function|(?i:unknown )"
    r"|Invalid TensorFormat|illegal qualified|deprecated|\bNv\w+\.h|undefined|identifier|unresolved external"
    r"|symbol to the left|plugin:? \w"
)


@functools.lru_cache(maxsize=None)
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    owner = {"python": r"(?P<owner>[A-Za-z_]\w*)", "cpp": r"(?P<owner>[A-Za-z_][\w:]*)"}
    return [
        (spoken, re.compile(text.replace("OWNER", owner.get(spoken, "")).replace("MEMBER", r"(?P<member>~?\w+)")))
        for spoken, texts in _MESSAGES.items()
        for text in texts
    ]


def may_name(line: str) -> bool:
    """Whether a line may be about a missing name: a quick test before `named_in`."""
    return bool(_WORDS.search(line[:2000]))


def named_in(text: str) -> Optional[Removal]:
    """The name that a message of Python, a C++ compiler or linker, trtexec or DeepStream reports as missing, if it was
    removed."""
    for spoken, pattern in _patterns():
        match = pattern.search(text)
        if match:
            names = {name: value for name, value in match.groupdict().items() if value}
            row = _row(spoken, names)
            if row is not None and row.removed:
                return row
    return None


_DEPRECATED = re.compile(
    r"(?:\b(?P<owner>nv[a-z]+\d?(?:::\w+)*)::|warning: '(?=\w+' is ))(?P<member>\w+).*\bdeprecated\b"
)


def deprecated_in(text: str) -> Optional[Removal]:
    """The name that a C++ compiler calls deprecated, if a later TensorRT lacks it or is to lack it."""
    match = _DEPRECATED.search(text)
    return cpp_name(match["owner"] or "", match["member"]) if match else None


def _row(spoken: str, names: dict[str, str]) -> Optional[Removal]:
    owner, member = names.get("owner", ""), names.get("member", "")
    table = removals()
    if "nameless" in names:
        return next(
            (row for row in removals().values() if row.name.startswith(f"{owner}.") and "(assign" in row.name), None
        )
    if spoken == "python":
        return python_name(owner, f"__{member}__" if member == "len" else member) or _overload(member)
    if spoken == "trtexec":
        exact = "--outputIOFormats=<type>:<format>" if " " in member else _WRAPPED.get(owner, "{}").format(member)
        return table.get(("trtexec", exact))
    if spoken == "deepstream":
        return table.get((spoken, member))
    if "plugin" in names:
        return table.get(("cpp", f"plugin {names['plugin']}"))
    header = table.get(("cpp", f"#include <{member}>"))
    return header or cpp_name(owner, member) or (None if owner else _only(member))


def _only(member: str) -> Optional[Removal]:
    """The row of an enumerator or a function that a message names without its owner, if all of that name went in the
    same version."""
    rows = [row for row in members("cpp").get(member, ()) if row.removed]
    return rows[0] if member.startswith("k") and len({row.removed for row in rows}) == 1 else None


def _overload(member: str) -> Optional[Removal]:
    """The row of a call whose signature, not its name, is gone."""
    return next((row for row in members("python").get(member, ()) if "(" in row.name), None)


_STATED = (
    re.compile(r"\[TensorRT v(?P<packed>\d{4,6})\]"),
    re.compile(r"(?i)(?<!deprecated in )\btensorrt(?:[ -]?version)?[:= -]+v?(?P<dotted>\d{1,2}\.\d+(?:\.\d+)*)"),
)


def stated_version(line: str) -> Optional[tuple[int, int]]:
    """The TensorRT version (major, minor) that a line states, None for none. `v110400` is 11.4, `v8601` 8.6."""
    if "ensorrt" not in line.lower():
        return None
    for pattern in _STATED:
        if match := pattern.search(line[:2000]):
            groups = match.groupdict()
            if groups.get("dotted"):
                major, minor, *_ = map(int, groups["dotted"].split("."))
                return major, minor
            packed = int(groups["packed"])
            return (packed // 10000, packed // 100 % 100) if packed >= 100000 else (packed // 1000, packed // 100 % 10)
    return None


def applies(row: Removal, version: Optional[tuple[int, int]]) -> bool:
    """False if the log states a version that still has the name."""
    first = re.match(r"(\d+)\.(\d+)", row.removed)
    return version is None or first is None or version >= (int(first[1]), int(first[2]))
