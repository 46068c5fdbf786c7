"""Options of `translate`, and the helper with which every command declares its own.

No `from __future__ import annotations` here nor in `commands/`: argparse-dataclass reads the real annotations.
"""

import dataclasses
import functools
import os
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union, get_args, get_origin

from qdq_translator.core.disk import shown_place
from qdq_translator.core.errors import UsageError

REQUIRED = object()
"""As the default of an option: it must be given."""


def setting(help: str, default: Any = False, short: str = "", positional: bool = False, **metadata: Any) -> Any:
    """A dataclass field that is the command-line option `--NAME` (the field's name); `parsing.make_parser` reads it.

    short: a second flag, such as `-n`. `group`: the heading in the help (one of `parsing.GROUPS`). Further metadata is
    for argparse-dataclass: `choices`, `nargs`, `metavar`, `type`. `show_default=False` omits the default from the help.
    """
    if default not in (REQUIRED, None, False, "", [], ()) and metadata.pop("show_default", True):
        shown = " ".join(str(v) for v in default) if isinstance(default, (list, tuple)) else default
        help = f"{help} (default: {shown})"
    metadata.update(short=short, positional=positional, help=help.replace("%", "%%"))
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def translation_option() -> Any:
    """`-t` of every command that reads a translation."""
    return setting("the output folder of translate, or a NAME_noqdq.onnx", "./translated", short="-t", metavar="PATH")


def model_option() -> Any:
    """`-i` of the commands that read a translation but not the model itself."""
    return setting(
        "the model whose translation to use, if the folder contains several", "", short="-i", metavar="MODEL"
    )


def choices_of(field: "dataclasses.Field[Any]") -> Sequence[str]:
    """The values that an option may have, () if any."""
    return get_args(field.type) if get_origin(field.type) is Literal else field.metadata.get("choices", ())


def check_values(options: Any) -> None:
    """Raises UsageError for a field of `options` (a dataclass of settings) whose value has another type or is no choice."""
    from qdq_translator.core.parsing import not_a_choice, sentence

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
_SOUND = ("infer_bounds", "infer_concat_scales", "infer_mul_scales", "infer_add_scales")
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
"""What `--preset` stands for: everything that costs no accuracy by the rules, and a symmetric range for what would be refused
otherwise. Options of the command alone (`cut_tail`) mean
nothing to `translate()`. Not among them: S6, whose backward half is only a
lower bound, the markers of S9, and `--unify_scales max`, which costs resolution."""


@dataclasses.dataclass(frozen=True)
class TranslateOptions:
    """How a model is translated. Field names are the names of the flags. Raises UsageError (a ValueError) for a wrong value."""

    trt_calib_version: Optional[str] = setting(
        "TensorRT version number in the header of the calibration cache, e.g. 8602 or 100300 (default: from "
        "--platform, else the installed TensorRT, else 8600)",
        None,
        group="Target",
        metavar="N",
    )
    infer_average_pool_scales: bool = setting("scales pass through average pooling (rule S6)", group="Inference")
    infer_concat_scales: bool = setting(
        "infer missing scales of Concat inputs and outputs (rule S7)", group="Inference"
    )
    infer_mul_scales: bool = setting("infer missing scales around Mul and Sigmoid (rules S5, S8)", group="Inference")
    infer_bounds: bool = setting(
        "scales of outputs that are bounded by definition: Sigmoid, Tanh, Softmax, Erf, HardSigmoid, Clip (rule B1)",
        group="Inference",
    )
    infer_add_scales: bool = setting("infer missing scales around Add, Sub and Sum (rule S11)", group="Inference")
    inference: Literal["sound", "reference"] = setting(
        "reference: NVIDIA's formulas, including those that can only clip (rules S5, S6, S8)",
        "sound",
        group="Inference",
    )
    keep_fp16: List[str] = setting(
        "layers to keep in FP16: names, patterns with *, or @FILE with one a line (or a --layerPrecisions argument)",
        [],
        group="Target",
        nargs="+",
        metavar="LAYER",
    )
    calibration_type: Literal["max", "histogram"] = setting(
        "how the weights were calibrated: max checks that weight scales are max|w|/127 (rule W3)",
        "max",
        group="Quantizers",
    )
    addtl_ops_to_infer_adjacent_scales: List[str] = setting(
        "further ONNX operators whose input and output share one scale (rule S3)",
        [],
        group="Inference",
        nargs="+",
        metavar="OP",
    )
    rename_node_outputs: bool = setting("name every tensor after the node that makes it (rule F5)", group="Output")
    add_unary_ew_scales_for_dla: bool = setting(
        "scale 1.0 between a Conv and the Add it is fused with on DLA (rule S9)", group="Inference"
    )
    target: Literal["gpu", "orin-dla", "xavier-dla"] = setting(
        "hardware whose rules the plan follows", "gpu", group="Essential"
    )
    platform: Optional[str] = setting(
        "e.g. jetpack-6.2 or drive-os-6.0.9: sets cache version and DLA rules", None, group="Essential", metavar="NAME"
    )
    weights: Literal["baked", "float"] = setting(
        "baked: weights on the trained int8 grid; float: the exporter's original float weights (rules W1, W2)",
        "baked",
        group="Quantizers",
    )
    on_conflict: Literal["max", "min", "first", "error"] = setting(
        "which scale a tensor gets that was quantized with several (rule C1)",
        "max",
        group="Quantizers",
    )
    asymmetric: Literal["error", "widen", "data", "keep"] = setting(
        "zero points other than 0 (int8) or 128 (uint8): refuse, take the smallest symmetric scale that "
        "covers the range, or the best one for the inputs of --calibrate; presets choose widen, with "
        "--calibrate data; keep: 'explicit --target orin-dla' alone, as uint8",
        "error",
        group="Quantizers",
    )
    per_channel_activations: Literal["error", "max"] = setting(
        "activations with one scale per channel: refuse, or take the largest scale",
        "error",
        group="Quantizers",
    )
    scales: Optional[str] = setting(
        "for a float model: a file with the scales of a quantizer (AIMET .encodings, ONNX Runtime's calibration table, "
        "PPQ's JSON, a TensorRT calibration cache), by tensor name (rule Q14)",
        None,
        group="Quantizers",
        metavar="FILE",
    )
    missing_zero_point: Literal["uint8", "int8"] = setting(
        "the type of a QuantizeLinear without zero point: uint8 as in the ONNX standard, or int8 as in some "
        "exporters mean",
        "uint8",
        group="Quantizers",
    )
    graph_optimizer: Literal["native", "onnxoptimizer"] = setting(
        "the implementation that folds BatchNormalization and Pad (rule F4)", "native", group="Output"
    )
    no_auto_names: bool = setting(
        "leave the tensors that only TensorRT's network has out of the cache (rule S10)", group="Target"
    )
    unify_scales: Literal["off", "warn", "max", "data"] = setting(
        "on a DLA: ranges that Concat and element-wise layers must share: ignore, report, raise to the largest, or replace by the "
        "one of least error on the inputs of --calibrate",
        "warn",
        group="Target",
    )
    max_bits_lost: float = setting(
        "resolution that --unify_scales max may cost a tensor; layers that would cost more stay FP16",
        3.0,
        group="Target",
        metavar="BITS",
    )
    dla_rewrites: Union[bool, str] = setting(
        "on a DLA target, rewrite operators that the DLA cannot run into ones that it can (force: on the "
        "target gpu too; approximate: Erf and Gelu as well, less than 0.0005 off, rule D22; list: print the "
        "rules)",
        group="Target",
        nargs="?",
        type=str,
        choices=("on", "list", "force", "approximate"),
    )
    dla_output: Literal["same", "4d"] = setting(
        "4d: a graph output ends at its four-dimensional tensor, without the Reshape behind it (rule D16; "
        "needs --dla_rewrites)",
        "same",
        group="Target",
    )
    assume: Optional[str] = setting(
        "an open fact to plan with: pow (the DLA of TensorRT 10.3 to 10.x has Pow with one constant operand, as its operator page "
        "has it and NvInfer.h has not; limit O3). Check it on a board",
        None,
        group="Target",
        choices=("pow",),
    )
    prove: bool = setting(
        "run every rewrite for the DLA in ONNX Runtime, before and after, on random and extreme inputs, and "
        "revert those that change the function (needs --dla_rewrites)",
        group="Target",
    )
    preset: Optional[str] = setting(
        "everything that costs no accuracy by the rules: scale inference, and for dla the rewrites with "
        "orin-dla as target; single flags and --without override it",
        None,
        group="Essential",
        choices=tuple(PRESETS),
    )
    without: List[str] = setting(
        "flags that --preset is not to set, e.g. --preset dla --without dla_rewrites infer_add_scales",
        [],
        group="Essential",
        nargs="+",
        metavar="FLAG",
    )
    power_mode: Optional[str] = setting(
        "whose clock the estimated time on a DLA is for: MAXN, 50W, 30W (AGX Orin) or DRIVE (default: DRIVE "
        "with a drive-os platform, else MAXN)",
        None,
        group="Target",
        metavar="MODE",
    )
    dla_clock: Optional[float] = setting(
        "the DLA's clock instead of a power mode, 1.331 to 1.6", None, group="Target", metavar="GHZ"
    )
    cost_model: Optional[str] = setting(
        "estimate with the parameters that 'plan --fit' found for a board", None, group="Target", metavar="FILE"
    )
    calibrate: Optional[str] = setting(
        "observe tensors that have no scale on these inputs (an .npz, .npy, image, or a folder of them) and "
        "give them one (rule K1); the model may be a float one; needs ONNX Runtime",
        None,
        group="Calibration",
        metavar="DATA",
    )
    calibrate_method: str = setting(
        "range of an observed tensor: max (the largest magnitude), percentile (99.99), entropy (least "
        "divergence of 2048 to 4096 bins), mse (least squared error; percentile if the data contain a few extreme values "
        "without meaning) or output (mse, then least error of the network's outputs); another method for the outputs of "
        "one operator: mse,Add:max,Concat:percentile",
        "mse",
        group="Calibration",
        metavar="METHOD",
    )
    calibrate_samples: Optional[int] = setting(
        "samples to observe (default: all of --calibrate)", None, group="Calibration", metavar="N"
    )
    recalibrate: List[str] = setting(
        "replace the model's own scale of these tensors, or of the N that fit --calibrate worst (worst:N), by "
        "ranges from the data (rule K2)",
        [],
        group="Calibration",
        nargs="+",
        metavar="TENSOR",
    )
    equalize: bool = setting(
        "with --calibrate on a float model: rescale channels along Convs so that one INT8 scale fits them, if data that the "
        "factors were not taken from show a gain",
        group="Calibration",
    )
    calibrate_outputs: bool = setting(
        "graph outputs get scales from the data too (overrides rule S2)", group="Calibration"
    )
    ignore_nonfinite: bool = setting(
        "leave samples with NaN or infinities out instead of refusing the data", group="Calibration"
    )
    image_mean: List[float] = setting(
        "images: mean per channel, of [0, 1]", [0.0], group="Calibration", nargs="+", metavar="M", type=float
    )
    image_std: List[float] = setting(
        "images: divisor after the mean", [1.0], group="Calibration", nargs="+", metavar="S", type=float
    )
    layout: Literal["auto", "nchw", "nhwc"] = setting("images: of the input", "auto", group="Calibration")
    shapes: List[str] = setting(
        "sizes for dynamic input dimensions, e.g. images:1x3x640x640",
        [],
        group="Target",
        nargs="+",
        metavar="NAME:DIMS",
    )
    keep_model: bool = setting(
        "a float model stays as it is, without rewrites and renaming, and the cache is for that very file: "
        "for programs that build from your ONNX (DeepStream, ultralytics, ONNX Runtime); needs --calibrate",
        group="Output",
    )
    cache_algorithm: Literal["entropy2", "minmax", "entropy", "legacy"] = setting(
        "calibration algorithm in the header of the cache; it has to be that of the program that reads it "
        "(trtexec and every DLA: entropy2; ultralytics on a GPU: minmax)",
        "entropy2",
        group="Target",
    )
    annotate: bool = setting(
        "write precision, device, scales and reasons into the ONNX metadata, for Netron", group="Output"
    )
    strict: bool = setting("treat warnings as errors", group="Automation")

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


@dataclasses.dataclass(frozen=True)
class ExplicitOptions:
    """How the network of `explicit` is written."""

    float_type: Literal["fp16", "fp32"] = setting("type of everything that is not INT8", "fp16", group="Target")
    scale_type: Literal["auto", "fp16", "fp32"] = setting(
        "type of the scales of an fp16 network: fp16 is opset 20, fp32 is opset 23; auto: fp16 if all scales are normal "
        "float16 numbers",
        "auto",
        group="Target",
    )
    io_types: Literal["same", "fp32", "fp16", "int8"] = setting(
        "types of graph inputs and outputs: TensorRT 11 has no typed I/O formats",
        "same",
        group="Target",
    )
    allow_fp16: bool = setting("on a DLA: layers without a scale may be FP16", group="Target")


@dataclasses.dataclass(frozen=True)
class TranslateCommand(TranslateOptions):
    """Remove QuantizeLinear and DequantizeLinear from ONNX models and write the inputs of TensorRT's implicit
    INT8: a float ONNX, a calibration cache, a precision config and the --layerPrecisions argument."""

    metric: Optional[str] = setting(
        "a metric of your own (as verify has it), of the model and of its simulated engine on --calibrate",
        None,
        group="Calibration",
        metavar="WHERE:NAME",
    )
    max_metric_drop: Optional[float] = setting(
        "exit status 1 if --metric falls by more than this from the model to the simulated engine",
        None,
        group="Calibration",
        metavar="X",
    )
    models: List[str] = setting(
        "ONNX models with Q/DQ nodes, or folders of them",
        [],
        group="Essential",
        nargs="*",
        metavar="MODEL",
        positional=True,
    )
    input_onnx_models: List[str] = setting(
        "the same, as NVIDIA's script has it", [], group="Essential", nargs="+", metavar="MODEL", short="-i"
    )
    example: bool = setting("translate the model that ships with the package", group="Essential")
    output_dir: str = setting(
        "folder for the files that are written", "./translated", group="Essential", metavar="DIR", short="-o"
    )
    verbose: bool = setting("more words, and tracebacks of errors", group="Output")
    quiet: bool = setting("print errors only", group="Output")
    json: bool = setting("the summary as one JSON object on stdout, nothing else there", group="Output")
    jobs: str = setting(
        "models translated at the same time; auto: one a processor core", "1", group="Automation", metavar="N"
    )
    workers: int = setting(
        "processes that share the work on data; the results do not depend on their number",
        1,
        group="Automation",
        metavar="N",
    )
    scheduler: Optional[str] = setting(
        "a Dask scheduler (tcp://host:8786) whose workers do the work on data instead; they read the data themselves",
        None,
        group="Automation",
        metavar="ADDRESS",
    )
    provider: str = setting(
        "execution provider of ONNX Runtime: cpu, cuda, ... if installed",
        "cpu",
        group="Automation",
        metavar="NAME",
    )
    fail_under_int8_macs: Optional[float] = setting(
        "exit status 1 if fewer multiply-accumulates are planned in INT8 (with a DLA as target: on the DLA)",
        None,
        group="Automation",
        metavar="PERCENT",
    )
    fail_over_ms: Optional[float] = setting(
        "exit status 1 if the estimated time of the layers on the DLA is longer, or unknown",
        None,
        group="Automation",
        metavar="MS",
    )
    fail_on_gpu_fallback: bool = setting(
        "exit status 1 if a layer cannot run on the DLA target (one of a tail that --cut_tail cuts off may)",
        group="Automation",
    )
    cut_tail: bool = setting(
        "on a DLA target, if most GPU layers are behind the last large layers (the decode tail "
        "of a detector): also write the DLA part and the tail into NAME_parts/, as 'split' "
        "does; needs ONNX Runtime",
        group="Target",
    )


def effective(options: TranslateOptions) -> "dict[str, Any]":
    """The translation options as plain values, for the precision config (files and `--jobs` left out)."""
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(TranslateOptions)}
    return {**values, "calibrate": options.calibrate and shown_place(options.calibrate)}


def options_of(values: Mapping[str, Any], names: Sequence[str]) -> TranslateOptions:
    """Those of `names` that the plain values in a precision config or a report hold; the others have their defaults."""
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


def same_option(name: str, **changes: Any) -> Any:
    """The option `name` of `translate` for another command; changes: its `default`, or metadata."""
    field = TranslateCommand.__dataclass_fields__[name]
    metadata = {**field.metadata, **{key: value for key, value in changes.items() if key != "default"}}
    if choices_of(field):
        metadata.setdefault("choices", choices_of(field))
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, metadata=metadata)
    return dataclasses.field(default=changes.get("default", field.default), metadata=metadata)


Real = float
"""`float` is the name of an option below."""


@dataclasses.dataclass
class VerifyOptions:
    """Run the Q/DQ model and a simulation of the INT8 engine that TensorRT is told to build, side by side in ONNX Runtime,
    and compare. Nothing of TensorRT is needed."""

    model: str = setting("the explicit Q/DQ model", "", metavar="MODEL", short="-i")
    example: bool = setting("the model that ships with the package, on the real inputs that ship with it")
    translation: str = translation_option()
    float: Optional[str] = setting("the model before quantization, as a third stage", None, metavar="MODEL")
    inputs: Optional[str] = setting(
        "an .npz (one array per input, first axis = samples), .npy, image, a folder of them, or a file that "
        "'polygraphy run --save-inputs' wrote (default: random)",
        None,
        metavar="PATH",
    )
    labels: Optional[str] = setting(
        "an .npy, one label a sample along the first axis: right classes, or the labels that --metric reads (default: "
        "the array 'labels' of the .npz)",
        None,
        metavar="FILE",
    )
    samples: Optional[int] = setting("samples to run (default: all of --inputs; 8 random ones)", None, metavar="N")
    ignore_nonfinite: bool = same_option("ignore_nonfinite", group="")
    seed: int = setting("of random inputs", 0, metavar="N")
    shapes: List[str] = same_option("shapes", group="")
    image_mean: List[Real] = same_option("image_mean", group="")
    image_std: List[Real] = same_option("image_std", group="")
    layout: str = same_option("layout", group="")
    per_layer: bool = setting("compare every tensor and name the first jump")
    audit: bool = setting(
        "compare every scale with the inputs: clipped values, unused bits, the range that would lose less"
    )
    strict: bool = setting("exit status 1 for the verdict 'suspicious' too")
    sensitivity: bool = setting("rank layers by the gain at the outputs if they are kept in FP16")
    save_layers: Optional[str] = setting(
        "write the layers that --sensitivity names, one a line, for translate --keep_fp16 @FILE", None, metavar="FILE"
    )
    time_limit: Real = setting("of --sensitivity", 300.0, metavar="SECONDS", type=Real)
    fp16: bool = setting("layers above INT8 compute through float16, not in float32")
    rounding: str = setting(
        "ties go to even, or away from zero; auto: away if the translation's target is xavier-dla",
        "auto",
        choices=("auto", "even", "away"),
    )
    sigmoid: str = setting(
        "Sigmoid and Tanh in int8, or in fp16 as a DLA does; auto: fp16 if the translation's target is a DLA",
        "auto",
        choices=("auto", "int8", "fp16"),
    )
    fuse: str = setting(
        "the tensor between a Conv and the Add, Relu or Clip that it fuses with passes unrounded (on), is "
        "rounded by its scale (off, unary scales of rule S9 too), or both, as a second row if that differs",
        "both",
        choices=("both", "on", "off"),
    )
    hypotheses: str = setting(
        "open questions about a DLA (a Sigmoid's scale, a layer between FP16 layers, INT8 on the GPU in the same engine): "
        "both ends, as a further row if they differ, or the plan's end alone",
        "both",
        choices=("both", "plan"),
    )
    layer_arg: Optional[str] = setting(
        "another --layerPrecisions argument than the translation's: a file, or the value itself", None, metavar="FILE"
    )
    min_cosine: Optional[Real] = setting(
        "exit status 1 if the cosine of an output, or of its worst slice along an axis, is below",
        None,
        metavar="X",
        type=Real,
    )
    min_top1_agreement: Optional[Real] = setting(
        "exit status 1 below this agreement", None, metavar="PERCENT", type=Real
    )
    metric: Optional[str] = setting(
        "a metric of your own, file.py:name or package.module:name: a function (outputs, labels) -> number, "
        "or a class with add(outputs, labels) and result(); higher is better",
        None,
        metavar="WHERE:NAME",
    )
    max_metric_drop: Optional[Real] = setting(
        "exit status 1 if --metric falls by more from the explicit model to the simulated engine",
        None,
        metavar="X",
        type=Real,
    )
    device_results: Optional[str] = setting(
        "device_results.json of e2e_workflow/on_device, or a file of 'polygraphy run --save-outputs', to compare",
        None,
        metavar="FILE",
    )
    explicit_network: Optional[str] = setting(
        "NAME_explicit.onnx, as 'explicit' writes it from the same model, to compare it too", None, metavar="FILE"
    )
    workers: int = same_option("workers", group="")
    scheduler: Optional[str] = same_option("scheduler", group="")
    provider: str = same_option("provider", group="")
    save: Optional[str] = setting("write the results as JSON, for report --html", None, metavar="FILE")
    json: bool = setting("the results as one JSON object on stdout")
    verbose: bool = setting("every layer of --per_layer; tracebacks of errors")

    @property
    def sizes(self) -> Dict[str, List[int]]:
        """Of dynamic inputs. Raises UsageError."""
        return parse_shapes(self.shapes)


@dataclasses.dataclass
class DeployOptions:
    """Make one folder with everything that a board needs for a model: scales (from the model's Q/DQ and from data), the network, the
    calibration cache, scripts and configurations for the programs that run it, a comparison in ONNX Runtime, and a page. Done again,
    only what changed is made again."""

    model: str = setting("an ONNX model, float or with Q/DQ", REQUIRED, positional=True, metavar="MODEL")
    board: str = setting(
        "the platform, e.g. jetpack-6.2 ('qdq-translator platforms' lists them)", REQUIRED, metavar="NAME"
    )
    consumers: List[str] = setting(
        "programs: trtexec, python (qdq-translator build), cudla, deepstream, ultralytics, onnxruntime, triton",
        ["trtexec"],
        short="--for",
        nargs="+",
        metavar="NAME",
    )
    data: Optional[str] = setting(
        "inputs to calibrate and to verify on: an .npz, .npy, image, or a folder of them", None, metavar="PATH"
    )
    output_dir: str = setting("the folder (default: MODEL's name and _deploy)", "", short="-o", metavar="FOLDER")
    target: Optional[str] = setting(
        "gpu: not the DLA that the board has", None, choices=("gpu", "orin-dla", "xavier-dla")
    )
    dla_core: int = setting("which DLA", 0, metavar="N", type=int)
    keep_model: bool = setting("programs that can build from the float ONNX as it is given do so, with a cache for it")
    shapes: List[str] = same_option("shapes", group="")
    samples: Optional[int] = setting("samples of --data to calibrate on (default: all)", None, metavar="N", type=int)
    image_mean: List[float] = same_option("image_mean", group="")
    image_std: List[float] = same_option("image_std", group="")
    layout: str = same_option("layout", group="")
    skip: List[str] = setting("steps to leave out: cut, verify", [], nargs="+", metavar="STEP")
    json: bool = setting("the summary as one JSON object on stdout, nothing else there")
    verbose: bool = setting("tracebacks of errors")


@dataclasses.dataclass(frozen=True)
class TuneOptions(TranslateOptions):
    """Search for the translation that costs the least estimated time while a metric stays within a budget, or that keeps the
    metric best within a budget of milliseconds. Every accepted point is measured on all samples in the simulated engine;
    an interrupted search continues from its journal. The given options of translate apply to every point, as far
    as they are no part of the search."""

    model: str = setting("the model, Q/DQ or float", "", group="Essential", metavar="MODEL", short="-i")
    data: str = setting(
        "samples to measure on: an .npz, .npy, or a folder of them or of images; an fsspec address works too",
        "",
        group="Essential",
        metavar="PATH",
    )
    labels: Optional[str] = setting(
        "a .npy, or an .npz with the array labels, if the samples have none",
        None,
        group="Essential",
        metavar="FILE",
    )
    metric: str = setting(
        "top1, map, or one of your own: file.py:name or package.module:name (docs/accuracy.md)",
        "top1",
        group="Essential",
        metavar="METRIC",
    )
    max_drop: Optional[float] = setting(
        "how much the metric may fall from that of the model as given, in its own unit",
        None,
        group="Essential",
        metavar="X",
    )
    budget_ms: Optional[float] = setting(
        "budget of estimated milliseconds on the DLA; the search then improves the metric",
        None,
        group="Essential",
        metavar="MS",
    )
    output_dir: str = same_option("output_dir", default="./tuned", help="folder for the files (default: ./tuned)")
    samples: Optional[int] = setting("samples to measure on (default: all)", None, group="Essential", metavar="N")
    evaluations: int = setting("points to measure, at most", 60, group="Automation", metavar="N")
    seed: int = setting("of the local search", 0, group="Automation", metavar="N")
    workers: int = same_option("workers")
    scheduler: Optional[str] = same_option("scheduler")
    provider: str = same_option("provider")
    json: bool = setting("the results as one JSON object on stdout", group="Output")
    verbose: bool = setting("a line for each evaluation; tracebacks of errors", group="Output")


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
