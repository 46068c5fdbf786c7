"""Options of `translate`, and the helper with which every command declares its own.

No `from __future__ import annotations` here nor in `commands/`: argparse-dataclass reads the real annotations.
"""

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

_NOT_GIVEN = object()


def option(*flags: str, default: Any = _NOT_GIVEN, help: str, show_default: bool = True, **metadata: Any) -> Any:
    """A dataclass field that is a command-line option.

    `flags` as a user types them (`--name`, `-n`; a bare name is a positional). `group`: the heading in the help (one of
    `parsing.GROUPS`); further metadata goes to argparse-dataclass: `choices`, `nargs`, `metavar`, `type`. Without `default` the option is required.
    """
    if default not in (_NOT_GIVEN, None, False, "", [], ()) and show_default:
        shown = " ".join(str(v) for v in default) if isinstance(default, (list, tuple)) else default
        help = f"{help} (default: {shown})"
    metadata.update(args=list(flags), help=help.replace("%", "%%"))
    if default is _NOT_GIVEN:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def translation_option() -> Any:
    """`-t` of every command that reads a translation."""
    return option(
        "--translation",
        "-t",
        default="./translated",
        metavar="PATH",
        help="the output folder of translate, or a NAME_noqdq.onnx",
    )


def model_option() -> Any:
    """`-i` of the commands that read a translation but not the model itself."""
    return option(
        "--model",
        "-i",
        default="",
        metavar="MODEL",
        help="which translation, by its model, where the folder holds several",
    )


TARGETS = ("gpu", "orin-dla", "xavier-dla")
_SOUND = ("infer_bounds", "infer_concat_scales", "infer_mul_scales", "infer_add_scales")
PRESETS: Dict[str, Dict[str, Any]] = {
    "gpu": {**dict.fromkeys(_SOUND, True), "asymmetric": "widen"},
    "dla": {
        "target": "orin-dla",
        **dict.fromkeys(_SOUND, True),
        "asymmetric": "widen",
        "dla_rewrites": True,
        "cut_tail": True,
    },
}
"""What `--preset` stands for: everything that costs no accuracy by the rules, and a symmetric range for what would be refused
otherwise. Options of the command alone (`cut_tail`) mean
nothing to `translate()`. Not among them: S6, whose backward half is only a
lower bound, the markers of S9, and `--unify_scales max`, which costs resolution."""


@dataclasses.dataclass
class TranslateOptions:
    """How a model is translated. Field names are the names of the flags."""

    trt_calib_version: Optional[str] = option(
        "--trt_calib_version",
        default=None,
        metavar="N",
        help="TensorRT version number in the header of the calibration cache, e.g. 8602 or 100300 "
        "(default: from --platform, else the installed TensorRT, else 8600)",
        group="Target",
    )
    infer_average_pool_scales: bool = option(
        "--infer_average_pool_scales",
        default=False,
        help="scales pass through average pooling (rule S6)",
        group="Inference",
    )
    infer_concat_scales: bool = option(
        "--infer_concat_scales",
        default=False,
        help="infer missing scales of Concat inputs and outputs (rule S7)",
        group="Inference",
    )
    infer_mul_scales: bool = option(
        "--infer_mul_scales",
        default=False,
        help="infer missing scales around Mul and Sigmoid (rules S5, S8)",
        group="Inference",
    )
    infer_bounds: bool = option(
        "--infer_bounds",
        default=False,
        help="scales of outputs that are bounded by definition: Sigmoid, Tanh, Softmax, Erf, HardSigmoid, Clip (rule B1)",
        group="Inference",
    )
    infer_add_scales: bool = option(
        "--infer_add_scales",
        default=False,
        help="infer missing scales around Add, Sub and Sum (rule S11)",
        group="Inference",
    )
    inference: str = option(
        "--inference",
        default="sound",
        choices=("sound", "reference"),
        help="reference: NVIDIA's formulas, also where a scale made by them can only clip (rules S5, S6, S8)",
        group="Inference",
    )
    keep_fp16: List[str] = option(
        "--keep_fp16",
        default=[],
        nargs="+",
        metavar="LAYER",
        help="layers to keep in FP16: names, patterns with *, or @FILE with one a line (or a --layerPrecisions argument)",
        group="Target",
    )
    calibration_type: str = option(
        "--calibration_type",
        default="max",
        choices=("max", "histogram"),
        help="how the weights were calibrated: max checks that weight scales are max|w|/127 (rule W3)",
        group="Quantizers",
    )
    addtl_ops_to_infer_adjacent_scales: List[str] = option(
        "--addtl_ops_to_infer_adjacent_scales",
        default=[],
        nargs="+",
        metavar="OP",
        help="further ONNX operators whose input and output share one scale (rule S3)",
        group="Inference",
    )
    rename_node_outputs: bool = option(
        "--rename_node_outputs",
        default=False,
        help="name every tensor after the node that makes it (rule F5)",
        group="Output",
    )
    add_unary_ew_scales_for_dla: bool = option(
        "--add_unary_ew_scales_for_dla",
        default=False,
        help="scale 1.0 between a Conv and the Add it is fused with on DLA (rule S9)",
        group="Inference",
    )
    target: str = option(
        "--target",
        default="gpu",
        choices=TARGETS,
        help="hardware whose rules the plan is held against",
        group="Essential",
    )
    platform: Optional[str] = option(
        "--platform",
        default=None,
        metavar="NAME",
        help="e.g. jetpack-6.2 or drive-os-6.0.9: sets cache version and DLA rules",
        group="Essential",
    )
    weights: str = option(
        "--weights",
        default="baked",
        choices=("baked", "float"),
        help="baked: weights on the trained int8 grid; float: the exporter's original float weights (rules W1, W2)",
        group="Quantizers",
    )
    on_conflict: str = option(
        "--on_conflict",
        default="max",
        choices=("max", "min", "first", "error"),
        help="which scale a tensor gets that was quantized with several (rule C1)",
        group="Quantizers",
    )
    asymmetric: str = option(
        "--asymmetric",
        default="error",
        choices=("error", "widen", "data"),
        help="zero points other than 0 (int8) or 128 (uint8): refuse, take the smallest symmetric scale that covers the range, or "
        "the best one for the inputs of --calibrate; presets choose widen, with --calibrate data",
        group="Quantizers",
    )
    per_channel_activations: str = option(
        "--per_channel_activations",
        default="error",
        choices=("error", "max"),
        help="activations with one scale per channel: refuse, or take the largest scale",
        group="Quantizers",
    )
    missing_zero_point: str = option(
        "--missing_zero_point",
        default="uint8",
        choices=("uint8", "int8"),
        help="what a QuantizeLinear without zero point means: uint8 as the ONNX standard says, or int8 as some exporters mean",
        group="Quantizers",
    )
    graph_optimizer: str = option(
        "--graph_optimizer",
        default="native",
        choices=("native", "onnxoptimizer"),
        help="what folds BatchNormalization and Pad (rule F4)",
        group="Output",
    )
    no_auto_names: bool = option(
        "--no_auto_names",
        default=False,
        help="leave the tensors that only TensorRT's network has out of the cache (rule S10)",
        group="Target",
    )
    unify_scales: str = option(
        "--unify_scales",
        default="warn",
        choices=("off", "warn", "max"),
        help="on a DLA: ranges that Concat and element-wise layers must share: ignore, report, or raise to the largest",
        group="Target",
    )
    max_bits_lost: float = option(
        "--max_bits_lost",
        default=3.0,
        metavar="BITS",
        help="resolution that --unify_scales max may cost a tensor; layers that would cost more stay FP16",
        group="Target",
    )
    dla_rewrites: Union[bool, str] = option(
        "--dla_rewrites",
        default=False,
        nargs="?",
        type=str,
        choices=("on", "list", "force", "approximate"),
        help="on a DLA target, rewrite operators that the DLA cannot run into ones that it can (force: on the target gpu "
        "too; approximate: Erf and Gelu as well, less than 0.0005 off, rule D22; list: print the rules)",
        group="Target",
    )
    dla_output: str = option(
        "--dla_output",
        default="same",
        choices=("same", "4d"),
        help="4d: a graph output ends at its four-dimensional tensor, without the Reshape behind it (rule D16; needs "
        "--dla_rewrites)",
        group="Target",
    )
    prove: bool = option(
        "--prove",
        default=False,
        help="run every rewrite for the DLA in ONNX Runtime, before and after, on random and extreme inputs, and take back what "
        "is not the same function (needs --dla_rewrites)",
        group="Target",
    )
    preset: Optional[str] = option(
        "--preset",
        default=None,
        choices=tuple(PRESETS),
        help="everything that costs no accuracy by the rules: scale inference, and for dla the rewrites with orin-dla as target; "
        "single flags and --without override it",
        group="Essential",
    )
    without: List[str] = option(
        "--without",
        default=[],
        nargs="+",
        metavar="FLAG",
        help="flags that --preset is not to set, e.g. --preset dla --without dla_rewrites infer_add_scales",
        group="Essential",
    )
    power_mode: Optional[str] = option(
        "--power_mode",
        default=None,
        metavar="MODE",
        help="whose clock the estimated time on a DLA is for: MAXN, 50W, 30W (AGX Orin) or DRIVE (default: DRIVE with a "
        "drive-os platform, else MAXN)",
        group="Target",
    )
    dla_clock: Optional[float] = option(
        "--dla_clock",
        default=None,
        metavar="GHZ",
        help="the DLA's clock instead of a power mode, 1.331 to 1.6",
        group="Target",
    )
    cost_model: Optional[str] = option(
        "--cost_model",
        default=None,
        metavar="FILE",
        help="estimate with the parameters that 'plan --fit' found for a board",
        group="Target",
    )
    calibrate: Optional[str] = option(
        "--calibrate",
        default=None,
        metavar="DATA",
        help="observe tensors that have no scale on these inputs (an .npz, .npy, image, or a folder of them) and give them "
        "one (rule K1); the model may be a float one; needs ONNX Runtime",
        group="Calibration",
    )
    calibrate_method: str = option(
        "--calibrate_method",
        default="mse",
        metavar="METHOD",
        help="range of an observed tensor: max (the largest magnitude), percentile (99.99), entropy (least divergence of 2048 to "
        "4096 bins) or mse (least squared error; percentile where the data hold a few extreme values that mean nothing); other ones "
        "for what an operator makes: mse,Add:max,Concat:percentile",
        group="Calibration",
    )
    calibrate_samples: Optional[int] = option(
        "--calibrate_samples",
        default=None,
        metavar="N",
        help="samples to observe (default: all of --calibrate)",
        group="Calibration",
    )
    recalibrate: List[str] = option(
        "--recalibrate",
        default=[],
        nargs="+",
        metavar="TENSOR",
        help="replace the model's own scale of these tensors, or of the N that fit --calibrate worst (worst:N), by what the "
        "data ask for (rule K2)",
        group="Calibration",
    )
    calibrate_outputs: bool = option(
        "--calibrate_outputs",
        default=False,
        help="graph outputs get scales from the data too (against rule S2)",
        group="Calibration",
    )
    ignore_nonfinite: bool = option(
        "--ignore_nonfinite",
        default=False,
        help="leave samples with NaN or infinities out instead of refusing the data",
        group="Calibration",
    )
    image_mean: List[float] = option(
        "--image_mean",
        default=[0.0],
        nargs="+",
        metavar="M",
        type=float,
        help="images: mean per channel, of [0, 1]",
        group="Calibration",
    )
    image_std: List[float] = option(
        "--image_std",
        default=[1.0],
        nargs="+",
        metavar="S",
        type=float,
        help="images: divisor after the mean",
        group="Calibration",
    )
    layout: str = option(
        "--layout", default="auto", choices=("auto", "nchw", "nhwc"), help="images: of the input", group="Calibration"
    )
    shapes: List[str] = option(
        "--shapes",
        default=[],
        nargs="+",
        metavar="NAME:DIMS",
        help="sizes for dynamic input dimensions, e.g. images:1x3x640x640",
        group="Target",
    )
    keep_model: bool = option(
        "--keep_model",
        default=False,
        help="a float model stays as it is, without rewrites and renaming, and the cache is for that very file: for programs "
        "that build from your ONNX (DeepStream, ultralytics, ONNX Runtime); needs --calibrate",
        group="Output",
    )
    cache_algorithm: str = option(
        "--cache_algorithm",
        default="entropy2",
        choices=("entropy2", "minmax", "entropy", "legacy"),
        help="calibration algorithm in the header of the cache; it has to be that of the program that reads it "
        "(trtexec and every DLA: entropy2; ultralytics on a GPU: minmax)",
        group="Target",
    )
    annotate: bool = option(
        "--annotate",
        default=False,
        help="write precision, device, scales and reasons into the ONNX metadata, for Netron",
        group="Output",
    )
    strict: bool = option("--strict", default=False, help="treat warnings as errors", group="Automation")

    def __post_init__(self) -> None:
        """The flag alone (argparse: None) and 'on' mean True."""
        if self.dla_rewrites in (None, "on"):
            self.dla_rewrites = True
        self.without = [name.lstrip("-").replace("-", "_") for name in self.without]
        for name, value in preset_values(self).items():
            if getattr(self, name) == self.__dataclass_fields__[name].default:
                setattr(self, name, value)

    @property
    def sizes(self) -> Dict[str, List[int]]:
        """Of dynamic inputs. Raises UsageError."""
        return parse_shapes(self.shapes)


@dataclasses.dataclass
class TranslateCommand(TranslateOptions):
    """Remove QuantizeLinear and DequantizeLinear from ONNX models and write what TensorRT's implicit INT8 takes:
    a float ONNX, a calibration cache, a precision config and the --layerPrecisions argument."""

    metric: Optional[str] = option(
        "--metric",
        default=None,
        metavar="WHERE:NAME",
        help="a metric of your own (as verify has it), of the model and of its simulated engine on --calibrate",
        group="Calibration",
    )
    max_metric_drop: Optional[float] = option(
        "--max_metric_drop",
        default=None,
        metavar="X",
        help="exit status 1 where --metric falls by more from the one to the other",
        group="Calibration",
    )
    models: List[str] = option(
        "models",
        default=[],
        nargs="*",
        metavar="MODEL",
        help="ONNX models with Q/DQ nodes, or folders of them",
        group="Essential",
    )
    input_onnx_models: List[str] = option(
        "--input_onnx_models",
        "-i",
        default=[],
        nargs="+",
        metavar="MODEL",
        help="the same, as NVIDIA's script has it",
        group="Essential",
    )
    example: bool = option(
        "--example", default=False, help="translate the model that ships with the package", group="Essential"
    )
    output_dir: str = option(
        "--output_dir",
        "-o",
        default="./translated",
        metavar="DIR",
        help="folder for the files that are written",
        group="Essential",
    )
    verbose: bool = option("--verbose", default=False, help="more words, and tracebacks of errors", group="Output")
    quiet: bool = option("--quiet", default=False, help="print errors only", group="Output")
    json: bool = option(
        "--json", default=False, help="the summary as one JSON object on stdout, nothing else there", group="Output"
    )
    jobs: str = option(
        "--jobs",
        default="1",
        metavar="N",
        help="models translated at the same time; auto: one a processor core",
        group="Automation",
    )
    workers: int = option(
        "--workers",
        default=1,
        metavar="N",
        help="processes that share the work on data; whatever their number, the results are the same to the byte",
        group="Automation",
    )
    scheduler: Optional[str] = option(
        "--scheduler",
        default=None,
        metavar="ADDRESS",
        help="a Dask scheduler (tcp://host:8786) whose workers do the work on data instead; they read it where it lies",
        group="Automation",
    )
    provider: str = option(
        "--provider",
        default="cpu",
        metavar="NAME",
        help="what ONNX Runtime runs models on: cpu, cuda, ... as far as it is installed",
        group="Automation",
    )
    fail_under_int8_macs: Optional[float] = option(
        "--fail_under_int8_macs",
        default=None,
        metavar="PERCENT",
        help="exit status 1 where fewer multiply-accumulates are planned in INT8 (with a DLA as target: on the DLA)",
        group="Automation",
    )
    fail_over_ms: Optional[float] = option(
        "--fail_over_ms",
        default=None,
        metavar="MS",
        help="exit status 1 where the estimated time of the layers on the DLA is longer, or unknown",
        group="Automation",
    )
    fail_on_gpu_fallback: bool = option(
        "--fail_on_gpu_fallback",
        default=False,
        help="exit status 1 where a layer cannot run on the DLA target (one of a tail that --cut_tail cuts off may)",
        group="Automation",
    )
    cut_tail: bool = option(
        "--cut_tail",
        default=False,
        help="on a DLA target, where most layers for the GPU stand behind the last large layers (the decode tail of a detector): "
        "write the DLA's part and the tail beside the whole, into NAME_parts/, as 'split' does; needs ONNX Runtime",
        group="Target",
    )


def effective(options: TranslateOptions) -> "dict[str, Any]":
    """The translation options as plain values, for the precision config (files and `--jobs` left out)."""
    return {f.name: getattr(options, f.name) for f in dataclasses.fields(TranslateOptions)}


def options_of(values: Mapping[str, Any], names: Sequence[str]) -> TranslateOptions:
    """Those of `names` that the plain values in a precision config or a report hold; the others are as nobody set them."""
    return TranslateOptions(**{name: values[name] for name in names if values.get(name) is not None})


def preset_values(options: TranslateOptions) -> "Dict[str, Any]":
    """What the preset sets here: options that `options` has, but for those that were left out."""
    preset = PRESETS.get(options.preset or "", {})
    if preset and options.calibrate:
        preset = {**preset, "asymmetric": "data"}
    return {k: v for k, v in preset.items() if k in options.__dataclass_fields__ and k not in options.without}


def preset_flags(options: TranslateOptions) -> List[str]:
    """The flags that the preset stands for here, with the values that hold."""
    return flags_of({name: getattr(options, name) for name in preset_values(options)})


def words_of(values: "Dict[str, Any]") -> List[str]:
    """The words of a command line that gives a translation these options: those that differ from the defaults, a preset in
    place of what it stands for."""
    standard = effective(TranslateOptions(preset=values.get("preset")))
    words: List[str] = []
    for field in dataclasses.fields(TranslateOptions):
        value = values.get(field.name)
        if (field.name != "preset" and value == standard[field.name]) or value in (None, False, []):
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
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, metadata=metadata)
    return dataclasses.field(default=changes.get("default", field.default), metadata=metadata)


CALIBRATE_METHODS = ("max", "percentile", "entropy", "mse")


def parse_methods(text: str) -> "tuple[str, dict[str, str]]":
    """`mse,Add:max` to the general method and those of what some operators make.

    Raises UsageError on anything else.
    """
    from qdq_translator.core.errors import UsageError

    general, *rows = text.split(",")
    own = dict(row.partition(":")[::2] for row in rows)
    for method in (general, *own.values()):
        if method not in CALIBRATE_METHODS:
            known = ", ".join(CALIBRATE_METHODS)
            raise UsageError(f"--calibrate_method: '{method}' is not a method.", f"Choose from {known}.")
    return general, own


def parse_shapes(items: Sequence[str]) -> "dict[str, list[int]]":
    """`name:1x3x640x640` items to shapes; the name may hold colons.

    Raises UsageError on anything else.
    """
    from qdq_translator.core.errors import UsageError

    shapes = {}
    for item in items:
        name, _, dims = item.rpartition(":")
        try:
            shapes[name] = [int(d) for d in dims.split("x")]
        except ValueError:
            shapes[name] = []
        if not name or not shapes[name] or any(d <= 0 for d in shapes[name]):
            raise UsageError(f"'{item}' is not a shape.", "Write NAME:DIMxDIMx..., for example images:1x3x640x640.")
    return shapes
