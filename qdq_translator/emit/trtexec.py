"""The trtexec (or Polygraphy) command that builds a translation, and a script that runs it (fact sheet, section 3).

Pure functions over the files of a translation: `prepare` checks a request against the network, the cache and the
grammar of that TensorRT version; `trtexec_arguments` and `polygraphy_arguments` spell it; `shell_command` and
`shell_script` write it for a shell. trtexec is silent about most mistakes, so they are found here.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import Iterable, Mapping, Optional, Sequence

from qdq_translator.emit.calibration_cache import CalibrationCache
from qdq_translator.emit.files import TranslationFiles
from qdq_translator.emit.layer_precisions import format_layer_precisions, is_expressible
from qdq_translator.errors import UsageError, UserError
from qdq_translator.targets.platforms import cache_version

ARGUMENT_LIMIT = 131071
"""Bytes of one program argument that Linux takes, option name included (fact 3.17)."""
LONG_ARGUMENT = 100 * 1024
"""From here on the layer list is shortened or read from its file."""

Version = tuple[int, int, int]

_TYPES = ("fp32", "fp16", "int8", "int32")
_TYPES_10 = (*_TYPES, "bf16", "int64", "bool", "uint8")
_FORMATS = [
    "chw",
    "chw2",
    "chw4",
    "hwc8",
    "chw16",
    "chw32",
    "dhwc8",
    "cdhw32",
    "hwc",
    "dhwc",
    "dla_linear",
    "dla_hwc4",
]  # fact 3.3
_STANDALONE_OUTPUTS = ("int8:dla_linear", "fp16:dla_linear", "fp16:chw16", "int8:chw32")
_STANDALONE_INPUTS = (*_STANDALONE_OUTPUTS, "int8:dla_hwc4", "fp16:dla_hwc4", "int8:chw4", "fp16:chw4")
POOLS = {
    "workspace": "workspace",
    "dlaSRAM": "dla_managed_sram",
    "dlaLocalDRAM": "dla_local_dram",
    "dlaGlobalDRAM": "dla_global_dram",
}
"""trtexec's names of memory pools -> TensorRT's enum members in lower case."""


@dataclasses.dataclass(frozen=True)
class BuildRequest:
    """What somebody wants built. Shapes: input name -> dims; pools: trtexec's name -> MiB; paths '' where not wanted."""

    target: str = "gpu"
    dla_core: int = 0
    allow_gpu_fallback: bool = False
    dla_standalone: bool = False
    precision_constraints: str = ""
    input_io_formats: str = ""
    output_io_formats: str = ""
    min_shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    opt_shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    max_shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    pools: Mapping[str, float] = dataclasses.field(default_factory=dict)
    save_engine: str = ""
    layer_info: str = ""
    timing_cache: str = ""
    optimization_level: Optional[int] = None
    skip_inference: bool = False
    verbose: bool = False

    @property
    def on_dla(self) -> bool:
        return self.target != "gpu"


@dataclasses.dataclass(frozen=True)
class Network:
    """What a command needs to know of the stripped model. Dims: -1 where unknown."""

    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    constants: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Network:
        """Reads the model without its external data. Raises UserError where it is no ONNX file."""
        import onnx

        try:
            graph = onnx.load(str(path), load_external_data=False).graph
        except Exception as error:
            raise UserError(f"{path} cannot be read as ONNX: {error}.", "Translate the model again.") from error
        constants = [t.name for t in graph.initializer] + [n.output[0] for n in graph.node if n.op_type == "Constant"]
        known = set(constants)
        inputs = {
            value.name: tuple(
                d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else -1
                for d in value.type.tensor_type.shape.dim
            )
            for value in graph.input
            if value.name not in known
        }
        return cls(inputs, tuple(o.name for o in graph.output), tuple(n.name for n in graph.node), tuple(constants))


@dataclasses.dataclass(frozen=True)
class Argument:
    """`--flag=value`. `kind`: 'text'; 'path' (of a file); 'content' (the content of the file `value`)."""

    flag: str
    value: str = ""
    kind: str = "text"

    def plain(self) -> str:
        """What the program receives."""
        value = Path(self.value).read_text(encoding="utf-8") if self.kind == "content" else self.value
        return f"{self.flag}={value}" if value or self.kind != "text" else self.flag


@dataclasses.dataclass
class Settings:
    """A checked request. `shapes`: input -> (min, opt, max), every input or none; formats: `type:format+format`."""

    files: TranslationFiles
    request: BuildRequest
    version: Version
    network: Network
    cache: CalibrationCache
    layers: dict[str, str]
    constraints: str
    input_formats: list[str]
    output_formats: list[str]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
    notes: list[str] = dataclasses.field(default_factory=list)


def parse_version(text: str) -> Version:
    """'8.6', '10.3.0', '10.16.1.11', or the number of a cache header ('8602', '100300').

    Raises UsageError on anything else, UserError for TensorRT 11 and later.
    """
    dotted = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*", text.strip())
    if dotted:
        version = (int(dotted[1]), int(dotted[2]), int(dotted[3] or 0))
    elif re.fullmatch(r"\d{4}", text):
        version = (int(text[0]), int(text[1]), int(text[2:]))
    elif re.fullmatch(r"\d{6}", text):
        version = (int(text[:2]), int(text[2:4]), int(text[4:]))
    else:
        raise UsageError(f"'{text}' is not a TensorRT version.", "Write for example 8.6, 10.3.0 or 100300.")
    if version[0] >= 11:
        raise UserError(
            f"TensorRT {version[0]} has no implicit quantization: its trtexec lost --int8, --calib and --layerPrecisions.",
            "Build a strongly typed Q/DQ model there; 'qdq-translator restore --complete' writes one.",
        )
    if version[0] < 8:
        raise UserError(f"TensorRT {version[0]} is too old for these files.", "Name a version from 8.5 to 10.x.")
    return version


def parse_pools(items: Iterable[str]) -> dict[str, float]:
    """`workspace:2048` items to MiB.

    Raises UsageError on units (8.6 ignores a suffix, 10.x takes '1MiB' for one byte: fact 3.13), on unknown pools and on
    sizes that a DLA pool cannot have (a power of two of at least 4 KiB: fact 2.8).
    """
    pools = {}
    for item in items:
        name, _, size = item.partition(":")
        if name not in POOLS:
            raise UsageError(f"'{item}': there is no memory pool '{name}'.", f"Pools are {', '.join(POOLS)}.")
        if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", size):
            raise UsageError(f"'{item}' is not POOL:MIB.", "Write the size as a plain number of MiB, without a unit.")
        pools[name] = float(size)
        if name != "workspace":
            power, kib = 4.0, pools[name] * 1024
            while power < kib:
                power *= 2
            if power != kib:
                raise UsageError(
                    f"'{item}': a DLA pool is a power of two of at least 4 KiB.", "Write for example 0.5 or 1."
                )
    return pools


def parse_formats(text: str, option: str, version: Version, notes: list[str]) -> list[str]:
    """`int8:dla_hwc4,fp16:chw16+chw` to one entry per tensor; `hwc4`, which trtexec does not know, is corrected (3.3).

    Raises UsageError on unknown types and formats.
    """
    entries = []
    for entry in text.split(",") if text else []:
        kind, _, formats = entry.partition(":")
        types = _TYPES_10 if version[0] >= 10 else _TYPES
        if kind not in types:
            raise UsageError(f"{option}: '{entry}' does not begin with a type.", f"Types are {', '.join(types)}.")
        keys = formats.split("+")
        if "hwc4" in keys:
            keys = ["dla_hwc4" if key == "hwc4" else key for key in keys]
            notes.append(f"{option}: 'hwc4' is no format of trtexec; dla_hwc4 is written instead.")
        known = (*_FORMATS, "hwc16") if version >= (10, 16, 0) else tuple(_FORMATS)
        wrong = [key for key in keys if key not in known]
        if wrong:
            raise UsageError(f"{option}: '{entry}' names no format '{wrong[0]}'.", f"Formats are {', '.join(known)}.")
        entries.append(f"{kind}:{'+'.join(keys)}")
    return entries


def prepare(files: TranslationFiles, request: BuildRequest, version: Optional[Version] = None) -> Settings:
    """Checks the request. `version`: default the cache's header.

    Raises UserError or UsageError with a way to mend it; what is only worth knowing goes to `notes`.
    """
    cache = files.read_cache()
    if version is None:
        version = parse_version(cache.version or "8600")
    notes: list[str] = []
    wanted = cache_version(version)
    if not cache.version or parse_version(cache.version)[:2] != version[:2]:
        notes.append(
            f"The cache header says {cache.version or 'nothing'}, and TensorRT {dotted(version)} skips a cache of another "
            f"version: translate with --trt_calib_version {wanted}, or let --script write a script that puts the right "
            "header into a copy."
        )
    network = Network.read(files.model)
    _check_device(request, version)
    formats = {
        end: parse_formats(text, f"--{end}_io_formats", version, notes)
        for end, text in (("input", request.input_io_formats), ("output", request.output_io_formats))
    }
    _check_formats(request, version, network, cache, formats, notes)
    layers = files.read_layer_precisions()
    wrong = [name for name in layers if not is_expressible(name)]
    if wrong:
        raise UserError(
            f"{files.layer_arg} names a layer {wrong[0]!r}, which trtexec's grammar cannot express.",
            "Translate the model again.",
        )
    shapes = complete_shapes(request, network)
    inexpressible = [name for name in shapes if not is_expressible(name)]
    if inexpressible:
        raise UserError(
            f"trtexec's grammar cannot express the input name {inexpressible[0]!r} in a list of shapes.",
            "Rename the input, or use 'qdq-translator build'.",
        )
    return Settings(
        files,
        request,
        version,
        network,
        cache,
        layers,
        request.precision_constraints or ("prefer" if request.on_dla else "obey"),
        formats["input"],
        formats["output"],
        shapes,
        notes,
    )


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _check_device(request: BuildRequest, version: Version) -> None:
    if not request.on_dla:
        given = [n for n in ("allow_gpu_fallback", "dla_standalone", "dla_core") if getattr(request, n)]
        dla_pools = [p for p in request.pools if p != "workspace"]
        if given or dla_pools:
            what = f"--{given[0]}" if given else f"memory pool {dla_pools[0]}"
            raise UsageError(f"{what} is for a DLA target.", "Add --target orin-dla (or xavier-dla).")
        return
    if request.dla_standalone:
        if request.allow_gpu_fallback:
            raise UsageError("A DLA loadable has no GPU to fall back to.", "Drop --allow_gpu_fallback.")
        if version < (8, 6, 0):
            raise UserError(
                f"trtexec of TensorRT {dotted(version)} has no --buildDLAStandalone (it came with 8.6).",
                "Build with TensorRT 8.6 or later, or with --safe there.",
            )
    if request.dla_core not in (0, 1):
        raise UsageError("--dla_core is 0 or 1.", "Orin and Xavier have two cores.")


def _check_formats(
    request: BuildRequest,
    version: Version,
    network: Network,
    cache: CalibrationCache,
    formats: dict[str, list[str]],
    notes: list[str],
) -> None:
    ends = {"input": tuple(network.inputs), "output": network.outputs}
    if request.dla_standalone:
        for end, allowed in (("input", _STANDALONE_INPUTS), ("output", _STANDALONE_OUTPUTS)):
            wrong = [f for f in formats[end] if f not in allowed]
            if wrong or not formats[end]:
                found = f"'{wrong[0]}' is none a DLA loadable can have" if wrong else "a DLA loadable needs it"
                raise UsageError(f"--{end}_io_formats: {found}.", f"Choose from {', '.join(allowed)}.")
    elif request.on_dla and not request.allow_gpu_fallback and not (formats["input"] and formats["output"]):
        notes.append(
            "Without --allow_gpu_fallback trtexec sets DIRECT_IO: give --input_io_formats and --output_io_formats that "
            "the DLA has, for example int8:dla_hwc4 and fp16:chw16."
        )
    for end, names in ends.items():
        entries = formats[end]
        if len(entries) not in (0, 1, len(names)):
            raise UsageError(
                f"--{end}_io_formats lists {len(entries)} formats for {len(names)} network {end}s.",
                f"Give one for all, or one each in this order: {', '.join(names)}.",
            )
        each = dict(zip(names, entries * len(names) if len(entries) == 1 else entries))
        for name, entry in each.items():
            if entry.startswith("int8:") and name not in cache.scales:
                raise UserError(
                    f"The INT8 network {end} '{name}' has no scale in the calibration cache, so trtexec would fail.",
                    "Quantize it in the model, or choose fp16 for it.",
                )
            channels = network.inputs.get(name, ())[1:2]
            if "dla_hwc4" in entry and end == "input" and channels and channels[0] not in (-1, 1, 3, 4):
                raise UsageError(
                    f"--input_io_formats: dla_hwc4 needs 1, 3 or 4 channels; '{name}' has {channels[0]}.",
                    "Choose dla_linear or chw32.",
                )
        if len(set(entries)) == 1:
            formats[end] = entries[:1]
    int8 = any(entry.startswith("int8:") for entries in formats.values() for entry in entries)
    if int8 and cache.unreadable:
        number, line = cache.unreadable[0]
        raise UserError(
            f"Line {number} of the calibration cache ({line!r}) makes trtexec fail for INT8 inputs and outputs.",
            "Translate the model again.",
        )
    if int8 and version[0] < 10 and len(formats["output"]) not in (0, 1, len(network.inputs)):
        raise UserError(
            f"trtexec of TensorRT {dotted(version)} compares the output formats with the number of INPUTS "
            f"({len(formats['output'])} against {len(network.inputs)}) and fails.",
            "Use one format for all outputs, or 'qdq-translator build'.",
        )


def complete_shapes(
    request: BuildRequest, network: Network
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """(min, opt, max) of every input, or nothing for a static model.

    With --calib trtexec needs shapes for the static inputs too (fact 3.19). Raises UserError where the shapes do not fit.
    """
    given = {"min": request.min_shapes, "opt": request.opt_shapes, "max": request.max_shapes}
    named = [(bound, name) for bound, shapes in given.items() for name in shapes]
    for bound, name in named:
        if name not in network.inputs:
            raise UsageError(
                f"--{bound}_shapes: there is no input '{name}'.", f"Inputs are {', '.join(network.inputs)}."
            )
    dynamic = [name for name, dims in network.inputs.items() if -1 in dims]
    if not dynamic:
        if named:
            raise UsageError("The model's inputs are static, and trtexec then refuses shapes.", "Leave the shapes out.")
        return {}
    missing = [name for name in dynamic if not any(name in shapes for shapes in given.values())]
    if missing:
        raise UserError(
            f"Input '{missing[0]}' has dynamic dimensions {_dims(network.inputs[missing[0]])}.",
            "Give --opt_shapes (and --min_shapes, --max_shapes), for example "
            f"--opt_shapes {missing[0]}:{_dims(d if d > 0 else 1 for d in network.inputs[missing[0]])}.",
        )
    shapes = {}
    for name, dims in network.inputs.items():
        bounds = {bound: tuple(shapes[name]) for bound, shapes in given.items() if name in shapes}
        opt = bounds.get("opt") or bounds.get("max") or bounds.get("min") or dims
        triple = (bounds.get("min", opt), opt, bounds.get("max", opt))
        for shape in triple:
            if len(shape) != len(dims) or any(d not in (-1, s) for d, s in zip(dims, shape)):
                raise UserError(
                    f"Shape {_dims(shape)} does not fit input '{name}', which is {_dims(dims)} (-1: any size).",
                    "Correct the shape.",
                )
        if any(not low <= mid <= high for low, mid, high in zip(*triple)):
            raise UsageError(f"The shapes of '{name}' are not in the order min, opt, max.", "Correct them.")
        if request.on_dla and len(set(triple)) > 1:
            raise UsageError(
                f"The DLA needs static shapes: min, opt and max of '{name}' differ.", "Give --opt_shapes alone."
            )
        shapes[name] = triple
    return shapes


def _dims(dims: Iterable[int]) -> str:
    return "x".join(map(str, dims))


def shorten(layers: Mapping[str, str], network: Network) -> str:
    """The layer list for TensorRT 10.x with `scope/*` where every node of a scope is to have the same precision.

    Selects exactly the same layers: a scope ends at '/' or '.', so that `name_2`, which the parser may add for a node,
    falls to the pattern only if the node does; a scope that holds a constant (which becomes a layer of its own) is not
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
    """'/a/b/Conv' -> '/', '/a/', '/a/b/': the shortest first."""
    for match in re.finditer(r"[/.]", name):
        yield name[: match.end()]


def layer_argument(settings: Settings) -> Optional[Argument]:
    """`--layerPrecisions`, inline, shortened or read from its file; None without layers.

    Raises UserError where no argument that Linux would start holds the list.
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
    advice = (
        "Use 'qdq-translator build', or --tool polygraphy, which takes the layers one by one."
        if settings.version[0] >= 10
        else "TensorRT 8.x has no wildcards: use 'qdq-translator build', or --tool polygraphy, which takes them one by one."
    )
    raise UserError(
        f"The layer list needs an argument of {size(text)} bytes, and Linux starts no program with one over "
        f"{ARGUMENT_LIMIT}.",
        advice,
    )


def trtexec_arguments(settings: Settings) -> list[Argument]:
    """The options of trtexec, each once and in a fixed order."""
    request, files = settings.request, settings.files
    arguments = [Argument("--onnx", str(files.model), "path")]
    if request.on_dla:
        arguments.append(Argument("--useDLACore", str(request.dla_core)))
        if request.dla_standalone:
            arguments.append(Argument("--buildDLAStandalone"))
        elif request.allow_gpu_fallback:
            arguments.append(Argument("--allowGPUFallback"))
    # --int8 alone would leave a DLA's layers without scale no FP16 (fact 3.10)
    arguments += [Argument("--int8"), Argument("--fp16"), Argument("--calib", str(files.cache), "path")]
    layers = layer_argument(settings)
    if layers is not None:
        arguments += [Argument("--precisionConstraints", settings.constraints), layers]
    if settings.input_formats:
        arguments.append(Argument("--inputIOFormats", ",".join(settings.input_formats)))
    if settings.output_formats:
        arguments.append(Argument("--outputIOFormats", ",".join(settings.output_formats)))
    for index, flag in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        if settings.shapes:
            lists = ",".join(f"{name}:{_dims(triple[index])}" for name, triple in settings.shapes.items())
            arguments.append(Argument(flag, lists))
    if request.pools:
        arguments.append(Argument("--memPoolSize", ",".join(f"{n}:{_number(s)}" for n, s in request.pools.items())))
    if request.optimization_level is not None:
        arguments.append(Argument("--builderOptimizationLevel", str(request.optimization_level)))
    if request.timing_cache:
        arguments.append(Argument("--timingCacheFile", request.timing_cache, "path"))
    if request.save_engine:
        arguments.append(Argument("--saveEngine", request.save_engine, "path"))
    if request.layer_info:
        arguments += [
            Argument("--profilingVerbosity", "detailed"),
            Argument("--exportLayerInfo", request.layer_info, "path"),
        ]
    if request.skip_inference:
        arguments.append(Argument("--skipInference"))
    if request.verbose:
        arguments.append(Argument("--verbose"))
    return arguments


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


_POLYGRAPHY_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def polygraphy_arguments(settings: Settings) -> list[str]:
    """The words behind `polygraphy` that do the same.

    Its grammar differs: every layer is a word of its own, split at its last ':', without wildcards or quotes; types are
    `float16`, pools are bytes, formats name their tensor; a DLA is always core 0.
    Raises UserError for what it cannot do.
    """
    request, files = settings.request, settings.files
    if request.on_dla and request.dla_core != 0:
        raise UserError(
            "Polygraphy builds for DLA core 0 only.", "Use --dla_core 0, trtexec, or 'qdq-translator build'."
        )
    words = ["convert", str(files.model), "--model-type", "onnx", "--convert-to", "trt"]
    words += [
        "-o",
        request.save_engine or f"{files.name}.engine",
        "--int8",
        "--fp16",
        "--calibration-cache",
        str(files.cache),
    ]
    if request.on_dla:
        words.append("--use-dla")
        if request.allow_gpu_fallback:
            words.append("--allow-gpu-fallback")
        if request.dla_standalone:
            words += ["--engine-capability", "dla_standalone", "--direct-io"]
    if settings.layers:
        words += ["--precision-constraints", settings.constraints, "--layer-precisions"]
        words += [f"{name}:{_POLYGRAPHY_TYPES.get(p, p)}" for name, p in settings.layers.items()]
    formats = {
        **_per_tensor(tuple(settings.network.inputs), settings.input_formats),
        **_per_tensor(settings.network.outputs, settings.output_formats),
    }
    if formats:
        words.append("--tensor-dtypes")
        words += [f"{n}:{_POLYGRAPHY_TYPES.get(f.split(':')[0], f.split(':')[0])}" for n, f in formats.items()]
        words.append("--tensor-formats")
        words += [f"{n}:[{','.join(_enum_format(k) for k in f.split(':')[1].split('+'))}]" for n, f in formats.items()]
    for index, flag in enumerate(("--trt-min-shapes", "--trt-opt-shapes", "--trt-max-shapes")):
        if settings.shapes:
            words.append(flag)
            words += [f"{n}:[{','.join(map(str, triple[index]))}]" for n, triple in settings.shapes.items()]
    if request.pools:
        words += ["--pool-limit", *(f"{POOLS[n]}:{int(mib * (1 << 20))}" for n, mib in request.pools.items())]
    if request.optimization_level is not None:
        words += ["--builder-optimization-level", str(request.optimization_level)]
    if request.timing_cache:
        words += ["--load-timing-cache", request.timing_cache, "--save-timing-cache", request.timing_cache]
    words += ["--profiling-verbosity", "detailed"]
    if request.verbose:
        words.append("--verbose")
    for names in (settings.layers, formats, settings.shapes):
        wrong = [name for name in names if name.startswith("-")]
        if wrong:
            raise UserError(f"Polygraphy would take the name '{wrong[0]}' for an option.", "Use trtexec.")
    if request.layer_info:
        settings.notes.append(
            "Polygraphy writes no layer information while converting; "
            "'polygraphy inspect model ENGINE --show layers attrs' shows it."
        )
    return words


def _per_tensor(names: tuple[str, ...], formats: list[str]) -> dict[str, str]:
    return dict(zip(names, formats * len(names) if len(formats) == 1 else formats))


def _enum_format(key: str) -> str:
    return "linear" if key == "chw" else key


def shell_command(program: str, words: Iterable[str]) -> str:
    """One command over several lines, to paste into a shell. `words` are quoted already."""
    return " \\\n  ".join([program, *words]) + "\n"


def trtexec_command(arguments: Iterable[Argument]) -> str:
    """`trtexec` with everything quoted for a POSIX shell."""
    words = []
    for argument in arguments:
        if argument.kind == "content":
            words.append(f'{argument.flag}="$(cat -- {shlex.quote(argument.value)})"')
        else:
            words.append(shlex.quote(argument.plain()))
    return shell_command("trtexec", words)


def polygraphy_command(words: Sequence[str]) -> str:
    """`polygraphy convert`, one option with its values to a line; a list of layers one layer to a line."""
    lines: list[str] = []
    many = {"--layer-precisions"}
    current = ""
    for word in words:
        if word.startswith("-") or current in many or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
        current = word if word.startswith("-") else current
    return shell_command("polygraphy", lines)


_SCRIPT = r"""#!/bin/sh
# Builds @NAME@ with trtexec from the files of its translation.
# Written by qdq-translator for TensorRT @VERSION@. Further trtexec options may follow the script's name.
# TRTEXEC=/path/to/trtexec names the program where it is not on the PATH.
set -eu

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
model=@MODEL@
cache=@CACHE@
layers=@LAYERS@

for file in "$model" "$cache" ${layers:+"$layers"}; do
    [ -f "$file" ] || fail "$file is missing. Copy the whole folder of the translation, or translate again."
done

trtexec=${TRTEXEC:-trtexec}
if [ -z "${TRTEXEC:-}" ] && ! command -v trtexec >/dev/null 2>&1; then
    trtexec=/usr/src/tensorrt/bin/trtexec
fi
command -v "$trtexec" >/dev/null 2>&1 || fail "$trtexec cannot be run. Set TRTEXEC=/path/to/trtexec."

# 10.3.0.30-1+cuda12.5 -> 100300, 8.6.2.3 -> 8602: the number in the header of a calibration cache
header_number() {
    sed -n 's/^\([0-9][0-9]*\)\.\([0-9][0-9]*\)\.\([0-9][0-9]*\).*/\1 \2 \3/p' |
        awk 'NR == 1 { print $1 * ($1 < 10 ? 1000 : 10000) + $2 * 100 + $3 }'
}

# The program itself knows best; then the package of the library; then the Python package.
version=$("$trtexec" --help 2>&1 | sed -n 's/.*\[TensorRT v\([0-9][0-9]*\)\].*/\1/p' | head -n 1) || version=''
for package in libnvinfer10 libnvinfer8; do
    if [ -z "$version" ] && command -v dpkg-query >/dev/null 2>&1; then
        version=$(dpkg-query -W -f='${Version}\n' "$package" 2>/dev/null | header_number) || version=''
    fi
done
if [ -z "$version" ] && command -v python3 >/dev/null 2>&1; then
    version=$(python3 -c 'import tensorrt; print(tensorrt.__version__)' 2>/dev/null | header_number) || version=''
fi

if [ -z "$version" ]; then
    echo "The version of TensorRT could not be found; the cache is used as it is." >&2
else
    case $version in
        [1-9][0-9][0-9][0-9]) major=${version%???} ;;
        *) major=${version%????} ;;
    esac
    if [ "$major" -ge 11 ]; then
        fail "TensorRT $major has no implicit quantization. Build a strongly typed Q/DQ model there."
    fi
@WILDCARDS@    # TensorRT skips a cache whose header holds another version's number: a copy gets the right one.
    header="TRT-$version-EntropyCalibration2"
    if [ "$(head -n 1 "$cache" | tr -d '\r')" != "$header" ]; then
        copy=${cache%.cache}_trt$version.cache
        { printf '%s\n' "$header" && sed 1d "$cache"; } >"$copy.$$" && mv -f "$copy.$$" "$copy" ||
            fail "$copy cannot be written. Copy the folder of the translation to where it can."
        echo "The cache was made for another version than $version: using $copy" >&2
        cache=$copy
    fi
fi

exec "$trtexec" @ARGUMENTS@ \
    "$@"
"""
_WILDCARD_CHECK = """    if [ "$major" -lt 10 ]; then
        fail "The layer list holds wildcards, which TensorRT $major ignores. Write the script with --trt_version 8.6."
    fi
"""


def shell_script(settings: Settings, arguments: Sequence[Argument], folder: Path) -> str:
    """A POSIX script that lies in `folder`: checks files and version, mends the cache header in a copy, runs trtexec.

    Paths are relative to the script, so that script and files can be copied to a board together; absolute ones stay
    where they are neither in the script's folder nor in the translation's.
    """

    def path(value: str) -> str:
        if os.path.isabs(value) and not any(_lies_in(value, place) for place in (settings.files.folder, folder)):
            return shlex.quote(value)
        return '"$here"/' + shlex.quote(os.path.relpath(os.path.abspath(value), os.path.abspath(folder)))

    layers = next((a for a in arguments if a.flag == "--layerPrecisions"), None)
    by_file = layers is not None and (layers.kind == "content" or "*" not in layers.value)
    words = []
    for argument in arguments:
        if argument.flag == "--onnx":
            words.append('--onnx="$model"')
        elif argument.flag == "--calib":
            words.append('--calib="$cache"')
        elif argument is layers and by_file:
            words.append('--layerPrecisions="$(cat -- "$layers")"')
        elif argument.kind == "path":
            words.append(f"{argument.flag}={path(argument.value)}")
        else:
            words.append(shlex.quote(argument.plain()))
    fields = {
        "@NAME@": re.sub(r"[^ -~]", "?", settings.files.name),
        "@VERSION@": dotted(settings.version),
        "@MODEL@": path(str(settings.files.model)),
        "@CACHE@": path(str(settings.files.cache)),
        "@LAYERS@": path(str(settings.files.layer_arg)) if by_file else "''",
        "@WILDCARDS@": _WILDCARD_CHECK if layers is not None and not by_file else "",
        "@ARGUMENTS@": " \\\n    ".join(words),
    }
    return re.sub("|".join(fields), lambda match: fields[match[0]], _SCRIPT)


def _lies_in(path: str, folder: Path) -> bool:
    return os.path.commonpath([os.path.abspath(path), os.path.abspath(folder)]) == os.path.abspath(folder)
