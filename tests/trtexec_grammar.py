"""A model of what trtexec 8.6, 10.3 and 10.16 make of a command line, a layer list and a calibration cache.

Written from the recorded behaviour in `shared/trtexec/vectors.json` (test_trtexec_vectors.py holds it against every
entry) and fact 3.1 to 3.19; the tests of our own commands then ask it what trtexec would read.
"""

from __future__ import annotations

import copy
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VERSIONS = ("8.6", "10.3", "10.16")
WEAK = (
    "[W] Weakly-typed networks have been deprecated in TensorRT. You can use the AutoCast tool "
    "(https://nvidia.github.io/TensorRT-Model-Optimizer/guides/8_autocast.html) to convert the network to be "
    "strongly typed."
)
NO_EFFECT = (
    '[W] --layerPrecision/--layerOutputTypes flags have no effect when --precisionConstraints flag is set to "none".'
)
NO_LAYERS = (
    '[W] When --precisionConstraints flag is set to "obey" or "prefer", please add --layerPrecision/--layerOutputTypes '
    "flags to set layer-wise precisions and output types."
)
COMMA_HINT = (
    ". Please ensure that a singular comma is used within each comma-separated key-value pair for options like "
    "--inputIOFormats, --optShapes, --optShapesCalib, --layerPrecisions, etc."
)
SAFE_DLA_FORMATS = "I/O formats for safe DLA capability are restricted to fp16/int8:dla_linear, fp16/int8:hwc4, fp16:chw16 or int8:chw32"
TYPES_8 = ("fp32", "fp16", "int8", "fp8", "int32")
TYPES_10 = (*TYPES_8, "bf16", "int64", "bool", "uint8", "int4")
FORMATS = {  # in the order of the enum, which is the order of a recorded sum
    "chw": "kLINEAR",
    "chw2": "kCHW2",
    "hwc8": "kHWC8",
    "chw4": "kCHW4",
    "chw16": "kCHW16",
    "chw32": "kCHW32",
    "dhwc8": "kDHWC8",
    "cdhw32": "kCDHW32",
    "hwc": "kHWC",
    "dla_linear": "kDLA_LINEAR",
    "dla_hwc4": "kDLA_HWC4",
    "hwc16": "kHWC16",
    "dhwc": "kDHWC",
}
POOLS = {
    "workspace": "WORKSPACE",
    "dlaSRAM": "DLA_MANAGED_SRAM",
    "dlaLocalDRAM": "DLA_LOCAL_DRAM",
    "dlaGlobalDRAM": "DLA_GLOBAL_DRAM",
}
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ARGUMENT_LIMIT = 131071
"""Bytes of one argument that exec takes (MAX_ARG_STRLEN less the final zero byte)."""


class Invalid(Exception):
    """trtexec prints the text and fails."""


class Uncaught(Exception):
    """The same, during the set-up, through an exception nobody catches."""


class SetupFailed(Exception):
    """The set-up logs an error and returns false."""


class Crash(Exception):
    """Undefined behaviour: observed as a signal."""


def is_10(version: str) -> bool:
    return version != "8.6"


def parse(argv: Sequence[str], version: str) -> dict[str, Any]:
    """What the option parser makes of `argv` (without the program's name): status, error, log, unknown, fields."""
    parser = _Parser(argv, version)
    try:
        status = parser.run()
    except Invalid as error:
        return _result("error", parser.log, error=str(error), error_type="invalid_argument")
    if status == "help":
        return _result("help", [])
    if parser.left:
        unknown = [name + ("" if value is None else f"={value}") for name, value in parser.left]
        return _result("unknown_option", parser.log, unknown=sorted(unknown))
    return _result("ok", parser.log, fields=parser.fields)


def _result(status: str, log: list[str], **more: Any) -> dict[str, Any]:
    return {"status": status, **more, **({"log": log} if log else {})}


def split(text: str, separator: str, version: str) -> list[str]:
    """8.6 drops an empty last part, 10.x keeps it; an empty text has no parts in both."""
    if not text:
        return []
    parts = text.split(separator)
    if not is_10(version) and parts[-1] == "":
        parts.pop()
    return parts


def name_and_value(item: str, version: str) -> tuple[str, str]:
    """`name:value` or `'name':value`."""
    parts = split(item, "'", version)
    if len(parts) == 1:
        head, colon, value = item.rpartition(":")
        if not colon:
            return item, item
        if not value and not is_10(version):
            return head, head.rpartition(":")[2]
        return head, value
    if len(parts) != 3:
        received = (len(parts) - 1) % 2**64
        raise Invalid(
            f"Found invalid number of 's when parsing {item}. Expected: 2, received: {received}"
            + (COMMA_HINT if is_10(version) else "")
        )
    return parts[0] + parts[1], parts[2][1:]


def _integer(text: str) -> int:
    match = re.match(r"\s*[+-]?\d+", text)
    if not match:
        raise Invalid("stoi")
    return int(match[0])


class _Parser:
    def __init__(self, argv: Sequence[str], version: str) -> None:
        self.version = version
        self.log: list[str] = []
        self.left: list[tuple[str, str | None]] = []
        for argument in argv:
            name, equals, value = argument.partition("=")
            self.left.append((name, value if equals else None))
        self.fields: dict[str, Any] = {}

    def take(self, name: str) -> str | None:
        """The value of the first option of that name, which is used up; '' where it has none."""
        for index, (key, value) in enumerate(self.left):
            if key == name:
                del self.left[index]
                return value or ""
        return None

    def flag(self, name: str, field: str) -> bool:
        """A value after '=' is ignored: `--int8=0` switches INT8 on."""
        if self.take(name) is None:
            return False
        self.fields[field] = True
        return True

    def text(self, name: str, field: str) -> None:
        value = self.take(name)
        if value:
            self.fields[field] = value

    def run(self) -> str:  # noqa: C901 (one branch a fault that trtexec has)
        ten = is_10(self.version)
        fields = self.fields
        self.text("--onnx", "model")
        for option, field in (("--inputIOFormats", "inputFormats"), ("--outputIOFormats", "outputFormats")):
            formats = [self.io_format(item) for item in split(self.take(option) or "", ",", self.version)]
            if formats:
                fields[field] = formats
        shapes = self.shapes()
        self.pools()
        self.precision_flags()
        self.text("--calib", "calibration")
        if shapes and fields.get("int8") and fields.get("calibration") and "shapesCalib" not in fields:
            fields["shapesCalib"] = copy.deepcopy(shapes)
        self.layers()
        for option, field in (
            ("--safe", "safe"),
            ("--buildDLAStandalone", "buildDLAStandalone"),
            ("--allowGPUFallback", "allowGPUFallback"),
            ("--skipInference", "skipInference"),
            ("--directIO", "directIO"),
            ("--dumpLayerInfo", "dumpLayerInfo"),
            ("--verbose", "verbose"),
        ):
            self.flag(option, field)
        if not ten and self.flag("--buildOnly", "skipInference"):
            self.log.append("[W] --buildOnly flag has been deprecated by --skipInference flag.")
        if ten:
            self.flag("--stripWeights", "stripWeights")
        if self.version == "10.16":
            for name in ("reportCapabilityDLA", "adjustForDLA", "uint8AsymmetricQuantizationDLA"):
                self.flag(f"--{name}", name)
        verbosity = self.take("--profilingVerbosity")
        if verbosity is not None:
            if verbosity not in ("layer_names_only", "detailed", "none"):
                raise Invalid(f"Unknown profilingVerbosity: {verbosity}")
            fields["profilingVerbosity"] = verbosity
        timing = self.take("--timingCacheFile")
        if timing:
            fields.update(timingCacheFile=timing, timingCacheMode="global")
        for option in ("builderOptimizationLevel", "useDLACore", "device"):
            number = self.take(f"--{option}")
            if number is not None:
                fields[option] = _integer(number)
        self.text("--exportLayerInfo", "exportLayerInfo")
        save, load = self.take("--saveEngine"), self.take("--loadEngine")
        if save is not None and load is not None:
            raise Invalid("Incompatible load and save engine options selected")
        if save is not None:
            fields.update(save=True, engine=save)
        if load is not None:
            fields.update(load=True, engine=load)
        if self.take("--help") is not None:
            return "help"
        if not fields.get("model") and load is None:
            raise Invalid("Model missing or format not recognized")
        self.dla_checks()
        return "ok"

    def io_format(self, item: str) -> dict[str, Any]:
        kind, colon, formats = item.partition(":")
        if not colon:
            raise Invalid(f"Invalid IOFormat {item}")
        chosen = set()
        self.data_type(kind)
        for key in split(formats, "+", self.version):
            if key not in FORMATS or (key == "hwc16" and self.version != "10.16"):
                raise Invalid(f"Invalid TensorFormat {key}")
            chosen.add(key)
        return {"type": kind, "formats": [name for key, name in FORMATS.items() if key in chosen]}

    def data_type(self, text: str) -> str:
        if text not in (TYPES_10 if is_10(self.version) else TYPES_8):
            raise Invalid(f"Invalid DataType {text}")
        return text

    def shape_list(self, text: str) -> dict[str, list[int]]:
        try:
            pairs = [name_and_value(item, self.version) for item in split(text, ",", self.version)]
            return {name: [_integer(d) for d in split(dims, "x", self.version)] for name, dims in pairs}
        except Invalid as error:
            if is_10(self.version):
                raise Invalid(
                    f"{error} conversion failure: failed to parse minShapes/optShapes/maxShapes. "
                    "Please double check your input string."
                ) from None
            raise

    def broadcast(self, given: Mapping[str, Mapping[str, list[int]]]) -> dict[str, dict[str, list[int]]]:
        shapes: dict[str, dict[str, list[int]]] = {}
        for name in dict.fromkeys(n for bound in given.values() for n in bound):
            bounds = {bound: given[bound][name] for bound in ("min", "opt", "max") if name in given[bound]}
            for missing, sources in (("min", ("opt", "max")), ("opt", ("max", "min")), ("max", ("opt", "min"))):
                if missing not in bounds:
                    source = next(s for s in sources if s in bounds)
                    bounds[missing] = bounds[source]
                    self.log.append(f"[W] {source}Shapes is being broadcasted to {missing}Shapes for tensor {name}")
            shapes[name] = {bound: bounds[bound] for bound in ("min", "opt", "max")}
        return shapes

    def shapes(self) -> dict[str, dict[str, list[int]]]:
        """Optimization profiles, calibration and inference shapes; returns the first profile."""
        profiles: dict[int, dict[str, dict[str, list[int]]]] = {0: {"min": {}, "opt": {}, "max": {}}}
        current, seen, rest = 0, set(), []
        for name, value in self.left:  # 10.x: options after --profile=N belong to it; 8.6: the first of a name counts
            bound = name[2:5]
            if name == "--profile" and is_10(self.version):
                current = _integer(value or "")
                profiles.setdefault(current, {"min": {}, "opt": {}, "max": {}})
            elif name in ("--minShapes", "--optShapes", "--maxShapes") and (name, current) not in seen:
                seen.add((name, current))
                profiles[current][bound] = self.shape_list(value or "")
            else:
                rest.append((name, value))
        self.left = rest
        calibration = {
            bound: self.shape_list(self.take(f"--{bound}ShapesCalib") or "") for bound in ("min", "opt", "max")
        }
        inference = self.shape_list(self.take("--shapes") or "")
        built = [self.broadcast(profiles[number]) for number in sorted(profiles)]
        calibrated = self.broadcast(calibration)
        if calibrated:
            self.fields["shapesCalib"] = calibrated
        if inference and not any(built):
            built = [{name: {"min": dims, "opt": dims, "max": dims} for name, dims in inference.items()}]
        if any(built):
            self.fields["optProfiles"] = built
            self.fields["inferenceShapes"] = inference or {name: shape["opt"] for name, shape in built[0].items()}
        return built[0]

    def pools(self) -> None:
        pools: dict[str, float] = {}
        try:
            pairs = [
                (name, *self.pool_size(name, value))
                for name, value in (
                    name_and_value(item, self.version)
                    for item in split(self.take("--memPoolSize") or "", ",", self.version)
                )
            ]
        except Invalid as error:
            if is_10(self.version):
                raise Invalid(
                    f"{error} conversion failure: failed to parse --memPoolSize. Please double check your input string."
                ) from None
            raise
        for name, size, shown in pairs:
            if name not in POOLS and not (name == "tacticSharedMem" and is_10(self.version)):
                raise Invalid(f"Unknown memory pool: {name}")
            if size < 0:
                raise Invalid(f"Negative memory pool size: {shown:f}")
            pools["tacticSharedMemKiB" if name == "tacticSharedMem" else name] = size
        if not is_10(self.version):
            workspace = self.take("--workspace")
            if workspace is not None:
                self.log.append("[W] --workspace flag has been deprecated by --memPoolSize flag.")
                pools["workspace"] = _integer(workspace)
        if pools:
            self.fields["memPoolMiB"] = pools

    def pool_size(self, pool: str, text: str) -> tuple[float, float]:
        """(MiB, or KiB for tacticSharedMem; the number as an error shows it)."""
        match = _NUMBER.match(text)
        if not match:
            raise Invalid("stod")
        number = float(match[0])
        if not is_10(self.version):
            return number, number
        default = "K" if pool == "tacticSharedMem" else "M"
        size = number * _UNITS.get(text[-1], _UNITS[default])
        return size / _UNITS[default], size

    def precision_flags(self) -> None:
        ten = is_10(self.version)
        for name in ("int8", "fp16", "fp8", *(("bf16", "int4") if ten else ())):
            self.flag(f"--{name}", name)
        if self.take("--noTF32") is not None:
            self.fields["tf32"] = False
        if self.take("--best") is not None:
            self.fields.update(int8=True, fp16=True, **({"bf16": True} if ten else {}))
        strong = ten and self.flag("--stronglyTyped", "stronglyTyped")
        for name in ("fp16", "int8"):
            if strong and self.fields.pop(name, False):
                self.log.append(
                    f"[W] Invalid usage, setting {name} mode is not allowed if graph is strongly typed. "
                    f"Disabling BuilderFlag::k{name.upper()}."
                )
        if self.version == "10.16" and any(self.fields.get(n) for n in ("int8", "fp16", "fp8", "bf16", "int4")):
            self.log.append(WEAK)
        if self.fields.get("fp8") and self.fields.get("int8"):
            raise Invalid("Invalid usage, fp8 and int8 aren't allowed to be enabled together.")

    def layers(self) -> None:
        constraints = self.take("--precisionConstraints")
        if constraints is not None:
            if constraints not in ("none", "obey", "prefer"):
                raise Invalid(f"Unknown precision constraints: {constraints}")
            self.fields["precisionConstraints"] = constraints

        def read(option: str) -> list[tuple[str, str]]:
            items = split(self.take(option) or "", ",", self.version)
            return [name_and_value(item, self.version) for item in items]

        precisions = {name: self.data_type(value) for name, value in read("--layerPrecisions")}
        types = {
            name: [self.data_type(t) for t in split(value, "+", self.version)]
            for name, value in read("--layerOutputTypes")
        }
        devices = {}
        for name, value in read("--layerDeviceTypes"):
            if value not in ("GPU", "DLA"):
                raise Invalid(f"Invalid Device Type {value}")
            devices[name] = value
        for field, mapping in (
            ("layerPrecisions", precisions),
            ("layerOutputTypes", types),
            ("layerDeviceTypes", devices),
        ):
            if mapping:
                self.fields[field] = mapping
        none = self.fields.get("precisionConstraints", "none") == "none"
        if none and (precisions or types):
            self.log.append(NO_EFFECT)
        if not none and not precisions and not types:
            self.log.append(NO_LAYERS)

    def dla_checks(self) -> None:
        fields = self.fields
        if fields.get("safe") and fields.get("useDLACore", -1) >= 0:
            fields["buildDLAStandalone"] = True
        if not fields.get("buildDLAStandalone"):
            return
        fields["skipInference"] = True
        if fields.get("allowGPUFallback"):
            raise Invalid("GPU fallback (--allowGPUFallback) not allowed for DLA standalone mode")
        common = {("fp16", "kDLA_LINEAR"), ("int8", "kDLA_LINEAR"), ("fp16", "kCHW16"), ("int8", "kCHW32")}
        inputs = common | {(kind, layout) for kind in ("fp16", "int8") for layout in ("kDLA_HWC4", "kCHW4")}
        for field, allowed in (("inputFormats", inputs), ("outputFormats", common)):
            formats = fields.get(field)
            if not formats or any(
                len(f["formats"]) != 1 or (f["type"], f["formats"][0]) not in allowed for f in formats
            ):
                raise Invalid(SAFE_DLA_FORMATS)


def matches(pattern: str, name: str) -> bool:
    """10.x: the first '*' stands for any text; no '*': equality."""
    prefix, star, suffix = pattern.partition("*")
    if not star:
        return pattern == name
    return len(name) >= len(prefix) + len(suffix) and name.startswith(prefix) and name.endswith(suffix)


def candidates(keys: Iterable[str], name: str, version: str, star: bool = True) -> list[str]:
    """The keys of a layer list that may serve `name`: more than one means that the choice is unspecified.

    `star`: whether 8.6 takes '*' for this list (precisions and output types: yes, devices: no).
    """
    keys = list(keys)
    if name in keys:
        return [name]
    if not is_10(version):
        return ["*"] if star and "*" in keys else []
    return [key for key in keys if matches(key, name)]


def find(keys: Iterable[str], name: str, version: str, star: bool = True) -> str | None:
    """The one key that serves `name`, or None. Raises ValueError where trtexec's choice would be unspecified."""
    found = candidates(keys, name, version, star)
    if len(found) > 1:
        raise ValueError(f"ambiguous: {name!r} matches {found}")
    return found[0] if found else None


def read_cache(text: str) -> dict[str, str]:
    """Tensor -> 8 hex digits of what trtexec's own reader makes of a calibration cache (equal in all versions).

    Raises ValueError(error_type, error) where one line makes it throw.
    """
    bits = {}
    for line in text.split("\n"):
        name, colon, _ = line.rpartition(":")
        if not colon:
            continue
        size, start = len(line.encode()), len(name.encode()) + 2
        if start > size:
            raise ValueError(
                "out_of_range", f"basic_string::substr: __pos (which is {start}) > this->size() (which is {size})"
            )
        match = re.match(r"\s*([0-9a-fA-F]+)", line[len(name) + 2 :][:8])
        if not match:
            raise ValueError("invalid_argument", "stoi")
        number = int(match[1], 16)
        if number > 0x7FFFFFFF:
            raise ValueError("out_of_range", "stoi")
        bits[name] = f"{number:08x}"
    return bits


def bits_to_float(bits: str) -> float:
    value: float = struct.unpack(">f", bytes.fromhex(bits))[0]
    return value


def _float32(value: float) -> float:
    rounded: float = struct.unpack(">f", struct.pack(">f", value))[0]
    return rounded


def setup(argv: Sequence[str], network: Mapping[str, Any], cache: str | None, version: str) -> dict[str, Any]:
    """What trtexec sets through the API for a network before the build: the shape of the recorded set-ups."""
    parsed = parse(argv, version)
    if parsed["status"] != "ok":
        return parsed
    work = _Setup(parsed, network, cache, version)
    try:
        work.run()
    except Uncaught as error:
        return _result("setup_uncaught", work.log, error=str(error))
    except SetupFailed as error:
        return _result("setup_failed", [*work.log, f"[E] {error}"])
    except Crash:
        return {"status": "crash", "signal": 11}
    return _result("ok", work.log, **work.state)


class _Setup:
    def __init__(self, parsed: Mapping[str, Any], network: Mapping[str, Any], cache: str | None, version: str) -> None:
        self.fields = parsed["fields"]
        self.log = list(parsed.get("log", []))
        self.network = network
        self.cache = cache
        self.version = version
        self.flags: set[str] = set()
        self.layers: dict[str, dict[str, Any]] = {}
        self.state: dict[str, Any] = {}

    def run(self) -> None:
        fields = self.fields
        profile = fields.get("optProfiles", [{}])[0]
        names = [tensor["name"] for tensor in self.network["inputs"]]
        for name in profile:
            if name not in names:
                raise SetupFailed(
                    f'Cannot find input tensor with name "{name}" in the network inputs! '
                    "Please make sure the input tensor names are correct."
                )
        dynamic = [t for t in self.network["inputs"] if -1 in t["dims"]]
        if profile and not dynamic:
            raise SetupFailed(
                "Static model does not take explicit shapes since the shape of inference tensors will be determined "
                "by the model itself"
            )
        ends = {
            "inputs": self.formats("inputs", "inputIOFormats", fields.get("inputFormats", [])),
            "outputs": self.formats("outputs", "outputIOFormats", fields.get("outputFormats", [])),
        }
        self.calibration_profile(profile, dynamic)
        self.ranges(ends)
        for name, flag in (("int8", "INT8"), ("fp16", "FP16"), ("directIO", "DIRECT_IO")):
            if fields.get(name):
                self.flags.add(flag)
        constraints = fields.get("precisionConstraints", "none")
        if constraints != "none":
            self.flags.add(f"{constraints.upper()}_PRECISION_CONSTRAINTS")
            self.precisions(fields.get("layerPrecisions", {}))
            self.output_types(fields.get("layerOutputTypes", {}))
        self.devices(fields.get("layerDeviceTypes", {}))
        self.state = {
            "flags": [],
            "layers": self.layers,
            **ends,
            "calibrator": bool(fields.get("int8") and fields.get("calibration")),
            "defaultDevice": None,
            "DLACore": -1,
            "engineCapability": None,
            "memoryPoolBytes": self.pools(),
            "profilesAdded": int(bool(profile)),
        }
        if fields.get("useDLACore", -1) >= 0:
            self.state.update(defaultDevice="DLA", DLACore=fields["useDLACore"])
            self.flags.add("PREFER_PRECISION_CONSTRAINTS")
            self.flags.add("GPU_FALLBACK" if fields.get("allowGPUFallback") else "DIRECT_IO")
            if not fields.get("int8"):
                self.flags.add("FP16")
            if fields.get("buildDLAStandalone"):
                self.state["engineCapability"] = "DLA_STANDALONE"
        self.state["flags"] = sorted(self.flags)

    def formats(self, ends: str, option: str, formats: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        tensors = self.network[ends]
        if len(formats) not in (0, 1, len(tensors)):
            raise Uncaught(f"The number of {option} must match network's {ends} or be one for broadcasting.")
        result = {}
        for index, tensor in enumerate(tensors):
            kind, allowed = tensor["type"], None
            if formats:
                chosen = formats[0 if len(formats) == 1 else index]
                kind, allowed = chosen["type"], chosen["formats"]
            elif not is_10(self.version):
                allowed = ["kLINEAR"]
                if ends == "inputs" and kind == "int8":
                    kind = "fp32"
            result[tensor["name"]] = {"type": kind, "allowedFormats": allowed, "dynamicRange": None}
        return result

    def calibration_profile(self, profile: Mapping[str, Any], dynamic: list[Mapping[str, Any]]) -> None:
        if not profile:
            return
        if is_10(self.version):
            for tensor in dynamic:
                shape = profile.get(tensor["name"])
                if shape:
                    bounds = " ".join(f"{b.upper()}={'x'.join(map(str, shape[b]))}" for b in ("min", "opt", "max"))
                    self.log.append(
                        f"[I] Set shape of input tensor {tensor['name']} for optimization profile 0 to: {bounds}"
                    )
        if not (self.fields.get("int8") and self.fields.get("calibration")):
            return
        shapes = self.fields["shapesCalib"]
        for tensor in self.network["inputs"]:
            if tensor["name"] not in shapes:
                if not is_10(self.version):
                    raise Crash
                raise Uncaught(f"Calibration profile for tensor {tensor['name']} cannot be found!")
            if is_10(self.version):
                dims = "x".join(map(str, shapes[tensor["name"]]["opt"]))
                self.log.append(f"[I] Set calibration profile for input tensor {tensor['name']} to {dims}")

    def ranges(self, ends: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
        if not self.fields.get("int8"):
            return
        if not self.fields.get("calibration"):
            for end, limit in (("inputs", 2), ("outputs", 4)):
                for tensor in ends[end].values():
                    tensor["dynamicRange"] = [-limit, limit]
            return
        listed = {"inputs": self.fields.get("inputFormats", []), "outputs": self.fields.get("outputFormats", [])}
        if not any(f["type"] == "int8" for formats in listed.values() for f in formats):
            return
        failed = SetupFailed(
            "Int8IO was specified but impossible to read tensor scales from provided calibration cache file"
        )
        if not is_10(self.version) and len(listed["outputs"]) not in (0, 1, len(ends["inputs"])):
            raise failed
        try:
            bits = read_cache(self.cache or "")
        except ValueError:
            raise failed from None
        for tensors in ends.values():
            for name, tensor in tensors.items():
                if tensor["type"] == "int8":
                    if name not in bits:
                        raise failed
                    limit = _float32(127 * bits_to_float(bits[name]))
                    tensor["dynamicRange"] = [-limit, limit]

    def precisions(self, wanted: Mapping[str, str]) -> None:
        """'*' skips layers that compute integers, constants of integers and shape tensors; exact names do not."""
        skipped = False
        integers = ("int32", "bool", "int64") if is_10(self.version) else ("int32", "bool")
        for layer in self.network["layers"]:
            key = find(wanted, layer["name"], self.version)
            if key is None:
                continue
            if (
                key == "*"
                and layer["name"] != "*"
                and (
                    layer["precision"] in integers
                    or layer["shapeTensor"]
                    or (layer["tensorType"] in integers and (layer["kind"] == "constant" or is_10(self.version)))
                )
            ):
                skipped = True
                continue
            self.layers.setdefault(layer["name"], {})["precision"] = wanted[key]
            if is_10(self.version):
                self.log.append(f"[I] Set layer {layer['name']} to precision {wanted[key]}")
        if skipped:
            self.log.append("[I] Skipped setting precisions for some layers. Check verbose logs for more details.")

    def output_types(self, wanted: Mapping[str, list[str]]) -> None:
        skipped = False
        for layer in self.network["layers"]:
            key = find(wanted, layer["name"], self.version)
            if key is None:
                continue
            if (
                key == "*"
                and layer["name"] != "*"
                and (layer["tensorType"] in ("int32", "bool") or layer["shapeTensor"])
            ):
                skipped = True
                continue
            types = wanted[key]
            if len(types) not in (1, layer["outputs"]):
                self.log.append(
                    f"[E] Layer {layer['name']} has {layer['outputs']} outputs but {len(types)} output types are given "
                    "in --layerOutputTypes flag."
                )
                raise Uncaught("Invalid --layerOutputTypes flag.")
            for index in range(layer["outputs"]):
                kind = types[0 if len(types) == 1 else index]
                # a pattern of 10.x hits the layer but sets the type of '*' (fact 3.9)
                real = kind if key == layer["name"] or key == "*" else wanted.get("*", ["fp32"])[0]
                self.layers.setdefault(layer["name"], {}).setdefault("outputTypes", {})[str(index)] = real
                if is_10(self.version):
                    self.log.append(f"[I] Set output {index} of layer {layer['name']} to type {kind}")
        if skipped:
            self.log.append("[I] Skipped setting output types for some layers. Check verbose logs for more details.")

    def devices(self, wanted: Mapping[str, str]) -> None:
        for layer in self.network["layers"]:
            key = find(wanted, layer["name"], self.version, star=False)
            if key is not None:
                self.layers.setdefault(layer["name"], {})["device"] = wanted[key]
                if is_10(self.version):
                    self.log.append(f"[I] Set layer {layer['name']} to device type {wanted[key]}")

    def pools(self) -> dict[str, int]:
        sizes = {}
        for name, mib in self.fields.get("memPoolMiB", {}).items():
            if name in POOLS:
                size = int(mib * (1 << 20))
                if name == "dlaSRAM" and size > 0:
                    size = 1 << int(math.log2(size))
                sizes[POOLS[name]] = size
        return sizes
