"""The build request (versions, memory pools, formats, the source network), and the target, platform and sizes recorded
in the files of a translation."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple

from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.files import EXPLICIT_SUFFIX, MODEL_SUFFIX, TranslationFiles
from qdq_translator.core.options import options_of
from qdq_translator.core.words import by_x, dotted
from qdq_translator.translation.targets.platforms import Platform, find_platform, tensorrt_version

Version = Tuple[int, int, int]

TYPES = {"fp32": "FLOAT", "fp16": "HALF", "int8": "INT8", "int32": "INT32"}
TYPES_10 = {**TYPES, **{name: name.upper() for name in ("bf16", "int64", "bool", "uint8")}}
"""trtexec's names of types, up to 8.6 and from 10 on -> members of TensorRT's `DataType`."""
_FORMATS = (  # fact 3.3
    *("chw", "chw2", "chw4", "hwc8", "chw16", "chw32", "dhwc8", "cdhw32"),
    *("hwc", "dhwc", "dla_linear", "dla_hwc4"),
)
DLA_FORMATS = ("int8:dla_linear", "fp16:dla_linear", "fp16:chw16", "int8:chw32")
DLA_INPUT_FORMATS = (*DLA_FORMATS, "int8:dla_hwc4", "fp16:dla_hwc4")
"""The formats that the DLA reads and writes without help of the GPU (fact 2.9)."""
POOLS = {
    "workspace": "workspace",
    "dlaSRAM": "dla_managed_sram",
    "dlaLocalDRAM": "dla_local_dram",
    "dlaGlobalDRAM": "dla_global_dram",
}
"""trtexec's names of memory pools -> TensorRT's enum members in lower case."""


PARSER_FLAGS = {
    "adjust_for_dla": "--adjustForDLA",
    "report_capability_dla": "--reportCapabilityDLA",
    "enable_uint8_and_asymmetric_quantization_dla": "--uint8AsymmetricQuantizationDLA",
}
"""Members of `OnnxParserFlag` in lower case -> trtexec's options, which need a DLA."""


@dataclasses.dataclass(frozen=True)
class BuildRequest:
    """The build request. Shapes: input name -> dims; pools: trtexec's name -> MiB; paths: '' if not wanted.
    explicit_model: the Q/DQ model, for the mode 'explicit'. profile: output path of the layer times."""

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
    builder_optimization_level: Optional[int] = None
    skip_inference: bool = False
    verbose: bool = False
    mode: str = "implicit"
    explicit_model: str = ""
    parser_flags: Sequence[str] = ()
    sparsity: str = ""
    profile: str = ""

    @property
    def on_dla(self) -> bool:
        return self.target != "gpu"

    @property
    def constraints(self) -> str:
        """'obey' or 'prefer' the layer precisions."""
        return self.precision_constraints or ("prefer" if self.on_dla else "obey")


def direct_format(scaled: bool, end: str) -> str:
    """Default format of a standalone DLA for an 'input' or 'output' of the network.

    INT8 for an input with a scale (the first convolution then reads it unchanged), else FP16.
    """
    return "int8:dla_linear" if scaled and end == "input" else "fp16:dla_linear"


def engine_paths(model: Path, request: BuildRequest) -> tuple[Path, Optional[Path]]:
    """Paths of engine (or loadable) and layer information: those of the request, else next to `model`, under names that
    show the kind of build. A loadable has no layer information."""
    kind = {"implicit": "int8", "typed": "explicit"}.get(request.mode, request.mode)
    suffix = EXPLICIT_SUFFIX if kind == "explicit" else MODEL_SUFFIX
    base = model.name[: -len(suffix)] if model.name.endswith(suffix) else model.stem
    what = f"{base}_{kind}_{request.target}" if request.on_dla else f"{base}_{kind}"
    engine = model.parent / f"{what}.{'loadable' if request.dla_standalone else 'engine'}"
    if request.save_engine:
        engine = Path(request.save_engine)
    if request.dla_standalone:
        return engine, None
    return engine, Path(request.layer_info) if request.layer_info else engine.with_name(
        f"{engine.stem}_layer_info.json"
    )


@dataclasses.dataclass(frozen=True)
class Network:
    """Properties of the stripped model for commands. Dims: -1 if unknown."""

    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    constants: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Network:
        """Read the model without its external data. Raises UserError if it is not an ONNX file."""
        from qdq_translator.translation.ir.io import load_model

        graph = load_model(path, weights=False)[0].graph
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


def parse_version(text: str) -> Version:
    """'8.6', '10.3.0', '10.16.1.11', or the number of a cache header ('8602', '100300').

    Raises UsageError on anything else, UserError for TensorRT 11 and later.
    """
    dotted = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*", text.strip(), re.ASCII)
    if dotted:
        version = (int(dotted[1]), int(dotted[2]), int(dotted[3] or 0))
    elif re.fullmatch(r"[0-9]{4}|[1-9][0-9]{5}", text):
        version = tensorrt_version(text)
    else:
        raise UsageError(f"'{text}' is not a TensorRT version.", "Write for example 8.6, 10.3.0 or 100300.")
    if version[0] >= 11:
        raise UserError(
            f"TensorRT {version[0]} has no implicit quantization: its trtexec lost --int8, --calib and "
            "--layerPrecisions.",
            "Build a strongly typed Q/DQ model there; 'qdq-translator explicit' writes one.",
        )
    if version[0] < 8:
        raise UserError(f"TensorRT {version[0]} is too old for these files.", "Give a version from 8.5 to 10.x.")
    return version


def parse_pools(items: Iterable[str]) -> dict[str, float]:
    """Convert `workspace:2048` to MiB.

    Raises UsageError on units (8.6 ignores a suffix, 10.x reads '1MiB' as one byte: fact 3.13), on unknown pools and on
    invalid DLA pool sizes (a power of two of at least 4 KiB: fact 2.8).
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
            kib = 1024 * pools[name]
            if kib < 4 or not math.log2(kib).is_integer():
                raise UsageError(
                    f"'{item}': a DLA pool is a power of two of at least 4 KiB.", "Write for example 0.5 or 1."
                )
    return pools


def parse_formats(text: str, option: str, version: Version, notes: list[str]) -> list[str]:
    """`int8:dla_hwc4,fp16:chw16+chw` to one entry per tensor; `hwc4`, which trtexec does not know, is corrected (fact
    3.3).

    Raises UsageError on unknown types and formats.
    """
    entries = []
    for entry in text.split(",") if text else []:
        kind, _, formats = entry.partition(":")
        types = TYPES_10 if version[0] >= 10 else TYPES
        if kind not in types:
            raise UsageError(f"{option}: '{entry}' does not begin with a type.", f"Types are {', '.join(types)}.")
        keys = formats.split("+")
        if "hwc4" in keys:
            keys = ["dla_hwc4" if key == "hwc4" else key for key in keys]
            notes.append(f"{option}: 'hwc4' is no format of trtexec; dla_hwc4 is written instead.")
        known = (*_FORMATS, "hwc16") if version >= (10, 16, 0) else _FORMATS
        wrong = [key for key in keys if key not in known]
        if wrong:
            raise UsageError(f"{option}: '{entry}' names no format '{wrong[0]}'.", f"Formats are {', '.join(known)}.")
        entries.append(f"{kind}:{'+'.join(keys)}")
    return entries


def per_tensor(entries: Sequence[str], shapes: Mapping[str, Sequence[int]], option: str = "") -> dict[str, str]:
    """The format of each tensor. Accepts no entry, one for all tensors, or one for each. shapes: of the inputs or
    outputs, () if unknown.

    Raises UsageError for another number, and for channels unsupported by dla_hwc4."""
    if len(entries) not in (0, 1, len(shapes)):
        end = "input" if "input" in option else "output"
        raise UsageError(
            f"{option} lists {len(entries)} formats for {len(shapes)} network {end}s.",
            f"Give one for all, or one each in this order: {', '.join(shapes)}.",
        )
    each = dict(zip(shapes, [*entries] * len(shapes) if len(entries) == 1 else entries))
    for name, entry in each.items():
        if "dla_hwc4" in entry and any(channels not in (-1, 1, 3, 4) for channels in shapes[name][1:2]):
            raise UsageError(
                f"{option}: dla_hwc4 needs 1, 3 or 4 channels; '{name}' has {shapes[name][1]}.",
                "Choose dla_linear or chw32.",
            )
    return each


@dataclasses.dataclass(frozen=True)
class Remembered:
    """target, platform: '' if not specified. shapes: input -> sizes, as in --shapes. open: inputs without fixed sizes
    in the stripped model."""

    target: str = ""
    platform: str = ""
    shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    open: frozenset[str] = frozenset()

    @classmethod
    def of(cls, files: TranslationFiles) -> Remembered:
        """Empty for the output of NVIDIA's translator or a separate cache."""
        made = cls.of_options(files.read_config().get("options") or {} if files.config.exists() else {})
        inputs = Network.read(files.model).inputs if made.shapes else {}
        return dataclasses.replace(made, open=frozenset(name for name, sizes in inputs.items() if -1 in sizes))

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Remembered:
        """Reads the options from the precision config."""
        made = options_of(options, ("platform", "shapes"))
        return cls(options.get("target") or "", made.platform or "", made.sizes)

    @property
    def on_dla(self) -> bool:
        return self.target not in ("", "gpu")

    def target_for(self, asked: Optional[str]) -> tuple[str, list[str]]:
        """The target to build for, given --target `asked`, and notes. Raises UsageError if it differs from that of a
        DLA's translation."""
        made = self.target or "gpu"
        target = asked or made
        if self.on_dla and target != self.target:
            raise UsageError(
                f"--target {target}, but the model was translated for {self.target}.",
                f"Leave --target out, or translate the model with --target {target}.",
            )
        if target == made:
            return target, []
        return target, [
            f"The model was translated for {made}: nothing was checked against the limits of {target}. "
            f"Translate it with --target {target} to see what runs there."
        ]

    def platform_for(self, asked: Optional[str]) -> Optional[Platform]:
        """The --platform platform, else the translation's. Raises UsageError if their TensorRT versions differ."""
        own = find_platform(self.platform) if self.platform else None
        platform = find_platform(asked) if asked else own
        if own is not None and platform is not None and platform.tensorrt[:2] != own.tensorrt[:2]:
            raise UsageError(
                f"--platform {platform.name} has TensorRT {dotted(platform.tensorrt)}, but the model was translated "
                f"for {own.name} with TensorRT {dotted(own.tensorrt)}.",
                f"Leave --platform out, or translate the model with --platform {platform.name}.",
            )
        return platform

    def sizes_for(self, asked: Mapping[str, Sequence[int]], flag: str) -> Mapping[str, Sequence[int]]:
        """`asked`, else the translation's shapes. Raises UsageError for another size on a DLA, which has only one."""
        for name, sizes in asked.items() if self.on_dla else ():
            if list(sizes) != list(self.shapes.get(name, sizes)):
                here, there = by_x(sizes), by_x(self.shapes[name])
                raise UsageError(
                    f"{flag} {name}:{here}, but the model was translated with --shapes {name}:{there}.",
                    f"A DLA has one size: leave {flag} out, or translate the model with it.",
                )
        return asked or self.shapes

    def sizes_to_build(self, asked: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[int]]:
        """Input -> sizes for which TensorRT is to build, from --opt_shapes, which it accepts for open sizes."""
        if asked:
            return self.sizes_for(asked, "--opt_shapes")
        return {name: sizes for name, sizes in self.shapes.items() if name in self.open}
