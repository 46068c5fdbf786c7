"""Uses of what TensorRT 11 removed in a program, a command or a configuration; nothing is executed or changed.

| file | how it is read |
| --- | --- |
| Python, notebooks | their syntax tree; types of objects follow from TensorRT's own calls (`create_builder_config`) |
| C++ and CUDA (`.cpp`, `.h`, `.cu`, ...) | tokens, without comments and texts |
| shell, Dockerfile, CMake, YAML | the words behind `trtexec`, and environment variables of ONNX Runtime's provider |
| DeepStream (`[property]`), Triton (`.pbtxt`) | keys and values |

A file that does not use TensorRT (import, include, command, section) has no uses.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, Optional, Sequence, Union

from qdq_translator.board.engine import removed
from qdq_translator.board.engine.removed import Removal
from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.words import counted

PYTHON, CPP, WORDS, DEEPSTREAM, TRITON, NOTEBOOK = "Python", "C++", "shell", "DeepStream", "Triton", "notebook"
_SUFFIXES = {
    **dict.fromkeys((".py", ".pyi"), PYTHON),
    **dict.fromkeys((".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hh", ".cu", ".cuh", ".inl"), CPP),
    **dict.fromkeys((".sh", ".bash", ".cmake", ".dockerfile", ".yml", ".yaml", ".mk", ".bat", ".ps1"), WORDS),
    ".pbtxt": TRITON,
    ".ipynb": NOTEBOOK,
}
_NAMES = re.compile(r"(?i)^(?:Dockerfile.*|CMakeLists\.txt|Makefile.*)$")
_LARGEST = 1 << 22
"""Bytes of a file without a known suffix that may be a program or a configuration; a larger one is a log."""
_HINT = "Give a program, a trtexec command, a DeepStream or Triton configuration, or a log."


@dataclass(frozen=True)
class Use:
    """A use. line: from 1. text: as written. row: what happened to the name. why: of a use that no message tells."""

    line: int
    text: str
    row: Removal
    why: str = ""


def kind_of(path: Path, text: str) -> str:
    """How a file is read; '' for one that is neither program nor configuration (a log, for example)."""
    kind = _SUFFIXES.get(path.suffix.lower()) or (WORDS if _NAMES.match(path.name) else "")
    if kind in ("", WORDS) and re.search(r"(?m)^\s*\[property\]|^property:", text):
        return DEEPSTREAM
    if not kind and text.startswith("#!"):
        return PYTHON if "python" in text.split("\n", 1)[0] else WORDS
    return kind


def uses(path: Path) -> Optional[list[Use]]:
    """The uses in a file, in the order of its lines; None if it is neither program nor configuration. Raises UserError
    if it cannot be read or is no valid Python."""
    known = path.suffix.lower() in _SUFFIXES or _NAMES.match(path.name)
    if not path.is_file() or (not known and path.stat().st_size > _LARGEST):
        return None
    text = read_text(path, _HINT)
    kind = kind_of(path, text)
    if not kind:
        return None
    readers = {PYTHON: _python, CPP: _cpp, WORDS: _words, NOTEBOOK: _notebook, TRITON: _triton}
    readers[DEEPSTREAM] = _deepstream
    found = {(use.line, use.row.name): use for use in readers[kind](text, path)}
    return sorted(found.values(), key=lambda use: (use.line, use.text))


# ---------------- Python

_MAKES = {
    "Builder": "Builder",
    "Runtime": "Runtime",
    "Refitter": "Refitter",
    "OnnxParser": "OnnxParser",
    "create_builder_config": "IBuilderConfig",
    "create_network": "INetworkDefinition",
    "build_engine": "ICudaEngine",
    "build_cuda_engine": "ICudaEngine",
    "deserialize_cuda_engine": "ICudaEngine",
    "create_execution_context": "IExecutionContext",
    "get_layer": "ILayer",
    "get_input": "ITensor",
    "get_output": "ITensor",
    "get_plugin_registry": "IPluginRegistry",
}
"""Call -> class of what it returns. Every `add_...` of a network returns a layer."""
_CALLED = {
    "config": "IBuilderConfig",
    "builder": "Builder",
    "network": "INetworkDefinition",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "layer": "ILayer",
    "tensor": "ITensor",
    "parser": "OnnxParser",
    "refitter": "Refitter",
    "registry": "IPluginRegistry",
}
"""End of a variable's name -> class, where no call gives more."""
_COMMON = {
    "precision",
    "free",
    "dtype",
    "execute",
    "stride",
    "padding",
    "kernel_size",
    "dilation",
    "allocate",
    "get_batch",
}
"""Members whose names other libraries use, too: they count only if the class is known."""


class _Python(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.modules: set[str] = set()
        self.imported: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.found: list[Use] = []
        self._read_imports(tree)
        self._read_types(tree)

    def _read_imports(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.modules |= {a.asname or a.name for a in node.names if a.name.split(".")[0] in _PACKAGES}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _PACKAGES:
                self.imported.update({a.asname or a.name: a.name for a in node.names})

    def _read_types(self, tree: ast.Module) -> None:
        """Variables that are assigned what a call of TensorRT returns, are annotated or run over a network's layers."""
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._learn(targets, self._type(node.value))
                number = _number(node.value)
                self.numbers.update({_text(target): number for target in targets if number is not None})
            elif isinstance(node, ast.For) and isinstance(node.iter, ast.Name):
                over = self.types.get(node.iter.id, "")
                self._learn([node.target], "ILayer" if over == "INetworkDefinition" else "")
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._learn([node.optional_vars], self._type(node.context_expr))
            elif isinstance(node, ast.arg) and isinstance(node.annotation, ast.Attribute):
                self.types.update({node.arg: self._named(node.annotation) or ""})

    def _learn(self, targets: Sequence[ast.AST], made: str) -> None:
        if made:
            self.types.update({_text(target): made for target in targets})

    def _type(self, node: ast.AST) -> str:
        """Class of an expression, '' if unknown."""
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return _MAKES.get(name, "ILayer" if name.startswith("add_") else "")
        if isinstance(node, ast.Subscript):
            inner = self._type(node.value)
            return "ILayer" if inner == "INetworkDefinition" else ""
        text = _text(node)
        if text in self.types:
            return self.types[text]
        last = re.split(r"\W", text)[-1].strip("_").lower()
        if last == "net":
            return "INetworkDefinition"
        return next((known for end, known in _CALLED.items() if last.endswith(end)), "")

    def _named(self, node: ast.AST) -> Optional[str]:
        """The class that an expression spells, '' for the module, None for a variable."""
        root, *rest = _text(node).split(".")
        if root not in self.modules and root not in self.imported:
            return None
        owner = (rest or [self.imported.get(root, "")])[-1]
        return "" if owner in _PACKAGES else owner

    def add(self, node: ast.AST, text: str, row: Optional[Removal], why: str = "") -> None:
        if row is not None:
            self.found.append(Use(getattr(node, "lineno", 1), text, row, why))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        named = self._named(node.value)
        if named is not None:
            self.add(node, _text(node), removed.python_name(named, node.attr))
            return
        owner = self._type(node.value)
        rows = removed.members("python").get(node.attr, ())
        row = removed.python_name(owner, node.attr) if owner else None
        if row is None and rows and not owner and node.attr not in _COMMON and "_" in node.attr:
            row = rows[0]
        if row is None or "(" in row.name:
            written = isinstance(node.ctx, ast.Store)
            row = removed.removals().get(("python", f"{owner}.{node.attr} (assignment)")) if written else None
        self.add(node, _text(node), row)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.imported and isinstance(node.ctx, ast.Load):
            self.add(node, node.id, removed.python_name("", self.imported[node.id]))

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        table = removed.removals()
        if name == "create_network":
            self._create_network(node)
        elif name in ("hasattr", "getattr") and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            owner = self._named(node.args[0])
            owner = self._type(node.args[0]) or None if owner is None else owner
            guarded = None if owner is None else removed.python_name(owner, str(node.args[1].value))
            if guarded is not None and (guarded.onnx != "no" or "platform_has" in guarded.name):
                self.add(node, _text(node), guarded, "the guard is false in 11, so the program builds in FP32")
        elif name == "add_quantize" and len(node.args) + len(node.keywords) == 2:
            self.add(node, _text(node), table["python", "INetworkDefinition.add_quantize(input, scale)"])

    def _create_network(self, node: ast.Call) -> None:
        given = [*node.args, *(word.value for word in node.keywords if word.arg == "flags")][:1]
        if given and (self._bits(given[0]) or 0) & 2:
            row = removed.removals()["python", "create_network(1 << 1) literal"]
            self.add(node, _text(node), row, "bit 1 meant STRONGLY_TYPED in 10.x and means another flag in 11")

    def _bits(self, node: ast.AST) -> Optional[int]:
        number = _number(node)
        return self.numbers.get(_text(node)) if number is None else number

    def visit_Assign(self, node: Union[ast.Assign, ast.AugAssign]) -> None:
        self.generic_visit(node)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and target.attr == "flags" and self._bits(node.value):
                row = removed.removals()["python", "BuilderFlag numeric bits (config.flags = int)"]
                self.add(node, f"{_text(target)} = {_text(node.value)}", row, "the numbers name other flags in 11")

    visit_AugAssign = visit_Assign


def _text(node: ast.AST) -> str:
    """`trt.BuilderFlag.INT8` of a chain of names, with `[]` and `()` in place of the part in brackets."""
    if isinstance(node, ast.Attribute):
        return f"{_text(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return f"{_text(node.value)}[]"
    if isinstance(node, ast.Call):
        return f"{_text(node.func)}({', '.join(map(_text, node.args))})"
    if isinstance(node, ast.Constant):
        return repr(node.value)
    number = _number(node)
    return "..." if number is None else str(number)


_PACKAGES = ("tensorrt", "tensorrt_bindings", "tensorrt_lean", "tensorrt_dispatch")


def _number(node: ast.AST) -> Optional[int]:
    """The value of an expression of integer literals, None for another one."""
    if any(
        not isinstance(n, (ast.Constant, ast.BinOp, ast.operator, ast.Call, ast.Name, ast.Load)) for n in ast.walk(node)
    ):
        return None
    if any(isinstance(n, ast.Name) and n.id != "int" for n in ast.walk(node)):
        return None
    if isinstance(node, ast.Call):
        return _number(node.args[0]) if len(node.args) == 1 else None
    if isinstance(node, ast.BinOp):
        one, other = _number(node.left), _number(node.right)
        if one is None or other is None or not 0 <= other < 64:
            return None
        return {ast.LShift: one << other, ast.BitOr: one | other, ast.Add: one + other}.get(type(node.op))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _python(text: str, path: Path) -> Iterator[Use]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is no valid Python 3: {error}.", _HINT) from error
    reader = _Python(tree)
    if reader.modules or reader.imported:
        reader.visit(tree)
        yield from reader.found
    yield from _in_texts(tree)


def _notebook(text: str, path: Path) -> Iterator[Use]:
    """The cells of code as one program; lines with ! are commands. Lines are those of the file; of a file of one line
    those that it has once Jupyter saved it."""
    try:
        notebook = json.loads(text)
        if "\n" not in text.strip():
            text = json.dumps(notebook, indent=1, ensure_ascii=False)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]).splitlines() for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no notebook.", _HINT) from error
    lines = [line for source in sources for line in source]
    places, start = [], 0
    for line in lines:
        start = max(text.find(json.dumps(line, ensure_ascii=False)[1:-1], start), start)
        places.append(text.count("\n", 0, start) + 1)
    is_command = [line.lstrip().startswith(("!", "%")) for line in lines]
    program = (re.sub(r"\S.*", "pass", line) if shell else line for line, shell in zip(lines, is_command))
    commands = (line if shell else "" for line, shell in zip(lines, is_command))
    for use in (*_python("\n".join(program), path), *_words("\n".join(commands), path)):
        yield replace(use, line=places[use.line - 1])


def _in_texts(tree: ast.AST) -> Iterator[Use]:
    """Options of trtexec and of ONNX Runtime's provider in the texts of a program."""
    texts = [(n.lineno, n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    trtexec = any("trtexec" in value for _, value in texts)
    for line, value in texts:
        words = value.split()
        for word in words if trtexec and (len(words) == 1 or "trtexec" in value) else ():
            row = _option(word)
            if row is not None:
                yield Use(line, word, row)
        row = removed.removals().get(("onnxruntime", value))
        if row is not None:
            yield Use(line, value, row)


# ---------------- C++

_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
_TOKEN = re.compile(r"(?P<how>->|\.|::)?\s*(?P<name>[A-Za-z_]\w*)")
_LOCAL = {
    "destroy",
    "free",
    "allocate",
    "deallocate",
    "execute",
    "enqueue",
    "setType",
    "setLocation",
    "setAxis",
    "getAxis",
}
"""Members whose names other libraries use, too: they count only for a variable that is named like a TensorRT object."""


def _cpp(text: str, path: Path) -> Iterator[Use]:
    code = _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    if not re.search(r"\bnvinfer1\b|#\s*include\s*[<\"]\S*Nv(?:Infer|Onnx|Caffe|Uff|Utils)\w*\.h", text):
        return
    table = removed.removals()
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*#\s*include\s*[<\"](?:\S*/)?(\w+\.h)[>\"]", line)
        row = table.get(("cpp", f"#include <{match[1]}>")) if match else None
        if row is not None:
            yield Use(number, line.strip(), row)
    for number, line in enumerate(code.splitlines(), 1):
        if re.search(r"\bcreateNetworkV2\s*\(\s*(?:1U?\s*<<\s*1|[23]U?)\b", line):
            row = table["cpp", "createNetworkV2(1U << 1) literal"]
            yield Use(number, line.strip(), row, "bit 1 meant kSTRONGLY_TYPED in 10.x and means another flag in 11")
        last = ""
        for token in _TOKEN.finditer(line):
            name, how = token["name"], token["how"] or ""
            row = _cpp_row(name, how, last)
            if row is not None and "literal" not in row.name:
                yield Use(number, f"{last}{how}{name}" if how and last else name, row)
            last = name


def _cpp_row(name: str, how: str, before: str) -> Optional[Removal]:
    """The row of a name behind `before->`, `before.` or `before::`, or alone."""
    rows = [row for row in removed.members("cpp").get(name, ()) if "(" not in row.name and row.removed]
    if how == "::":
        return next((row for row in rows if row.name.split("::")[-2:-1] == [before]), None)
    if not how:
        return next((row for row in rows if row.name.count("::") == 1), None)
    like = re.sub(r"\W|^m(?=[A-Z])|^_+|_+$", "", before).lower()
    fitting = [row for row in rows if like and _is_like(like, row.name.split("::")[-2].lower())]
    common = [] if name in _LOCAL else sorted(rows, key=lambda row: "IRefitter" in row.name)
    return next(iter(fitting or common), None)


def _is_like(name: str, owner: str) -> bool:
    """True for a variable that is named like its class: `config` or `trtConfig` for `ibuilderconfig`."""
    ends = next((end for end in _CALLED if owner.endswith(end)), owner.lstrip("i"))
    return owner.endswith(name) or name.endswith(ends)


def lines(path: Path, found: list[Use]) -> list[str]:
    """What `explain` prints of the uses in a file: a line each with its replacement, then what to do."""
    if not found:
        return [f"{path}: no use of anything that TensorRT 8 to 11 removed."]
    silent = sum(1 for use in found if use.why)
    told = [f"{path}: {counted(len(found), 'use')} of what TensorRT 8 to 11 removed or changed"]
    for use in found:
        told.append(f"  {use.line}: {use.text}")
        told.append(f"      {use.why or use.row.since}; instead: {use.row.replacement or 'see the release notes'}")
    if silent:
        told.append(f"{counted(silent, 'use')} of them {'is' if silent == 1 else 'are'} changed without any message.")
    if any(use.row.needs_scales for use in found):
        cache = next(
            (m[0] for use in found if (m := re.search(r"[\w./-]+\.(?:cache|calib|table)\b", use.text))), "CACHE"
        )
        told += ["Scales of a calibration cache or of ranges become Q/DQ nodes of the network:", "next:"]
        told.append(f"  qdq-translator explicit MODEL.onnx -c {cache}")
    elif any(use.row.onnx.startswith("yes (typed)") for use in found):
        told.append("TensorRT 11 takes the types from the ONNX model: export it in FP16, or with Cast nodes.")
    return told


# ---------------- commands

_ENVIRONMENT = re.compile(r"\bORT_TENSORRT_\w+|\btrt_\w+")


_AROUND = "'\",[]();&|`"
"""Signs around a word of a command."""


def _option(word: str) -> Optional[Removal]:
    """The row of a word of a trtexec command: `--int8`, `--inputIOFormats=int8:chw32`, `--preview=+...`."""
    name, _, value = word.strip(_AROUND).partition("=")
    table = removed.removals()
    row = table.get(("trtexec", f"{name}={value}")) or table.get(("trtexec", name))
    if row is None and name in ("--inputIOFormats", "--outputIOFormats") and ":" in value:
        row = table.get(("trtexec", "--outputIOFormats=<type>:<format>"))
    if row is None and name == "--tacticSources":
        row = next(
            (table[key] for key in (("trtexec", f"{name}=-{v[1:]}") for v in value.split(",")) if key in table), None
        )
    return row


_MEASURES = re.compile(
    r"--(?:loadEngine|iterations|duration|warmUp|avgRuns|percentile|dumpProfile|exportTimes|exportProfile|useSpinWait"
    r"|(?:inf)?[sS]treams)\b"
)
_PARSERS = re.compile(r"\bnv(?:caffe_)?parsers?\b")


def _commands(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Number and code of each line, and the whole command of trtexec that begins in it, '' for none."""
    going = 0
    for number, line in enumerate(lines, 1):
        code = re.sub(r"(?:^|\s)#.*", "", line)
        place = code.find("trtexec")
        whole, end = "", number
        if place >= 0 and not going:
            while lines[end - 1].rstrip().endswith("\\") and end < len(lines):
                end += 1
            whole = " ".join(lines[number - 1 : end])[place:]
        yield number, code[max(place, 0) :] if place >= 0 or going else "", whole
        going = int((place >= 0 or going) and line.rstrip().endswith("\\"))


def _words(text: str, path: Path) -> Iterator[Use]:
    table, lines = removed.removals(), text.splitlines()
    for number, code, command in _commands(lines):
        for word in code.split():
            row = _option(word)
            if row is not None:
                yield Use(number, word.strip(_AROUND), row)
        if _MEASURES.search(command) and "--useCudaGraph" not in command:
            why = "11 times with CUDA graphs and without transfers"
            yield Use(number, "trtexec", table["trtexec", "trtexec default timing (10.x numbers)"], why)
    for number, line in enumerate(lines, 1):
        code = re.sub(r"(?:^|\s)#.*", "", line)
        for match in _ENVIRONMENT.finditer(code):
            row = table.get(("onnxruntime", match[0]))
            if row is not None:
                yield Use(number, match[0], row)
        parser = (
            _PARSERS.search(code) if kind_of(path, "") == WORDS and re.search("cmake|make", path.name, re.I) else None
        )
        if parser:
            yield Use(number, parser[0], table["cpp", "#include <NvCaffeParser.h>"])


# ---------------- configurations


def _deepstream(text: str, path: Path) -> Iterator[Use]:
    keys = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*([\w-]+)\s*[=:]\s*([^#;]*)", line)
        if match:
            keys[match[1]] = (number, match[2].strip(), line.strip())
    table = removed.removals()
    calibrated = bool(keys.get("int8-calib-file", (0, "", ""))[1])
    for key, (number, value, written) in keys.items():
        row = table.get(("deepstream", f"{key}={value}")) or table.get(("deepstream", key))
        why = ""
        if (key, value) == ("network-mode", "1") and not calibrated:
            why = "without int8-calib-file it runs in FP16 with a warning"
        if row is not None:
            yield Use(number, written, row, why)


def _triton(text: str, path: Path) -> Iterator[Use]:
    table = removed.removals()
    text = re.sub(r"(?m)(?:^|\s)#.*", lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for match in re.finditer(
        r"key\s*:\s*\"([\w]+)\"\s*,?\s*value\s*:?\s*(?:\{\s*string_value\s*:\s*)?\"([^\"]*)\"", text
    ):
        row = table.get(("triton", f"{match[1]}={match[2]}")) or table.get(("triton", match[1]))
        if row is None:
            row = table.get(("onnxruntime", match[1]))
        if row is not None:
            yield Use(text.count("\n", 0, match.start()) + 1, f"{match[1]}: {match[2]}", row)
