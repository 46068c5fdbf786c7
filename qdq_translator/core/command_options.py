"""Options of the commands other than `translate`, one dataclass a command.

No `from __future__ import annotations` here: argparse-dataclass reads the real annotations.
"""

import dataclasses
from typing import Any, ClassVar, List, Literal, Optional

from qdq_translator.core.options import (
    METRICS,
    REQUIRED,
    TARGETS,
    Options,
    TranslateCommand,
    TranslateOptions,
    choices_of,
    data_option,
    in_automation,
    in_calibration,
    in_essential,
    in_output,
    in_target,
    model_option,
    setting,
    translation_option,
)


def same_option(name: str, **changes: Any) -> Any:
    """The option `name` of `translate` for another command; changes: its `default`, or metadata."""
    field = TranslateCommand.__dataclass_fields__[name]
    metadata = {**field.metadata, **{key: value for key, value in changes.items() if key != "default"}}
    if choices_of(field):
        metadata.setdefault("choices", choices_of(field))
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, metadata=metadata)
    return dataclasses.field(default=changes.get("default", field.default), metadata=metadata)


class ExplicitOptions(Options):
    """How the network of `explicit` is written."""

    float_type: Literal["fp16", "fp32"] = in_target("type of everything that is not INT8", part=("types", "float"))
    scale_type: Literal["auto", "fp16", "fp32"] = in_target(
        "type of the scales of an fp16 network: fp16 is opset 20, fp32 is opset 23; auto: fp16 if all scales are "
        "normal float16 numbers",
        part=("types", "scale"),
    )
    io_types: Literal["same", "fp32", "fp16", "int8"] = in_target(
        "types of graph inputs and outputs: TensorRT 11 has no typed I/O formats", part=("types", "io")
    )
    allow_fp16: bool = in_target("on a DLA: allow layers without a scale in FP16", part=("types", "allow_fp16"))


Real = float
"""`float` is the name of an option below."""


class VerifyOptions(Options):
    """Run the Q/DQ model and a simulation of the planned INT8 engine in ONNX Runtime, and compare their outputs.
    TensorRT is not needed."""

    model: str = in_essential("your model, Q/DQ or float", "MODEL", positional=True, short="-i --model")
    data: Optional[str] = in_essential(
        "inputs: an .npz (one array per input, first axis = samples), .npy, image, a folder of them, or a file that "
        "'polygraphy run --save-inputs' wrote (default: random)",
        "DATA",
        positional=True,
        short="--data --inputs",
    )
    translation: str = translation_option()
    example: bool = setting("use the model and the inputs that ship with the package")
    float: Optional[str] = setting("also compare the model before quantization", "MODEL")
    labels: Optional[str] = in_essential(
        "an .npy with one label per sample: the class, or the labels for --metric (default: the array 'labels' of the "
        ".npz)",
        "FILE",
    )
    samples: Optional[int] = in_essential("samples to run (default: all of DATA; 8 random ones)", "N")
    ignore_nonfinite: bool = same_option("ignore_nonfinite", group="")
    seed: int = setting("seed of the random inputs", "N", default=0)
    shapes: List[str] = same_option("shapes", group="")
    image_mean: List[Real] = same_option("image_mean", group="")
    image_std: List[Real] = same_option("image_std", group="")
    resize: str = same_option("resize", group="")
    colors: str = same_option("colors", group="")
    layout: str = same_option("layout", group="")
    per_layer: bool = in_essential("compare every tensor, and list where the error increases")
    audit: bool = setting(
        "compare every scale with the values of its tensor: clipped values, unused bits, a better range"
    )
    allow_suspicious: bool = setting("exit status 0 for the verdict 'suspicious', which is 1 otherwise")
    sensitivity: bool = in_essential("rank layers by the gain at the outputs if they are kept in FP16")
    save_layers: Optional[str] = setting(
        "write the layers that --sensitivity finds, one per line, for translate --keep_fp16 @FILE", "FILE"
    )
    time_limit: Real = setting("time limit of --sensitivity", "SECONDS", default=300.0)
    higher: Literal["fp16", "fp32"] = setting("the type of layers above INT8 on a GPU", part=("simulate", "higher"))
    rounding: Literal["auto", "even", "away"] = setting(
        "ties go to even, or away from zero; auto: away if the translation's target is xavier-dla",
        part=("simulate", "rounding"),
    )
    sigmoid: Literal["auto", "int8", "fp16"] = setting(
        "Sigmoid and Tanh in int8, or in fp16 as a DLA does; auto: fp16 if the translation's target is a DLA",
        part=("simulate", "sigmoid"),
    )
    fuse: Literal["both", "on", "off"] = setting(
        "the tensor between a Conv and the Add, Relu or Clip that it fuses with passes unrounded (on), is rounded by "
        "its scale (off, unary scales of rule S9 too), or both, as a second row if that differs",
        part=("simulate", "fuse"),
    )
    hypotheses: Literal["both", "plan"] = setting(
        "open questions about a DLA (a Sigmoid's scale, a layer between FP16 layers, INT8 on the GPU in the same "
        "engine): simulate both alternatives, in a further row if they differ, or only that of the plan",
        part=("simulate", "hypotheses"),
    )
    layer_arg: Optional[str] = setting(
        "use another --layerPrecisions argument: a file, or the value itself", "FILE", part=("simulate", "layer_arg")
    )
    min_cosine: Optional[Real] = setting(
        "exit status 1 if the cosine of an output, or of its worst slice along an axis, is below X",
        "X",
        part=("fail", "min_cosine"),
    )
    min_top1_agreement: Optional[Real] = setting(
        "exit status 1 if the top-1 classes agree for fewer samples", "PERCENT", part=("fail", "min_top1_agreement")
    )
    metric: Optional[str] = in_essential(
        f"{METRICS}: a function (outputs, labels) -> number, or a class with add(outputs, labels) and result(); "
        "higher is better",
        "NAME",
    )
    max_drop: Optional[Real] = in_essential(
        "exit status 1 if --metric falls by more than X from the explicit model to the simulated engine", "X"
    )
    device_results: Optional[str] = setting(
        "also compare device_results.json of e2e_workflow/on_device, or a file of 'polygraphy run --save-outputs'",
        "FILE",
    )
    explicit_network: Optional[str] = setting(
        "also compare the NAME_explicit.onnx that 'explicit' wrote for the same model; without a translation only that",
        "FILE",
    )
    workers: int = same_option("workers", group="")
    scheduler: Optional[str] = same_option("scheduler", group="")
    provider: str = same_option("provider", group="")
    save: Optional[str] = setting("write the results as JSON, for 'report --verify'", "FILE")
    json: bool = in_essential("print the results as one JSON object on stdout")
    all: bool = in_essential("print every row, and every layer of --per_layer")
    verbose: bool = setting("as --all, and print tracebacks of errors")


class DeployOptions(Options):
    """Is the model good on the board, how fast, and what to copy there: one folder with scales (from the model's Q/DQ
    and from data), the network, the calibration cache, scripts and configurations for the programs that run it, the
    verdict, and a page. Run again, it repeats only the steps whose inputs changed."""

    model: str = in_essential("an ONNX model, float or with Q/DQ", "MODEL", positional=True, short="-i --model")
    data: Optional[str] = data_option("inputs to calibrate and to verify on", short="--data", group="Essential")
    board: Optional[str] = same_option("board")
    on: Optional[str] = same_option(
        "on",
        choices=("dla", "gpu", "both"),
        help="run on the DLA or on the GPU (default: the faster one, by the estimate), or a bundle for each (both)",
    )
    consumers: List[str] = in_essential(
        "programs: trtexec, python (qdq-translator build), cudla, deepstream, ultralytics, onnxruntime, triton",
        "NAME",
        default=["trtexec"],
        short="--for",
    )
    output_dir: str = in_essential("output folder (default: the model's name and _deploy)", "FOLDER", short="-o")
    labels: Optional[str] = in_essential("an .npy with one label per sample, if the data have none", "FILE")
    metric: Optional[str] = same_option("metric", group="Essential")
    max_drop: Optional[float] = same_option("max_drop", group="Essential")
    json: bool = in_essential("print the summary as one JSON object on stdout, and nothing else")
    target: Optional[str] = in_target("as --on, for a board that is named by its platform", choices=TARGETS)
    platform: Optional[str] = same_option("platform")
    dla_core: int = in_target("DLA core", "N", default=0)
    keep_model: bool = in_output("programs that can build from the given float ONNX use it, with a cache for it")
    shapes: List[str] = same_option("shapes")
    samples: Optional[int] = in_calibration("number of samples of DATA to calibrate on (default: all)", "N")
    image_mean: List[float] = same_option("image_mean")
    image_std: List[float] = same_option("image_std")
    resize: str = same_option("resize")
    colors: str = same_option("colors")
    layout: str = same_option("layout")
    recover: float = in_calibration(
        "with data: points that INT8 may cost of --metric, or else of the agreement with the given model (default: 1, "
        "or --max_drop); what costs more is cured by the search of tune",
        "POINTS",
        default=1.0,
    )
    skip: List[str] = in_output("steps to leave out: recover, cut, verify", "STEP")
    allow_suspicious: bool = in_output("exit status 0 for the verdict 'suspicious', which is 1 otherwise")
    verbose: bool = in_output("print tracebacks of errors")


PASSES = 40
"""Passes of the network over the samples, at most, of a search for accuracy."""


class TuneOptions(TranslateOptions):
    """Search for the translation with the least estimated time whose metric stays within a budget, or with the best
    metric within a budget of milliseconds. Every accepted point is measured on all samples in the simulated engine;
    an interrupted search continues from its journal. Options of translate apply to every point, unless the search
    sets them."""

    best_by_default: ClassVar[bool] = True

    model: str = in_essential("the model, Q/DQ or float", "MODEL", positional=True, short="-i --model")
    data: str = in_essential(
        "samples to measure on: an .npz, .npy, a folder of them or of images, or an fsspec address",
        "DATA",
        positional=True,
        short="--data",
    )
    labels: Optional[str] = in_essential("a .npy, or an .npz with the array labels, if the samples have none", "FILE")
    held_out: Optional[str] = in_essential(
        "samples that the search does not use, with labels: the table shows the drop on them", "PATH"
    )
    metric: Optional[str] = in_essential(f"{METRICS} (default: top1, or map for a YOLO data set)", "METRIC")
    max_drop: Optional[float] = in_essential(
        "largest allowed drop of the metric from that of the given model, in the metric's unit", "X"
    )
    budget_ms: Optional[float] = in_essential(
        "budget of estimated milliseconds on the DLA; the search then improves the metric", "MS"
    )
    output_dir: str = same_option("output_dir", default="./tuned", help="output folder (default: ./tuned)")
    samples: Optional[int] = in_essential("samples to measure on (default: all)", "N")
    passes: int = in_automation("passes of the network over the samples, at most", "N", default=PASSES)
    workers: int = same_option("workers")
    scheduler: Optional[str] = same_option("scheduler")
    provider: str = same_option("provider")
    json: bool = in_output("print the results as one JSON object on stdout")
    verbose: bool = in_output("print a line for each evaluation, and tracebacks of errors")


TOOLS = ("onnxruntime", "modelopt", "modelopt-torch", "pytorch-quantization")
"""Quantizers of `report --fix-list`."""


class PlanOptions(Options):
    """What will run where, before anything is written: the layers of a float or Q/DQ model on a DLA or a GPU as if
    every tensor had a scale, the rewrites that translate would do, and the estimated time in INT8 and in FP16. Writes
    only the requested files."""

    model: Optional[str] = in_essential(
        "an ONNX model, with or without Q/DQ nodes", "MODEL", positional=True, short="-i --model"
    )
    board: Optional[str] = same_option("board")
    on: Optional[str] = same_option("on")
    shapes: List[str] = same_option("shapes", group="Essential")
    all: bool = in_essential("show every layer and every note, not only the first few")
    json: bool = in_essential("print the report as JSON on stdout, and nothing else")
    html: Optional[str] = in_essential("write the report as an HTML page", "FILE")
    target: str = same_option("target", default="orin-dla")
    platform: Optional[str] = same_option("platform")
    power_mode: Optional[str] = same_option("power_mode")
    dla_clock: Optional[float] = same_option("dla_clock")
    cost_model: Optional[str] = same_option("cost_model")
    keep_fp16: List[str] = same_option("keep_fp16")
    dla_rewrites: Optional[str] = in_target("off: plan the model as it is", choices=("on", "off", "approximate"))
    fail_over_ms: Optional[float] = same_option("fail_over_ms")
    verbose: bool = in_output("print tracebacks of errors")


class ExplicitCommand(ExplicitOptions, TranslateOptions):
    """Write a network with Q/DQ for TensorRT 11 (GPU, or the DLA of Orin) from a model with Q/DQ, from a float model
    and data, or from a float model and its calibration cache (-c): NAME_explicit.onnx and its report."""

    best_by_default: ClassVar[bool] = True

    model: str = in_essential("ONNX model, with Q/DQ or float", "MODEL", positional=True, short="-i --model")
    calibrate: Optional[str] = same_option(
        "calibrate", positional=True, short="--data --calibrate", metavar="DATA", group="Essential"
    )
    example: bool = in_essential("use the model that ships with the package")
    cache: Optional[str] = in_essential("calibration cache of the float model", "FILE", short="-c")
    consumer: Literal["tensorrt", "onnxruntime"] = in_essential(
        "onnxruntime: float32 with a pair for every entry of the cache, instead of pairs where TensorRT fuses",
        short="--for",
    )
    output_dir: str = in_essential("output folder, or a file that ends with .onnx", "DIR", "./translated", short="-o")
    json: bool = in_output("print the report as JSON on stdout, and nothing else")
    verbose: bool = in_output("print tracebacks of errors, and every layer above INT8")


class ReportOptions(Options):
    """Show the report of a translation, or hold what came back from TensorRT or a board against its plan. FILE is a
    translation, the layer information of an engine, or the archive NAME_board.tar.gz that collect.sh of a bundle wrote
    on the board."""

    file: Optional[str] = in_essential(
        "a translation (folder, NAME_noqdq.onnx or NAME_explicit.onnx), layer information in JSON, or "
        "NAME_board.tar.gz (default: the translation of -t)",
        "FILE",
        positional=True,
        nargs="?",
        type=str,
    )
    translation: str = translation_option()
    model: str = model_option()
    all: bool = in_essential("show every layer and every note, not only the first few")
    json: bool = in_essential("print the report as JSON on stdout, and nothing else")
    html: Optional[str] = in_essential("write the report as an HTML page", "FILE")
    against: Optional[str] = in_essential(
        "compare with an earlier translation (terminal, --json or --html); exit status 1 if this one is worse", "PATH"
    )
    verify: Optional[str] = setting("show the results of 'qdq-translator verify --save' on the page of --html", "FILE")
    tuning: Optional[str] = setting("show NAME_tune.json of 'qdq-translator tune' on the page of --html", "FILE")
    layer_info: List[str] = in_essential(
        "layer information of the engine (trtexec --exportLayerInfo, or NAME_board.json), compared with the "
        "plan; two files, A and B, are compared with each other (with --against, A is its engine)",
        "FILE",
    )
    profile: List[str] = in_essential(
        "measured times, one file for each --layer_info (trtexec --exportProfile)", "FILE"
    )
    log: List[str] = in_essential("build logs, one file for each --layer_info", "FILE")
    strict: bool = setting("exit status 1 if the engine of --layer_info disagrees with the plan, or has unfused Q/DQ")
    fail_on_gpu_fallback: bool = setting(
        "exit status 1 if a layer of a DLA engine runs on the GPU", part=("fail", "on_gpu_fallback")
    )
    fit: Optional[str] = setting("write the cost model of a board, fitted to --profile; --cost_model reads it", "FILE")
    overlay: Optional[str] = setting("write node data for Model Explorer; FILE_ms.json contains the times", "FILE.json")
    fix_list: Optional[str] = in_essential(
        "print operators to quantize and to exclude, as arguments for the quantizer of the model", choices=TOOLS
    )
    verbose: bool = setting("print tracebacks of errors")


class BuildOptions(Options):
    """Build the TensorRT engine (or, for a DLA, the loadable) of a translation on this machine, with TensorRT 8.6 to
    10.x, or of a network with Q/DQ, with 10.x, 11 or TensorRT-RTX, and write it with TensorRT's layer information.
    With --print: the trtexec command, ready to paste into a shell, or with --script a script that checks the files,
    corrects the header of the calibration cache for another TensorRT version, and runs it."""

    file: Optional[str] = in_essential(
        "a translation, or a network with Q/DQ, which is built as it is (default: the translation of -t)",
        "FILE",
        positional=True,
        nargs="?",
        type=str,
    )
    translation: str = translation_option()
    model: str = model_option()
    print: Optional[str] = in_essential(
        "print the equivalent command instead",
        nargs="?",
        type=str,
        choices=("trtexec", "polygraphy"),
    )
    script: Optional[str] = in_essential("write the trtexec command as a shell script", "FILE")
    precision: str = in_essential(
        "int8: as translated; for comparison the same network in fp16 or fp32, in the precisions that TensorRT finds "
        "fastest (best), or your Q/DQ model (explicit; name it with -i)",
        default="int8",
        choices=("int8", "fp16", "fp32", "best", "explicit"),
    )
    engine: Literal["tensorrt", "rtx"] = setting(
        "builder: TensorRT, or TensorRT-RTX (networks with Q/DQ for a GPU; needs no GPU to build)"
    )
    target: Optional[str] = setting("hardware to build for (default: that of the translation)", choices=TARGETS)
    platform: Optional[str] = setting(
        "e.g. jetpack-6.2: the platform that builds the engine (default: that of the translation)", "NAME"
    )
    dla_core: int = setting("DLA core: 0 or 1 (default: 0)", "N", default=0)
    allow_gpu_fallback: bool = in_essential("run layers that the DLA does not support on the GPU")
    dla_standalone: bool = in_essential("build a DLA loadable for cuDLA instead of an engine")
    precision_constraints: Optional[str] = setting(
        "if TensorRT has no kernel for a layer's precision: fail, or use another precision (default: obey on a GPU, "
        "prefer on a DLA)",
        choices=("obey", "prefer"),
        part=("builder", "precision_constraints"),
    )
    input_io_formats: str = setting(
        "types and layouts of the inputs in trtexec's grammar, e.g. int8:dla_hwc4; one for all inputs or one for each",
        "TYPE:FORMAT[,...]",
        part=("builder", "input_io_formats"),
    )
    output_io_formats: str = setting(
        "the same for the outputs, e.g. fp16:chw16", "TYPE:FORMAT[,...]", part=("builder", "output_io_formats")
    )
    min_shapes: List[str] = setting("smallest sizes of dynamic inputs", "NAME:DIMS", part=("builder", "min_shapes"))
    opt_shapes: List[str] = setting(
        "sizes to optimize for, e.g. images:1x3x640x640 (without the other two: static sizes, as a DLA requires)",
        "NAME:DIMS",
        part=("builder", "opt_shapes"),
    )
    max_shapes: List[str] = setting("largest sizes of dynamic inputs", "NAME:DIMS", part=("builder", "max_shapes"))
    mem_pools: List[str] = setting(
        "memory limits in MiB: workspace, dlaSRAM, dlaLocalDRAM, dlaGlobalDRAM; e.g. workspace:2048",
        "POOL:MIB",
        part=("builder", "mem_pools"),
    )
    timing_cache: str = setting(
        "timing cache: read if it exists, written after the build", "FILE", part=("builder", "timing_cache")
    )
    builder_optimization_level: Optional[int] = setting(
        "TensorRT's optimization level", "0-5", part=("builder", "builder_optimization_level")
    )
    parser_flags: List[str] = setting(
        "flags of TensorRT's ONNX parser, e.g. report_capability_dla (10.16 and later)",
        "FLAG",
        part=("builder", "parser_flags"),
    )
    save_engine: str = in_essential("file for the engine or loadable (default: next to the model)", "FILE")
    layer_info: str = setting("layer information (default: next to the model)", "FILE")

    sparsity: Optional[str] = setting(
        "kernels for 2:4 sparse weights: for sparse weights only, or for all weights (to measure speed)",
        choices=("enable", "force"),
        part=("builder", "sparsity"),
    )
    profile: Optional[str] = setting("with --print: write the time of every layer to FILE, for report --fit", "FILE")
    skip_inference: bool = setting("build only, do not time the engine", part=("builder", "skip_inference"))
    log: str = setting("write TensorRT's messages, for report --log", "FILE")
    verbose: bool = setting("print TensorRT's whole log, all names that did not match, and tracebacks of errors")

    def __post_init__(self) -> None:
        """`--print` alone (argparse: None) prints the command for trtexec."""
        if "print" in self.typed and self.print is None:
            object.__setattr__(self, "print", "trtexec")


class ExplainOptions(Options):
    """Explain a log (the output of trtexec, DeepStream, ONNX Runtime or cuDLA), a message of a log, the scale of a
    tensor (with -t), a rule (S8, W-C1), a limit of the DLA (P3), a platform (jetpack-6.2; platforms lists them) or a
    board. Without a name, list all names."""

    names: List[str] = setting(
        "log files (-: standard input), messages or a part of a log in quotes, rules, limits, platforms",
        "NAME",
        positional=True,
    )
    translation: Optional[str] = setting(
        "compare the layers of a log with the plan of this translation", "PATH", short="-t"
    )
    model: str = model_option()
    all: bool = setting("list every layer of a message, harmless messages, and a line for each name")
    json: bool = setting("print the findings in a log as one JSON object on stdout")
    verbose: bool = setting("print tracebacks of errors")


class DoctorOptions(Options):
    """Report board and JetPack, TensorRT, trtexec, DLA cores and DLA software, container and Python packages of this
    machine, with a remedy for each problem. Nothing is changed."""

    json: bool = setting("print the findings as a JSON list on stdout, and nothing else")


class CompletionOptions(Options):
    """Print shell code that enables completion of commands, options and their values. For bash and zsh: eval
    "$(qdq-translator completion bash)"; for fish: qdq-translator completion fish | source."""

    shell: Literal["bash", "zsh", "fish"] = setting("the shell to write for", default=REQUIRED, positional=True)
