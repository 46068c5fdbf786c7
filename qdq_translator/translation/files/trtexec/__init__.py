"""The trtexec command that builds a translation, and a POSIX script that runs it (fact 3).

Pure functions over the files of a translation: `checks.prepare` checks a request against the network, the cache and the
grammar of that TensorRT version; `trtexec_arguments` spells it; `trtexec_command` and `shell_script` write it for a
shell. `polygraphy` does the same for Polygraphy.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator, Mapping, Optional, Sequence

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import format_layer_precisions
from qdq_translator.core.words import by_x, dotted
from qdq_translator.translation.files.trtexec.checks import Settings, prepare_network, shell_command
from qdq_translator.translation.files.trtexec.request import PARSER_FLAGS, BuildRequest, Network, Version, engine_paths

ARGUMENT_LIMIT = 131071
"""The most bytes that Linux accepts in one program argument, option name included (fact 3.17)."""
LONG_ARGUMENT = 100 * 1024
"""Length from which the layer list is shortened or read from its file."""


@dataclass(frozen=True)
class Argument:
    """`--flag=value`. `kind`: 'text'; 'path' (of a file); 'content' (the content of the file `value`)."""

    flag: str
    value: str = ""
    kind: str = "text"

    def plain(self) -> str:
        """The argument as received."""
        value = read_text(Path(self.value), "Check the path.") if self.kind == "content" else self.value
        return f"{self.flag}={value}" if value or self.kind != "text" else self.flag


def shorten(layers: Mapping[str, str], network: Network) -> str:
    """The layer list for TensorRT 10.x with `scope/*` if all nodes of a scope are to have the same precision.

    Selects exactly the same layers: a scope ends at '/' or '.', so that `name_2`, which the parser may add for a node,
    matches the pattern only if the node does; a scope that contains a constant (which becomes a separate layer) is not
    used; the scopes are disjoint, because with two matching patterns trtexec's choice is unspecified (fact 3.7).
    """
    mixed = ""
    scopes: dict[str, str] = {}
    for name in (*network.nodes, *network.constants):
        precision = layers.get(name, mixed)
        for scope in _scopes(name):
            scopes[scope] = precision if scopes.get(scope, precision) == precision else mixed
    items: dict[str, str] = {}
    for name, precision in layers.items():
        whole = next((s for s in _scopes(name) if scopes.get(s) == precision), None)
        items[f"{whole}*" if whole else name] = precision
    return ",".join(f"{name}:{precision}" for name, precision in items.items())


def _scopes(name: str) -> Iterable[str]:
    """The scopes of a name, the shortest first: '/a/b/Conv' -> '/', '/a/', '/a/b/'."""
    for match in re.finditer(r"[/.]", name):
        yield name[: match.end()]


def layer_argument(settings: Settings) -> Optional[Argument]:
    """`--layerPrecisions`, inline, shortened or read from its file; None without layers.

    Raises UserError if no argument within Linux's limits can hold the list.
    """
    flag = "--layerPrecisions"
    if not settings.layers:
        return None
    text = format_layer_precisions(settings.layers)

    def size(value: str) -> int:
        return len(f"{flag}={value}".encode())

    if size(text) <= LONG_ARGUMENT:
        return Argument(flag, text)
    if settings.version[0] >= 10:
        short = shorten(settings.layers, settings.network)
        if size(short) <= LONG_ARGUMENT or size(short) <= ARGUMENT_LIMIT < size(text):
            settings.notes.append(
                f"The layer list was shortened with wildcards from {size(text)} to {size(short)} bytes; "
                "TensorRT 8.x would silently ignore them."
            )
            return Argument(flag, short)
    if size(text) <= ARGUMENT_LIMIT:
        return Argument(flag, str(settings.files.layer_arg), "content")
    advice = "Use 'qdq-translator build', or --tool polygraphy, which sets the layers one by one."
    if settings.version[0] < 10:
        advice = (
            "TensorRT 8.x has no wildcards: use 'qdq-translator build', or --tool polygraphy, which sets them one by "
            "one."
        )
    raise UserError(
        f"The layer list needs an argument of {size(text)} bytes, and Linux starts no program with one over "
        f"{ARGUMENT_LIMIT}.",
        advice,
    )


def _layer_arguments(settings: Settings) -> list[Argument]:
    """Precision and device of single layers."""
    layers, arguments = layer_argument(settings), []
    if layers is not None:
        arguments += [Argument("--precisionConstraints", settings.request.constraints), layers]
    if settings.gpu_layers and settings.request.allow_gpu_fallback:
        arguments.append(_device_types(settings))
    return arguments


def _device_types(settings: Settings) -> Argument:
    """`--layerDeviceTypes` for the layers that the plan leaves to the GPU. Raises UserError if it is too long."""
    text = ",".join(f"{name}:GPU" for name in settings.gpu_layers)
    if len(text.encode()) + 32 > ARGUMENT_LIMIT:
        raise UserError(
            f"The list of {len(settings.gpu_layers)} layers on the GPU is longer than an argument can be.",
            "Use 'qdq-translator build', or translate with --dla_rewrites force, which keeps layers on the DLA.",
        )
    return Argument("--layerDeviceTypes", text)


_PRECISIONS = {
    "implicit": ("--int8", "--fp16"),
    "explicit": ("--int8", "--fp16"),
    "typed": ("--stronglyTyped",),
    "fp16": ("--fp16",),
    "fp32": (),
    "best": ("--best",),
}
"""Of `BuildRequest.mode`."""
_SINCE = {
    "--precisionConstraints": (8, 4),  # 8.2 knows it, but no precisions that it could constrain
    "--profilingVerbosity": (8, 2),
    "--exportLayerInfo": (8, 2),
    "--layerPrecisions": (8, 4),
    "--layerDeviceTypes": (8, 5),
    "--memPoolSize": (8, 4),
    "--skipInference": (8, 6),
    **dict.fromkeys(PARSER_FLAGS.values(), (10, 16)),
}
"""Option -> the first version (major, minor) whose trtexec knows it (samples/common/sampleOptions.cpp, 8.0 to 10.16).
"""


def trtexec_arguments(settings: Settings) -> list[Argument]:
    """The options of trtexec in the spelling of that version, each once and in a fixed order.

    Raises UserError for requests that this version's trtexec does not support.
    """
    return [fitted for argument in _arguments(settings) for fitted in _for_version(argument, settings)]


def explicit_arguments(model: Path, request: BuildRequest, version: Version) -> list[Argument]:
    """trtexec's arguments for a network with Q/DQ, strongly typed if written by `explicit`. Raises as
    `prepare_network`."""
    engine, info = engine_paths(model, request)
    request = dataclasses.replace(request, save_engine=str(engine), layer_info=str(info or ""))
    return trtexec_arguments(prepare_network(model, request, version))


def _for_version(argument: Argument, settings: Settings) -> list[Argument]:
    version, request = settings.version, settings.request
    if version[:2] >= _SINCE.get(argument.flag, (8, 0)):
        return [argument]
    who = f"trtexec of TensorRT {dotted(version)} has no {argument.flag}"
    if argument.flag == "--skipInference":
        return [Argument("--buildOnly")]
    if argument.flag == "--memPoolSize" and set(request.pools) == {"workspace"}:
        return [Argument("--workspace", str(math.ceil(request.pools["workspace"])))]
    if argument.flag in ("--memPoolSize", *PARSER_FLAGS.values()):
        option = "--mem_pools" if argument.flag == "--memPoolSize" else "--parser_flags"
        raise UserError(f"{who}.", f"Leave {option} out, or name another version.")
    if argument.flag == "--layerPrecisions":
        settings.notes.append(
            f"{who}: layers without scales run above INT8 all the same; to keep others there, use "
            "'qdq-translator build'."
        )
    elif argument.flag == "--exportLayerInfo":
        settings.notes.append(f"{who}, so there will be no layer information for 'qdq-translator report'.")
    return []


def _arguments(settings: Settings) -> list[Argument]:
    request, files = settings.request, settings.files
    arguments = [Argument("--onnx", str(settings.model), "path"), *_device_arguments(request)]
    # --int8 alone would leave a DLA's layers without scale no FP16 (fact 3.10)
    arguments += [Argument(flag) for flag in _PRECISIONS[request.mode] if settings.version[0] < 11]
    if request.mode in ("implicit", "best"):
        arguments.append(Argument("--calib", str(files.cache), "path"))
    arguments += _layer_arguments(settings)
    rows = [("--inputIOFormats", settings.input_formats), ("--outputIOFormats", settings.output_formats)]
    for index, flag in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        rows.append((flag, [f"{name}:{by_x(triple[index])}" for name, triple in settings.shapes.items()]))
    rows.append(("--memPoolSize", [f"{name}:{_number(size)}" for name, size in request.pools.items()]))
    arguments += [Argument(flag, ",".join(items)) for flag, items in rows if items]
    for field, flag, fixed, kind in _FIELDS:
        value = getattr(request, field)
        if value not in (None, "") and value is not False:
            arguments.append(Argument(flag, str(value) if fixed is None else fixed, kind))
    return arguments


def _device_arguments(request: BuildRequest) -> Iterator[Argument]:
    if request.on_dla:
        yield Argument("--useDLACore", str(request.dla_core))
        if request.dla_standalone:
            yield Argument("--buildDLAStandalone")
        elif request.allow_gpu_fallback:
            yield Argument("--allowGPUFallback")
    for flag in request.parser_flags:
        if flag.lower() not in PARSER_FLAGS or not request.on_dla:
            raise UserError(f"trtexec has no option for the parser flag {flag} here.", "Use 'qdq-translator build'.")
        yield Argument(PARSER_FLAGS[flag.lower()])


_FIELDS = (
    ("builder_optimization_level", "--builderOptimizationLevel", None, "text"),
    ("timing_cache", "--timingCacheFile", None, "path"),
    ("save_engine", "--saveEngine", None, "path"),
    ("layer_info", "--profilingVerbosity", "detailed", "text"),
    ("layer_info", "--exportLayerInfo", None, "path"),
    ("sparsity", "--sparsity", None, "text"),
    ("profile", "--exportProfile", None, "path"),
    ("profile", "--separateProfileRun", "", "text"),  # measuring each layer would slow the timing of the whole
    ("skip_inference", "--skipInference", "", "text"),
    ("verbose", "--verbose", "", "text"),
)
"""Field of `BuildRequest`, option of trtexec, its value (None: the field's), kind of the argument."""


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def trtexec_command(arguments: Iterable[Argument]) -> str:
    """`trtexec` with everything quoted for a POSIX shell."""
    words = []
    for argument in arguments:
        if argument.kind == "content":
            words.append(f'{argument.flag}="$(cat -- {shlex.quote(argument.value)})"')
        else:
            words.append(shlex.quote(argument.plain()))
    return shell_command("trtexec", words)


_TEMPLATE = Path(__file__).with_name("build.sh")
_WILDCARD_CHECK = """    if [ "$major" -lt 10 ]; then
        fail "The layer list has wildcards, which TensorRT $major ignores. Write the script with --trt_version 8.6."
    fi
"""


def shell_script(settings: Settings, arguments: Sequence[Argument], folder: Path) -> str:
    """A POSIX script for `folder` that checks files and version, corrects the cache header in a copy and runs trtexec.

    Paths are relative to the script, so that script and files can be copied to a board together; absolute ones stay so
    if they are neither in the script's folder nor in the translation's.
    """
    places = (settings.files.folder, folder)
    layers = next((a for a in arguments if a.flag == "--layerPrecisions"), None)
    by_file = layers is not None and (layers.kind == "content" or "*" not in layers.value)
    checked = {"--onnx": '"$model"', "--calib": '"$cache"'}
    if by_file:
        checked["--layerPrecisions"] = '"$(cat -- "$layers")"'
    words = []
    for argument in arguments:
        value = checked.get(argument.flag, "")
        if argument.kind == "path" and not value:
            value = _shell_path(argument.value, folder, places)
        words.append(f"{argument.flag}={value}" if value else shlex.quote(argument.plain()))
    fields = {
        "@NAME@": re.sub(r"[^ -~]", "?", settings.files.name),
        "@VERSION@": dotted(settings.version),
        "@MODEL@": _shell_path(str(settings.files.model), folder, places),
        "@CACHE@": _shell_path(str(settings.files.cache), folder, places),
        "@LAYERS@": _shell_path(str(settings.files.layer_arg), folder, places) if by_file else "''",
        "@WILDCARDS@": _WILDCARD_CHECK if layers is not None and not by_file else "",
        "@ARGUMENTS@": " \\\n    ".join(words),
    }
    return re.sub("|".join(fields), lambda match: fields[match[0]], _TEMPLATE.read_text(encoding="utf-8"))


def _shell_path(path: str, folder: Path, places: Iterable[Path]) -> str:
    """The path for a script in `folder`: relative to it, unless it is an absolute path outside of `places`."""
    full, here = os.path.abspath(path), os.path.abspath(folder)
    inside = any(os.path.commonpath([full, os.path.abspath(place)]) == os.path.abspath(place) for place in places)
    if os.path.isabs(path) and not inside:
        return shlex.quote(path)
    return '"$here"/' + shlex.quote(os.path.relpath(full, here))
