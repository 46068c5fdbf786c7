"""How an option is declared, and the options of `translate`, without the imports of the command, so that `--help`
responds at once.

No `from __future__ import annotations` here: argparse-dataclass reads the real annotations.
"""

import dataclasses
import functools
import os
from types import MappingProxyType
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union, get_args, get_origin

from qdq_translator.core.disk import shown_place
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.rows import Row
from qdq_translator.core.parsing import GROUPS, not_a_choice, sentence

REQUIRED, _BY_KIND = object(), object()
"""Defaults of an option: it must be given; it has the default of its annotation."""


def setting(
    help: str, metavar: str = "", default: Any = _BY_KIND, short: str = "", positional: bool = False, **metadata: Any
) -> Any:
    """A field that is the command-line option `--NAME` (the field's name); `parsing.make_parser` reads it.

    default: by default that of the annotation: None, [], False, "", or the first of its choices. short: a second flag,
    such as `-n`. `group`: the heading in the help (one of `parsing.GROUPS`). Further metadata is for
    argparse-dataclass: `choices`, `type`, `nargs` (by default, a list has one or more values, a positional one any
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
    """Options of a command, or some of them."""

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


def translation_option() -> Any:
    """`-t` of every command that reads a translation."""
    return setting("the output folder of translate, or a NAME_noqdq.onnx", "PATH", "./translated", short="-t")


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
    """The same words in every version of Python."""
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


def check_metric_drop(drop: Optional[float], metric: Optional[str]) -> None:
    """Raises UsageError for a largest drop of no metric."""
    if drop is not None and not metric:
        raise UsageError("--max_metric_drop needs a metric.", "Give one with --metric file.py:name.")


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


TARGETS = ("gpu", "orin-dla", "xavier-dla")
MODES = ("implicit", "explicit", "fp16", "best")
"""The network to build: the translation; the Q/DQ model as it was; the stripped model without INT8; the stripped model
with every precision that TensorRT finds fastest. `build` also has 'fp32', the stripped model as it is."""
_SOUND = ("infer_bounds", "infer_concat_scales", "infer_mul_scales", "infer_add_scales", "keep_norm_fp16")
PRESETS: Dict[str, Dict[str, Any]] = {
    "gpu": {**dict.fromkeys(_SOUND, True), "asymmetric": "widen"},
    "dla": {
        "target": "orin-dla",
        **dict.fromkeys(_SOUND, True),
        "asymmetric": "widen",
        "dla_rewrites": True,
        "dla_output": "4d",
        "cut_tail": True,
    },
}
"""The options that `--preset` sets: everything that costs no accuracy by the rules, and a symmetric range for
quantizers that would be refused otherwise. Options of the command alone (`cut_tail`) have no effect in `translate()`.
Not included: S6, whose backward half is only a lower bound, the markers of S9, and `--unify_scales max`, which costs
resolution."""


class TranslateOptions(Options):
    """How a model is translated. Field names are the names of the flags. Raises UsageError (a ValueError) for a wrong
    value.
    """

    trt_calib_version: Optional[str] = in_target(
        "TensorRT version number in the header of the calibration cache, e.g. 8602 or 100300 (default: from "
        "--platform, else the installed TensorRT, else 8600)",
        "N",
    )
    infer_average_pool_scales: bool = in_inference("infer missing scales of average pooling (rule S6)")
    infer_concat_scales: bool = in_inference("infer missing scales of Concat inputs and outputs (rule S7)")
    infer_mul_scales: bool = in_inference("infer missing scales around Mul and Sigmoid (rules S5, S8)")
    infer_bounds: bool = in_inference(
        "infer missing scales of outputs that are bounded by definition: Sigmoid, Tanh, Softmax, Erf, HardSigmoid, "
        "Clip (rule B1)"
    )
    infer_add_scales: bool = in_inference("infer missing scales around Add, Sub and Sum (rule S11)")
    inference: Literal["sound", "reference"] = in_inference(
        "reference: NVIDIA's formulas, including those that can only clip (rules S5, S6, S8)"
    )
    keep_fp16: List[str] = in_target(
        "layers to keep in FP16: names, patterns with *, or @FILE with one per line (or a --layerPrecisions argument)",
        "LAYER",
    )
    keep_norm_fp16: bool = in_target(
        "keep layers without weights that read or make the input of a LayerNormalization in FP16 (rule P1)"
    )
    calibration_type: Literal["max", "histogram"] = in_quantizers(
        "how the weights were calibrated: max checks that weight scales are max|w|/127 (rule W3)"
    )
    addtl_ops_to_infer_adjacent_scales: List[str] = in_inference(
        "further ONNX operators whose input and output share one scale (rule S3)", "OP"
    )
    rename_node_outputs: bool = in_output("name every tensor after the node that produces it (rule F5)")
    add_unary_ew_scales_for_dla: bool = in_inference(
        "a scale of 1.0 between a Conv and the Add that it is fused with on a DLA (rule S9)"
    )
    target: Literal["gpu", "orin-dla", "xavier-dla"] = in_essential("hardware whose rules the plan follows")
    platform: Optional[str] = in_essential(
        "e.g. jetpack-6.2 or drive-os-6.0.9: sets cache version and DLA rules", "NAME"
    )
    weights: Literal["baked", "float"] = in_quantizers(
        "baked: weights on the trained int8 grid; float: the exporter's original float weights (rules W1, W2)"
    )
    on_conflict: Literal["max", "min", "first", "error"] = in_quantizers(
        "scale of a tensor that is quantized with different scales (rule C1)"
    )
    asymmetric: Literal["error", "widen", "data", "keep"] = in_quantizers(
        "zero points other than 0 (int8) or 128 (uint8): refuse the model, use the smallest symmetric scale that "
        "covers the range (widen, the choice of presets) or the best one for --calibrate (data, that of presets with "
        "--calibrate); keep: as uint8, for 'explicit --target orin-dla' only"
    )
    per_channel_activations: Literal["error", "max"] = in_quantizers(
        "activations with one scale per channel: refuse the model, or use the largest scale"
    )
    scales: Optional[str] = in_quantizers(
        "for a float model: a file with one scale per tensor name (AIMET .encodings, ONNX Runtime's calibration "
        "table, PPQ's JSON, a TensorRT calibration cache; rule Q14)",
        "FILE",
    )
    missing_zero_point: Literal["uint8", "int8"] = in_quantizers(
        "type of a QuantizeLinear without zero point: uint8 as in the ONNX standard, or int8 as some exporters intend"
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
        choices=("on", "list", "force", "approximate"),
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
    prove: bool = in_target(
        "run the network before and after every rewrite for the DLA in ONNX Runtime, on random and extreme inputs, "
        "and revert rewrites that change the function (needs --dla_rewrites)"
    )
    preset: Optional[str] = in_essential(
        "all options that cost no accuracy by the rules: scale inference; dla also sets the rewrites and --target "
        "orin-dla. Single flags and --without override it",
        choices=tuple(PRESETS),
    )
    without: List[str] = in_essential(
        "flags that --preset must not set, e.g. --preset dla --without dla_rewrites infer_add_scales", "FLAG"
    )
    power_mode: Optional[str] = in_target(
        "power mode for the estimated time on a DLA: MAXN, 50W, 30W (AGX Orin) or DRIVE (default: DRIVE with a "
        "drive-os platform, else MAXN)",
        "MODE",
    )
    dla_clock: Optional[float] = in_target("DLA clock instead of a power mode, 1.331 to 1.6", "GHZ")
    cost_model: Optional[str] = in_target("cost model of a board, written by 'plan --fit'", "FILE")
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
    )
    calibrate_samples: Optional[int] = in_calibration("number of samples to use (default: all of --calibrate)", "N")
    recalibrate: List[str] = in_calibration(
        "replace the model's scales of these tensors, or of the N tensors whose scales fit the data worst (worst:N), "
        "with scales from --calibrate (rule K2)",
        "TENSOR",
    )
    equalize: bool = in_calibration(
        "with --calibrate on a float model: rescale channels along Convs so that one INT8 scale fits all of them, if "
        "this improves the outputs on held-out samples"
    )
    calibrate_outputs: bool = in_calibration("compute scales of graph outputs too (overrides rule S2)")
    ignore_nonfinite: bool = in_calibration("skip samples with NaN or infinities instead of refusing the data")
    image_mean: List[float] = in_calibration("images: mean per channel, for pixels in [0, 1]", "M", default=[0.0])
    image_std: List[float] = in_calibration("images: divisor after the mean", "S", default=[1.0])
    layout: Literal["auto", "nchw", "nhwc"] = in_calibration("images: layout of the input")
    shapes: List[str] = in_target("sizes for dynamic input dimensions, e.g. images:1x3x640x640", "NAME:DIMS")
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
        """The flag alone (argparse: None) and 'on' mean True."""
        change = functools.partial(object.__setattr__, self)
        if self.dla_rewrites in (None, "on"):
            change("dla_rewrites", True)
        check_values(self)
        change("without", [name.lstrip("-").replace("-", "_") for name in self.without])
        for name, value in preset_values(self).items():
            if getattr(self, name) == self.__dataclass_fields__[name].default:
                change(name, value)
        check_count("--calibrate_samples", self.calibrate_samples)
        check_positive("--image_std", self.image_std)
        for name in ("power_mode", "dla_clock", "cost_model"):
            if self.target == "gpu":
                check_needs_dla(f"--{name}", getattr(self, name))

    @property
    def sizes(self) -> Dict[str, List[int]]:
        """Of dynamic inputs. Raises UsageError."""
        return parse_shapes(self.shapes)


class TranslateCommand(TranslateOptions):
    """Remove QuantizeLinear and DequantizeLinear from ONNX models and write the inputs of TensorRT's implicit
    INT8: a float ONNX, a calibration cache, a precision config and the --layerPrecisions argument."""

    metric: Optional[str] = in_calibration(
        "your own metric (see verify), measured for the model and its simulated engine on the data of --calibrate",
        "WHERE:NAME",
    )
    max_metric_drop: Optional[float] = in_calibration(
        "exit status 1 if --metric falls by more than X from the model to the simulated engine", "X"
    )
    models: List[str] = in_essential("ONNX models with Q/DQ nodes, or folders of them", "MODEL", positional=True)
    input_onnx_models: List[str] = in_essential("the same as MODEL (the flag of NVIDIA's script)", "MODEL", short="-i")
    example: bool = in_essential("translate the model that ships with the package")
    output_dir: str = in_essential("output folder", "DIR", default="./translated", short="-o")
    verbose: bool = in_output("more output, and tracebacks of errors")
    quiet: bool = in_output("print errors only")
    json: bool = in_output("print the summary as one JSON object on stdout, and nothing else")
    jobs: str = in_automation("number of models translated in parallel; auto: one per processor core", "N", default="1")
    workers: int = in_automation(
        "processes that share the samples; the results do not depend on their number", "N", default=1
    )
    scheduler: Optional[str] = in_automation(
        "Dask scheduler (tcp://host:8786) whose workers process the samples instead; they read the data themselves",
        "ADDRESS",
    )
    provider: str = in_automation(
        "execution provider of ONNX Runtime: cpu, cuda, ... if installed", "NAME", default="cpu"
    )
    fail_under_int8_macs: Optional[float] = in_automation(
        "exit status 1 if fewer multiply-accumulates are planned in INT8 (with a DLA as target: on the DLA)", "PERCENT"
    )
    fail_over_ms: Optional[float] = in_automation(
        "exit status 1 if the estimated time of the layers on the DLA is longer, or unknown", "MS"
    )
    fail_on_gpu_fallback: bool = in_automation(
        "exit status 1 if a layer cannot run on the DLA target (layers that --cut_tail cuts off may)"
    )
    cut_tail: bool = in_target(
        "on a DLA target, if most GPU layers follow the last large layers (the decode tail of a detector): also write "
        "the DLA part and the tail into NAME_parts/, as 'split' does; needs ONNX Runtime"
    )


def effective(options: TranslateOptions) -> "dict[str, Any]":
    """The translation options as plain values, for the precision config (files and `--jobs` left out)."""
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(TranslateOptions)}
    return {**values, "calibrate": options.calibrate and shown_place(options.calibrate)}


def options_of(values: Mapping[str, Any], names: Sequence[str]) -> TranslateOptions:
    """The options `names` from the plain values in a precision config or a report; missing ones have their defaults."""
    return TranslateOptions(**{name: values[name] for name in names if values.get(name) is not None})


def preset_values(options: TranslateOptions) -> "Dict[str, Any]":
    """The values that the preset sets among the fields of `options`, without excluded ones."""
    preset = PRESETS.get(options.preset or "", {})
    if preset and options.calibrate:
        preset = {**preset, "asymmetric": "data"}
    return {k: v for k, v in preset.items() if k in options.__dataclass_fields__ and k not in options.without}


def preset_flags(options: TranslateOptions) -> List[str]:
    """The flags of the preset with their effective values."""
    return flags_of({name: getattr(options, name) for name in preset_values(options)})


def words_of(values: "Dict[str, Any]") -> List[str]:
    """The command-line words that set these translation options: those that differ from the defaults, a preset instead
    of the options it sets."""
    standard = effective(TranslateOptions(preset=values.get("preset")))
    words: List[str] = []
    for field in dataclasses.fields(TranslateOptions):
        value = values.get(field.name)
        if (field.name != "preset" and value == standard[field.name]) or value in (None, []) or value is False:
            continue
        flag = f"--{field.name}"
        words += [flag] if value is True else [flag, *map(str, value if isinstance(value, list) else [value])]
    return words


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


def parse_shapes(items: Sequence[str]) -> "dict[str, list[int]]":
    """`name:1x3x640x640` items to shapes; the name may hold colons.

    Raises UsageError on anything else.
    """

    shapes = {}
    for item in items:
        name, _, dims = item.rpartition(":")
        try:
            shapes[name] = [int(d) for d in dims.split("x")]
        except ValueError:
            shapes[name] = []
        if not name or not shapes[name] or any(not 0 < d < 2**31 for d in shapes[name]):
            raise UsageError(f"'{item}' is not a shape.", "Write NAME:DIMxDIMx..., for example images:1x3x640x640.")
    return shapes
