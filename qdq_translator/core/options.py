"""How an option is declared, and the options of `translate`, without the imports of the command, so that `--help`
responds at once.

No `from __future__ import annotations` here: argparse-dataclass reads the real annotations.
"""

import dataclasses
import functools
import os
import re
from types import MappingProxyType
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    FrozenSet,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from qdq_translator.core.boards import find_board
from qdq_translator.core.disk import shown_place
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.rows import Row
from qdq_translator.core.parsing import GROUPS, not_a_choice, sentence

Kind = TypeVar("Kind", bound="Options")
REQUIRED, _BY_KIND = object(), object()
"""Defaults of an option: it must be given; it has the default of its annotation."""


def setting(
    help: str, metavar: str = "", default: Any = _BY_KIND, short: str = "", positional: bool = False, **metadata: Any
) -> Any:
    """A field that is the command-line option `--NAME` (the field's name); `parsing.make_parser` reads it.

    default: by default that of the annotation: None, [], False, "", or the first of its choices. short: further flags,
    such as `-n`. `group`: the heading in the help (one of `parsing.GROUPS`). `part`: (option, name) of the option of
    `PARTS` that sets this field by a name; the field's own flag works too and is not in the help. Further metadata is
    for argparse-dataclass: `choices`, `type`, `nargs` (by default, a list has one or more values, a positional one any
    number).
    """
    if metavar:
        metadata["metavar"] = metavar
    metadata.update(short=short, positional=positional, help=help.replace("%", "%%"))
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    if default not in (_BY_KIND, "", 0):
        metadata["help"] += f" (default: {' '.join(map(str, default)) if isinstance(default, list) else default})"
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Options(Row):
    """Options of a command, or some of them. `typed`: the fields that were given, by flag, keyword or position; presets
    and boards change no other field."""

    typed: ClassVar[FrozenSet[str]] = frozenset()

    def __new__(cls, *values: Any, **named: Any) -> "Options":
        """An instance that knows which of its fields were given. `dataclasses.replace` gives all; see `changed`."""
        made = object.__new__(cls)
        by_position = [field.name for field in dataclasses.fields(cls)][: len(values)]
        object.__setattr__(made, "typed", frozenset([*by_position, *named]))
        return made

    def changed(self: Kind, **changes: Any) -> Kind:
        """The options with `changes` among those that were given, so that a preset sets all others."""
        given = {name: getattr(self, name) for name in self.typed}
        return type(self)(**{**given, **changes})

    def __init_subclass__(cls) -> None:
        for name, kind in cls.__annotations__.items():
            field = cls.__dict__.get(name)
            if isinstance(field, dataclasses.Field) and field.default is _BY_KIND:
                _complete(field, kind)
        super().__init_subclass__()


def _complete(field: "dataclasses.Field[Any]", kind: Any) -> None:
    """Gives an option the default of its annotation."""
    inside = get_args(kind)
    if get_origin(kind) is list:
        field.default, field.default_factory = dataclasses.MISSING, list
    elif get_origin(kind) is Literal:
        field.default = inside[0]
        field.metadata = MappingProxyType(
            {**field.metadata, "help": f"{field.metadata['help']} (default: {inside[0]})"}
        )
    else:
        field.default = None if type(None) in inside else (inside or (kind,))[0]()


in_essential, in_target, in_quantizers, in_inference, in_calibration, in_output, in_automation = (
    functools.partial(setting, group=title) for title in GROUPS
)


def data_option(help: str, **metadata: Any) -> Any:
    """`DATA` of every command that runs samples."""
    return setting(
        f"{help}: an .npz, .npy, image, a folder of them or of class folders, or a YOLO data set (data.yaml)",
        "DATA",
        positional=True,
        **metadata,
    )


def translation_option() -> Any:
    """`-t` of every command that reads a translation."""
    return setting(
        "the output folder of translate, or a NAME_noqdq.onnx", "PATH", "./translated", "-t", group="Essential"
    )


def model_option() -> Any:
    """`-i` of the commands that read a translation but not the model itself."""
    return setting("the model whose translation to use, if the folder contains several", "MODEL", "", short="-i")


def choices_of(field: "dataclasses.Field[Any]") -> Sequence[str]:
    """The values that an option may have, () if it accepts any."""
    return get_args(field.type) if get_origin(field.type) is Literal else field.metadata.get("choices", ())


def check_values(options: Any) -> None:
    """Raises UsageError for a field of `options` (a dataclass of settings) whose value has another type or is no
    choice.
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
            object.__setattr__(options, field.name, value)
        if not _fits(value, field.type):
            help = sentence(str(field.metadata["help"]).replace("%%", "%"))
            raise UsageError(f"--{field.name}: {value!r} is not of the type {_type_words(field.type)}.", help)
        choices = choices_of(field)
        if choices and isinstance(value, str) and value not in choices:
            raise not_a_choice(f"--{field.name}", value, choices)


def _type_words(kind: Any) -> str:
    """The type of an option as text, in the same words in every version of Python."""
    if isinstance(kind, str):  # of a Literal
        return repr(kind)
    inner: Any = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) is list:
        return f"list of {inner[0].__name__}"
    return " or ".join(map(_type_words, inner)) or kind.__name__.replace("NoneType", "None")


def check_count(flag: str, count: Optional[int]) -> None:
    """Raises UsageError for fewer than one sample."""
    if count is not None and count < 1:
        raise UsageError(f"{flag} {count} is not a number of samples.", "Give 1 or more.")


def check_positive(flag: str, divisors: Sequence[float]) -> None:
    """Raises UsageError for a divisor of pixels that is 0 or negative."""
    if not all(value > 0 for value in divisors):
        raise UsageError(f"{flag} must be positive.", "The pixels are divided by it.")


def check_between(flag: str, value: Optional[float], top: int) -> None:
    """Raises UsageError for a value that is not between 0 and `top`."""
    if value is not None and not 0 <= value <= top:
        raise UsageError(f"{flag} {value:g} is out of range.", f"It must be between 0 and {top}.")


def check_metric_drop(drop: Optional[float], metric: Any) -> None:
    """Raises UsageError for a largest drop of no metric."""
    if drop is not None and not metric:
        raise UsageError("--max_drop needs a metric.", "Give one with --metric, for example --metric top1.")


def check_needs_dla(flag: str, value: Any) -> None:
    """Raises UsageError for an option about time that is set for a GPU."""
    if value is not None:
        raise UsageError(f"{flag} is a time on a DLA.", "Select it with --target orin-dla.")


def _fits(value: Any, wanted: Any) -> bool:
    """Whether `value` has the type `wanted`; an integer is accepted for a float."""
    inner: Sequence[Any] = getattr(wanted, "__args__", ())
    origin = getattr(wanted, "__origin__", None)
    if origin is Literal:
        return isinstance(value, str)
    if origin is Union:
        return any(_fits(value, one) for one in inner)
    if origin is list:
        return isinstance(value, (list, tuple)) and all(_fits(item, inner[0]) for item in value)
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)


IMAGES = ("image_mean", "image_std", "resize", "colors", "layout")
"""The options on how images become inputs."""


def image_words(values: "Mapping[str, Any]") -> List[str]:
    """`--preprocess` with what was asked for of how images become inputs; [] for nothing."""
    found = []
    for name in IMAGES:
        value = values.get(name)
        if value and value != "auto":
            given = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            found.append(f"{name.replace('image_', '')}={given}")
    return ["--preprocess", *found] if found else []


METRICS = (
    "top1, top5, map (YOLO), miou, psnr, word_accuracy, character_accuracy (CTC), or your own, file.py:name or "
    "package.module:name"
)
TARGETS = ("gpu", "orin-dla", "xavier-dla")
MODES = ("implicit", "explicit", "fp16", "best")
"""The network to build: the translation; the Q/DQ model as it was; the stripped model without INT8; the stripped model
with every precision that TensorRT finds fastest. `build` also has 'fp32', the stripped model as it is."""
_SOUND = ("infer_bounds", "infer_concat_scales", "infer_mul_scales", "infer_add_scales", "keep_norm_fp16")
SOUND = frozenset(_SOUND[:-1])
PRESETS: Dict[str, Dict[str, Any]] = {
    "gpu": {**dict.fromkeys(_SOUND, True), "asymmetric": "widen"},
    "dla": {
        "target": "orin-dla",
        **dict.fromkeys(_SOUND, True),
        "asymmetric": "widen",
        "dla_rewrites": True,
        "dla_output": "4d",
        "parts": "tail",
    },
}
"""The options that `--preset` sets: everything that costs no accuracy by the rules, and a symmetric range for
quantizers that would be refused otherwise. Options of the command alone (`parts`) have no effect in `translate()`.
Not included: S6, whose backward half is only a lower bound, the markers of S9, and `--unify_scales max`, which costs
resolution."""


class TranslateOptions(Options):
    """How a model is translated. Field names are the names of the flags. Raises UsageError (a ValueError) for a wrong
    value.
    """

    best_by_default: ClassVar[bool] = False

    board: Optional[str] = in_essential(
        "what you own: orin-nano, orin-nx, agx-orin, xavier, thor, drive-orin or gpu, also with a platform "
        "(agx-orin@jetpack-6.2)",
        "BOARD",
    )
    on: Optional[str] = in_essential(
        "run on the DLA or on the GPU (default: the faster one, by the estimate)", choices=("dla", "gpu")
    )
    as_is: bool = in_essential(
        "add nothing: the scales of the model and the options given, as NVIDIA's script does (default: everything that "
        "costs no accuracy by the rules)"
    )
    trt_calib_version: Optional[str] = in_target(
        "TensorRT version number in the header of the calibration cache, e.g. 8602 or 100300 (default: from "
        "--platform, else the installed TensorRT, else 8600)",
        "N",
    )
    infer_average_pool_scales: bool = in_inference(
        "infer missing scales of average pooling (rule S6)", part=("infer", "average_pool")
    )
    infer_concat_scales: bool = in_inference(
        "infer missing scales of Concat inputs and outputs (rule S7)", part=("infer", "concat")
    )
    infer_mul_scales: bool = in_inference(
        "infer missing scales around Mul and Sigmoid (rules S5, S8)", part=("infer", "mul")
    )
    infer_bounds: bool = in_inference(
        "infer missing scales of outputs that are bounded by definition: Sigmoid, Tanh, Softmax, Erf, HardSigmoid, "
        "Clip (rule B1)",
        part=("infer", "bounds"),
    )
    infer_add_scales: bool = in_inference(
        "infer missing scales around Add, Sub and Sum (rule S11)", part=("infer", "add")
    )
    inference: Literal["sound", "reference"] = in_inference(
        "reference: NVIDIA's formulas, including those that can only clip (rules S5, S6, S8)",
        part=("infer", "reference"),
    )
    keep_fp16: List[str] = in_target(
        "layers to keep in FP16: names, patterns with *, or @FILE with one per line (or a --layerPrecisions argument)",
        "LAYER",
    )
    float_type: Literal["fp16", "fp32"] = in_target(
        "type of everything that is not INT8 (on a GPU): fp32 if values are too large or too small for FP16",
        part=("types", "float"),
    )
    keep_norm_fp16: bool = in_target(
        "keep layers without weights that read or make the input of a LayerNormalization in FP16 (rule P1), and give "
        "layers on the GPU that FP16 cannot hold FP32 (rule P2)"
    )
    calibration_type: Literal["max", "histogram"] = in_quantizers(
        "how the weights were calibrated: max checks that weight scales are max|w|/127 (rule W3)"
    )
    addtl_ops_to_infer_adjacent_scales: List[str] = in_inference(
        "further ONNX operators whose input and output share one scale (rule S3)", "OP"
    )
    rename_node_outputs: bool = in_output("name every tensor after the node that produces it (rule F5)")
    add_unary_ew_scales_for_dla: bool = in_inference(
        "a scale of 1.0 between a Conv and the Add that it is fused with on a DLA (rule S9)", part=("infer", "unary")
    )
    target: Literal["gpu", "orin-dla", "xavier-dla"] = in_target("hardware whose rules the plan follows")
    platform: Optional[str] = in_target(
        "e.g. jetpack-6.2 or drive-os-6.0.9: sets cache version and DLA rules (--tensorrt 10.7: another one is there)",
        "NAME",
    )
    weights: Literal["baked", "float"] = in_quantizers(
        "baked: weights on the trained int8 grid; float: the exporter's original float weights (rules W1, W2)",
        part=("quantizers", "weights"),
    )
    on_conflict: Literal["max", "min", "first", "error"] = in_quantizers(
        "scale of a tensor that is quantized with different scales (rule C1)", part=("quantizers", "on_conflict")
    )
    asymmetric: Literal["error", "widen", "data", "keep"] = in_quantizers(
        "zero points other than 0 (int8) or 128 (uint8): refuse the model, use the smallest symmetric scale that "
        "covers the range (widen, the choice of presets) or the best one for --calibrate (data, that of presets with "
        "--calibrate); keep: as uint8, for 'explicit --target orin-dla' only",
        part=("quantizers", "asymmetric"),
    )
    per_channel_activations: Literal["error", "max"] = in_quantizers(
        "activations with one scale per channel: refuse the model, or use the largest scale",
        part=("quantizers", "per_channel_activations"),
    )
    scales: Optional[str] = in_quantizers(
        "for a float model: a file with one scale per tensor name (AIMET .encodings, ONNX Runtime's calibration "
        "table, PPQ's JSON, a TensorRT calibration cache; rule Q14)",
        "FILE",
    )
    missing_zero_point: Literal["uint8", "int8"] = in_quantizers(
        "type of a QuantizeLinear without zero point: uint8 as in the ONNX standard, or int8 as some exporters intend",
        part=("quantizers", "missing_zero_point"),
    )
    graph_optimizer: Literal["native", "onnxoptimizer"] = in_output(
        "the implementation that folds BatchNormalization and Pad (rule F4)"
    )
    no_auto_names: bool = in_target("omit tensors that exist only in TensorRT's network from the cache (rule S10)")
    unify_scales: Literal["off", "warn", "max", "data", "requantize"] = in_target(
        "on a DLA, tensors that must share one range (Concat, element-wise): ignore them, report them, raise all to "
        "the largest range, use the range with the least error on the inputs of --calibrate, or add Scales to those "
        "that other layers read too, if that gains on these inputs",
        default="warn",
    )
    max_bits_lost: float = in_target(
        "resolution that --unify_scales max may cost a tensor; layers that would cost more stay FP16",
        "BITS",
        default=3.0,
    )
    dla_rewrites: Union[bool, str] = in_target(
        "on a DLA target, replace operators that the DLA does not support with ones that it supports (force: on the "
        "target gpu too; approximate: also Erf and Gelu, with an error below 0.0005, rule D22; list: print the rules)",
        nargs="?",
        type=str,
        choices=("on", "off", "list", "force", "approximate"),
    )
    dla_output: Literal["same", "4d"] = in_target(
        "4d: graph inputs and outputs have four dimensions, without the Reshape next to them (rule D16; needs "
        "--dla_rewrites)"
    )
    assume: Optional[str] = in_target(
        "assume an unconfirmed fact: pow (from TensorRT 10.3 on the DLA supports Pow with one constant operand; its "
        "operator page lists Pow, NvInfer.h does not; limit O3). Check it on a board",
        choices=("pow",),
    )
    preset: Optional[str] = in_target(
        "the options that are added by default, for a GPU or with the rewrites for a DLA",
        choices=tuple(PRESETS),
    )
    without: List[str] = in_target(
        "options that must not be added, e.g. --without dla_rewrites infer_add_scales", "NAME"
    )
    power_mode: Optional[str] = in_target(
        "power mode for the estimated time on a DLA: MAXN, 50W, 30W (AGX Orin) or DRIVE (default: DRIVE with a "
        "drive-os platform, else MAXN)",
        "MODE",
        part=("cost", "power_mode"),
    )
    dla_clock: Optional[float] = in_target(
        "DLA clock instead of a power mode, 1.331 to 1.6", "GHZ", part=("cost", "dla_clock")
    )
    cost_model: Optional[str] = in_target(
        "cost model of a board, written by 'report --fit'", "FILE", part=("cost", "model")
    )
    calibrate: Optional[str] = in_calibration(
        "compute missing scales from these inputs (an .npz, .npy, image, or a folder of them; rule K1), also for a "
        "float model; needs ONNX Runtime",
        "DATA",
    )
    calibrate_method: str = in_calibration(
        "range of a tensor: max (the largest magnitude), percentile (99.99), entropy (least divergence of 2048 to "
        "4096 bins), mse (least squared error; use percentile if the data contain a few meaningless extreme values) "
        "or output (mse, then least error of the network's outputs); another method for the outputs of one operator: "
        "mse,Add:max,Concat:percentile",
        "METHOD",
        default="mse",
        part=("calibration", "method"),
    )
    calibrate_samples: Optional[int] = in_calibration(
        "number of samples to use (default: all of --calibrate)", "N", part=("calibration", "samples")
    )
    recalibrate: List[str] = in_calibration(
        "replace the model's scales of these tensors, or of the N tensors whose scales fit the data worst (worst:N), "
        "with scales from --calibrate (rule K2)",
        "TENSOR",
        part=("calibration", "recalibrate"),
    )
    equalize: bool = in_calibration(
        "with --calibrate on a float model: rescale channels along Convs so that one INT8 scale fits all of them, if "
        "this improves the outputs on held-out samples",
        part=("calibration", "equalize"),
    )
    calibrate_outputs: bool = in_calibration(
        "compute scales of graph outputs too (overrides rule S2)", part=("calibration", "outputs")
    )
    ignore_nonfinite: bool = in_calibration(
        "skip samples with NaN or infinities instead of refusing the data", part=("calibration", "ignore_nonfinite")
    )
    image_mean: List[float] = in_calibration(
        "mean per channel (0.485,0.456,0.406), for pixels in [0, 1] (default: by the model's metadata, else 0)",
        "M",
        part=("preprocess", "mean"),
    )
    image_std: List[float] = in_calibration(
        "divisor after the mean (default: by the model's metadata, else 1)", "S", part=("preprocess", "std")
    )
    resize: Literal["auto", "letterbox", "stretch", "crop"] = in_calibration(
        "letterbox and crop keep the ratio, with gray bars or cut edges; auto: by the model's metadata (an export of "
        "ultralytics: letterbox), else stretch",
        part=("preprocess", "resize"),
    )
    colors: Literal["auto", "rgb", "bgr"] = in_calibration(
        "order of the channels; auto: by the model's metadata, else RGB", part=("preprocess", "colors")
    )
    layout: Literal["auto", "nchw", "nhwc"] = in_calibration("layout of the input", part=("preprocess", "layout"))
    shapes: List[str] = in_target(
        "sizes for dynamic input dimensions, e.g. images:1x3x640x640, or the value of an input that selects a branch, "
        "e.g. sr=16000",
        "NAME:DIMS",
    )
    keep_model: bool = in_output(
        "do not change a float model, and write a cache for that file: for programs that build from your ONNX "
        "(DeepStream, ultralytics, ONNX Runtime); needs --calibrate"
    )
    cache_algorithm: Literal["entropy2", "minmax", "entropy", "legacy"] = in_target(
        "calibration algorithm in the header of the cache, as the program that reads it expects (trtexec and every "
        "DLA: entropy2; ultralytics on a GPU: minmax)"
    )
    annotate: bool = in_output("write precision, device, scales and reasons into the ONNX metadata, for Netron")
    strict: bool = in_automation("treat warnings as errors")

    def __post_init__(self) -> None:
        """The flag alone (argparse: None) and 'on' mean True; what was typed stays, regardless of the preset."""
        change = functools.partial(object.__setattr__, self)
        if self.dla_rewrites in (None, "on", "off"):
            change("dla_rewrites", self.dla_rewrites != "off")
        check_values(self)
        change("without", [name.lstrip("-").replace("-", "_") for name in self.without])
        self._place(change)
        for name, value in preset_values(self).items():
            change(name, value)
        check_count("--calibrate_samples", self.calibrate_samples)
        check_positive("--image_std", self.image_std)
        for name in ("power_mode", "dla_clock", "cost_model"):
            if self.target == "gpu":
                check_needs_dla(f"--{name}", getattr(self, name))

    def _place(self, change: Callable[[str, Any], None]) -> None:
        """Sets the options that the board implies, and the preset of the target, unless they were typed. Raises
        UsageError."""
        if self.board is None and self.on == "dla" and "target" not in self.typed:
            change("target", "orin-dla")
        if self.board is not None:
            chosen = find_board(self.board)
            for name, value in (("platform", chosen.platform), ("target", chosen.target(self.on))):
                if name not in self.typed:
                    change(name, value)
        if "preset" not in self.typed and not self.as_is and (self.best_by_default or self.board is not None):
            change("preset", "gpu" if self.target == "gpu" else "dla")

    @property
    def sizes(self) -> Dict[str, List[int]]:
        """Dynamic input -> its sizes, from --shapes. Raises UsageError for what is no shape."""
        return parse_shapes(self.shapes)

    @property
    def fixed(self) -> Dict[str, float]:
        """Graph input -> its fixed value, as in --shapes."""
        return parse_values(self.shapes)


class TranslateCommand(TranslateOptions):
    """Remove QuantizeLinear and DequantizeLinear from ONNX models and write the inputs of TensorRT's implicit
    INT8: a float ONNX, a calibration cache, a precision config and the --layerPrecisions argument."""

    best_by_default: ClassVar[bool] = True

    metric: Optional[str] = in_calibration(
        f"{METRICS}, measured for the model and its simulated engine on the data of --calibrate",
        "NAME",
    )
    max_drop: Optional[float] = in_calibration(
        "exit status 1 if --metric falls by more than X from the model to the simulated engine", "X"
    )
    recover: Union[bool, float] = in_calibration(
        "with data: search options and layers in FP16 (see tune) until --metric, or else the agreement with the given "
        "model, has lost at most so many points (default: 1, or --max_drop), in the least time",
        "POINTS",
        nargs="?",
        type=float,
    )
    models: List[str] = in_essential(
        "ONNX models, or folders of them; after them the data to calibrate on (an .npz, .npy, image, or a folder of "
        "them), which a float model needs",
        "MODEL",
        positional=True,
    )
    input_onnx_models: List[str] = in_essential("the same as MODEL (the flag of NVIDIA's script)", "MODEL", short="-i")
    example: bool = in_essential("translate the model that ships with the package")
    output_dir: str = in_essential("output folder", "DIR", default="./translated", short="-o")
    verbose: bool = in_output("more output, and tracebacks of errors")
    json: bool = in_output("print the summary as one JSON object on stdout, and nothing else")
    workers: int = in_automation(
        "processes that share the samples, or several models; the results do not depend on their number",
        "N",
        default=1,
        part=("run", "workers"),
    )
    scheduler: Optional[str] = in_automation(
        "Dask scheduler (tcp://host:8786) whose workers process the samples instead; they read the data themselves",
        "ADDRESS",
        part=("run", "scheduler"),
    )
    provider: str = in_automation(
        "execution provider of ONNX Runtime: cpu, cuda, ... if installed",
        "NAME",
        default="cpu",
        part=("run", "provider"),
    )
    fail_under_int8_macs: Optional[float] = in_automation(
        "exit status 1 if fewer multiply-accumulates are planned in INT8 (with a DLA as target: on the DLA)",
        "PERCENT",
        part=("fail", "under_int8_macs"),
    )
    fail_over_ms: Optional[float] = in_automation(
        "exit status 1 if the estimated time of the layers on the DLA is longer, or unknown",
        "MS",
        part=("fail", "over_ms"),
    )
    fail_on_gpu_fallback: bool = in_automation(
        "exit status 1 if a layer cannot run on the DLA target (layers that --parts cuts off may)",
        part=("fail", "on_gpu_fallback"),
    )
    parts: Literal["off", "tail", "always", "model"] = in_target(
        "also write the parts for the DLA and those between them into NAME_parts/: tail, if most GPU layers "
        "follow the last large layers (the decode tail of a detector; the default on a DLA), or always; model: only "
        "cut the ONNX file as it is; needs ONNX Runtime"
    )
    begin: List[str] = in_target("the DLA's part begins after these tensors (default: found)", "TENSOR")
    end: List[str] = in_target("and ends with these", "TENSOR")

    def __post_init__(self) -> None:
        """The last of several paths that is no model gives the data."""
        paths = self.models
        if len(paths) > 1 and "calibrate" not in self.typed and not is_model(paths[-1]):
            object.__setattr__(self, "models", paths[:-1])
            object.__setattr__(self, "calibrate", paths[-1])
            object.__setattr__(self, "typed", self.typed | {"calibrate"})
        if self.recover is None:  # --recover alone
            object.__setattr__(self, "recover", 1.0)
        super().__post_init__()
        if self.recover is not False and not (self.calibrate and self.recover >= 0):
            raise UsageError("--recover takes points of 0 or more, measured on data.", "Give inputs after the model.")


def is_model(path: str) -> bool:
    """True for a folder that contains ONNX files, and for a path that is no address (`s3://bucket/x`) and has no suffix
    of data. A file is not opened, and need not exist."""
    if os.path.isdir(path):
        return any(name.endswith(".onnx") for name in os.listdir(path))
    return "://" not in path and not path.lower().endswith(
        (".npz", ".npy", ".jpg", ".jpeg", ".png", ".bmp", ".yaml", ".yml", ".json")
    )


_PLACES = ("board", "on", "as_is")
"""Implied by target, platform and preset; the board also chooses the GPU whose time is estimated."""


def effective(options: TranslateOptions) -> "dict[str, Any]":
    """The translation options as plain values, for the precision config (files and `--jobs` left out)."""
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(TranslateOptions)}
    values = {name: value for name, value in values.items() if name not in _PLACES or (name == "board" and value)}
    return {**values, "calibrate": options.calibrate and shown_place(options.calibrate)}


def options_of(values: Mapping[str, Any], names: Sequence[str]) -> TranslateOptions:
    """The options `names` from the plain values in a precision config or a report; missing ones have their defaults."""
    return TranslateOptions(**{name: values[name] for name in names if values.get(name) is not None})


def preset_values(options: TranslateOptions) -> "Dict[str, Any]":
    """The values that the preset sets among the fields of `options`: none that was typed or is excluded, and nothing
    that needs a DLA or its rewrites where these are off."""
    preset = dict(PRESETS.get(options.preset or "", {}))
    if preset and options.calibrate:
        preset["asymmetric"] = "data"
    left = options.typed | {*options.without}
    if options.board is not None or options.on is not None:
        left |= {"target"}
    if "dla_rewrites" in left and not options.dla_rewrites:
        left |= {"dla_output"}
    if "target" in left and options.target == "gpu":
        left |= {"parts"}
    return {k: v for k, v in preset.items() if k in options.__dataclass_fields__ and k not in left}


def preset_flags(options: TranslateOptions) -> List[str]:
    """The flags of the preset with their effective values."""
    return flags_of({name: getattr(options, name) for name in preset_values(options)})


def words_of(values: "Dict[str, Any]") -> List[str]:
    """The command-line words that set these translation options: those that differ from the defaults, a preset instead
    of the options it sets, and what of the preset is off."""
    preset = values.get("preset")
    standard = {**effective(TranslateOptions(preset=preset)), "target": "gpu"}
    words: List[str] = []
    off = [name for name, value in values.items() if value is False and standard.get(name) is True]
    by_default = "gpu" if values.get("target", "gpu") == "gpu" else "dla"
    values = {
        **values,
        "preset": None if preset == by_default else preset,
        "without": list(dict.fromkeys([*values.get("without", ()), *off])),
    }
    for field in dataclasses.fields(TranslateOptions):
        value = values.get(field.name)
        unset = value is None or value is False or value == []  # a number of 0 is a given value
        if field.name in ("on", "as_is") or unset or value == standard.get(field.name):
            continue
        flag = f"--{field.name}"
        words += [flag] if value is True else [flag, *map(str, value if isinstance(value, list) else [value])]
    return words if preset else [*words, "--as_is"]


def flags_of(values: "Dict[str, Any]") -> List[str]:
    """Options as a user types them: `--infer_bounds`, `--target orin-dla`."""
    return [f"--{name}" if value is True else f"--{name} {value}" for name, value in values.items()]


AS_PLANNED: Dict[str, Any] = {"asymmetric": "widen", "per_channel_activations": "max", "no_auto_names": True}
"""Of a plan before anything is quantized."""
TENSOR_METHODS = ("max", "percentile", "entropy", "mse")
CALIBRATE_METHODS = (*TENSOR_METHODS, "output")


def parse_methods(text: str) -> "tuple[str, dict[str, str]]":
    """Parse `mse,Add:max` into the general method and those for some operators' outputs.

    Raises UsageError on anything else.
    """

    general, *rows = text.split(",")
    own = dict(row.partition(":")[::2] for row in rows)
    for methods, method in ((CALIBRATE_METHODS, general), *((TENSOR_METHODS, one) for one in own.values())):
        if method not in methods:
            known = ", ".join(methods)
            raise UsageError(f"--calibrate_method: '{method}' is not a method.", f"Choose from {known}.")
    return general, own


_VALUE = re.compile(r"(?P<name>[^=]+)=(?P<value>[-+]?[0-9.]+(e[-+]?[0-9]+)?)$", re.IGNORECASE)


def parse_values(items: Sequence[str]) -> "dict[str, float]":
    """The `name=16000` items of `--shapes`: graph input -> its fixed value."""
    found = filter(None, map(_VALUE.match, items))
    return {match["name"]: float(match["value"]) for match in found}


def parse_shapes(items: Sequence[str]) -> "dict[str, list[int]]":
    """`name:1x3x640x640` items to shapes; the name may hold colons. Without `name=16000` items (`parse_values`).

    Raises UsageError on anything else.
    """

    shapes = {}
    for item in items:
        if _VALUE.match(item):
            continue
        name, _, dims = item.rpartition(":")
        try:
            shapes[name] = [int(d) for d in dims.split("x")]
        except ValueError:
            shapes[name] = []
        if not name or not shapes[name] or any(not 0 < d < 2**31 for d in shapes[name]):
            raise UsageError(f"'{item}' is not a shape.", "Write NAME:DIMxDIMx..., for example images:1x3x640x640.")
    return shapes
