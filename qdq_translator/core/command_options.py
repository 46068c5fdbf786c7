"""Options of the commands other than `translate`, one dataclass a command.

No `from __future__ import annotations` here: argparse-dataclass reads the real annotations.
"""

import dataclasses
from typing import Any, List, Literal, Optional

from qdq_translator.core.options import (
    MODES,
    REQUIRED,
    TARGETS,
    Options,
    TranslateCommand,
    TranslateOptions,
    choices_of,
    in_automation,
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

    float_type: Literal["fp16", "fp32"] = in_target("type of everything that is not INT8")
    scale_type: Literal["auto", "fp16", "fp32"] = in_target(
        "type of the scales of an fp16 network: fp16 is opset 20, fp32 is opset 23; auto: fp16 if all scales are "
        "normal float16 numbers"
    )
    io_types: Literal["same", "fp32", "fp16", "int8"] = in_target(
        "types of graph inputs and outputs: TensorRT 11 has no typed I/O formats"
    )
    allow_fp16: bool = in_target("on a DLA: allow layers without a scale in FP16")


Real = float
"""`float` is the name of an option below."""


class VerifyOptions(Options):
    """Run the Q/DQ model and a simulation of the planned INT8 engine in ONNX Runtime, and compare their outputs.
    TensorRT is not needed."""

    model: str = setting("the explicit Q/DQ model", "MODEL", short="-i")
    example: bool = setting("use the model and the inputs that ship with the package")
    translation: str = translation_option()
    float: Optional[str] = setting("also compare the model before quantization", "MODEL")
    inputs: Optional[str] = setting(
        "an .npz (one array per input, first axis = samples), .npy, image, a folder of them, or a file that "
        "'polygraphy run --save-inputs' wrote (default: random)",
        "PATH",
    )
    labels: Optional[str] = setting(
        "an .npy with one label per sample: the class, or the labels for --metric (default: the array 'labels' of the "
        ".npz)",
        "FILE",
    )
    samples: Optional[int] = setting("samples to run (default: all of --inputs; 8 random ones)", "N")
    ignore_nonfinite: bool = same_option("ignore_nonfinite", group="")
    seed: int = setting("seed of the random inputs", "N", default=0)
    shapes: List[str] = same_option("shapes", group="")
    image_mean: List[Real] = same_option("image_mean", group="")
    image_std: List[Real] = same_option("image_std", group="")
    layout: str = same_option("layout", group="")
    per_layer: bool = setting("compare every tensor, and list where the error increases")
    audit: bool = setting(
        "compare every scale with the values of its tensor: clipped values, unused bits, a better range"
    )
    strict: bool = setting("exit status 1 for the verdict 'suspicious' too")
    sensitivity: bool = setting("rank layers by the gain at the outputs if they are kept in FP16")
    save_layers: Optional[str] = setting(
        "write the layers that --sensitivity finds, one per line, for translate --keep_fp16 @FILE", "FILE"
    )
    time_limit: Real = setting("time limit of --sensitivity", "SECONDS", default=300.0)
    fp16: bool = setting("compute layers above INT8 in float16 instead of float32")
    rounding: Literal["auto", "even", "away"] = setting(
        "ties go to even, or away from zero; auto: away if the translation's target is xavier-dla"
    )
    sigmoid: Literal["auto", "int8", "fp16"] = setting(
        "Sigmoid and Tanh in int8, or in fp16 as a DLA does; auto: fp16 if the translation's target is a DLA"
    )
    fuse: Literal["both", "on", "off"] = setting(
        "the tensor between a Conv and the Add, Relu or Clip that it fuses with passes unrounded (on), is rounded by "
        "its scale (off, unary scales of rule S9 too), or both, as a second row if that differs"
    )
    hypotheses: Literal["both", "plan"] = setting(
        "open questions about a DLA (a Sigmoid's scale, a layer between FP16 layers, INT8 on the GPU in the same "
        "engine): simulate both alternatives, in a further row if they differ, or only that of the plan"
    )
    layer_arg: Optional[str] = setting("use another --layerPrecisions argument: a file, or the value itself", "FILE")
    min_cosine: Optional[Real] = setting(
        "exit status 1 if the cosine of an output, or of its worst slice along an axis, is below X", "X"
    )
    min_top1_agreement: Optional[Real] = setting(
        "exit status 1 if the top-1 classes agree for fewer samples", "PERCENT"
    )
    metric: Optional[str] = setting(
        "your own metric, file.py:name or package.module:name: a function (outputs, labels) -> number, or a class "
        "with add(outputs, labels) and result(); higher is better",
        "WHERE:NAME",
    )
    max_metric_drop: Optional[Real] = setting(
        "exit status 1 if --metric falls by more than X from the explicit model to the simulated engine", "X"
    )
    device_results: Optional[str] = setting(
        "also compare device_results.json of e2e_workflow/on_device, or a file of 'polygraphy run --save-outputs'",
        "FILE",
    )
    explicit_network: Optional[str] = setting(
        "also compare the NAME_explicit.onnx that 'explicit' wrote for the same model", "FILE"
    )
    workers: int = same_option("workers", group="")
    scheduler: Optional[str] = same_option("scheduler", group="")
    provider: str = same_option("provider", group="")
    save: Optional[str] = setting("write the results as JSON, for 'report --verify'", "FILE")
    json: bool = setting("print the results as one JSON object on stdout")
    all: bool = setting("print every row, and every layer of --per_layer")
    verbose: bool = setting("as --all, and print tracebacks of errors")


class DeployOptions(Options):
    """Make one folder with everything that a board needs for a model: scales (from the model's Q/DQ and from data),
    the network, the calibration cache, scripts and configurations for the programs that run it, a comparison in ONNX
    Runtime, and a page. Run again, it repeats only the steps whose inputs changed."""

    model: str = setting("an ONNX model, float or with Q/DQ", "MODEL", default=REQUIRED, positional=True)
    board: str = setting(
        "the platform, e.g. jetpack-6.2 ('qdq-translator platforms' lists them)", "NAME", default=REQUIRED
    )
    consumers: List[str] = setting(
        "programs: trtexec, python (qdq-translator build), cudla, deepstream, ultralytics, onnxruntime, triton",
        "NAME",
        default=["trtexec"],
        short="--for",
    )
    data: Optional[str] = setting(
        "inputs to calibrate and to verify on: an .npz, .npy, image, or a folder of them", "PATH"
    )
    output_dir: str = setting("output folder (default: the model's name and _deploy)", "FOLDER", short="-o")
    target: Optional[str] = setting("gpu: do not use the DLA of the board", choices=("gpu", "orin-dla", "xavier-dla"))
    dla_core: int = setting("DLA core", "N", default=0)
    keep_model: bool = setting("programs that can build from the given float ONNX use it, with a cache for it")
    shapes: List[str] = same_option("shapes", group="")
    samples: Optional[int] = setting("number of samples of --data to calibrate on (default: all)", "N")
    image_mean: List[float] = same_option("image_mean", group="")
    image_std: List[float] = same_option("image_std", group="")
    layout: str = same_option("layout", group="")
    skip: List[str] = setting("steps to leave out: cut, verify", "STEP")
    json: bool = setting("print the summary as one JSON object on stdout, and nothing else")
    verbose: bool = setting("print tracebacks of errors")


class TuneOptions(TranslateOptions):
    """Search for the translation with the least estimated time whose metric stays within a budget, or with the best
    metric within a budget of milliseconds. Every accepted point is measured on all samples in the simulated engine;
    an interrupted search continues from its journal. Options of translate apply to every point, unless the search
    sets them."""

    model: str = in_essential("the model, Q/DQ or float", "MODEL", short="-i")
    data: str = in_essential(
        "samples to measure on: an .npz, .npy, a folder of them or of images, or an fsspec address", "PATH"
    )
    labels: Optional[str] = in_essential("a .npy, or an .npz with the array labels, if the samples have none", "FILE")
    held_out: Optional[str] = in_essential(
        "samples that the search does not use, with labels: the table shows the drop on them", "PATH"
    )
    metric: str = in_essential(
        "top1, map, or your own: file.py:name or package.module:name (docs/accuracy.md)", "METRIC", default="top1"
    )
    max_drop: Optional[float] = in_essential(
        "largest allowed drop of the metric from that of the given model, in the metric's unit", "X"
    )
    budget_ms: Optional[float] = in_essential(
        "budget of estimated milliseconds on the DLA; the search then improves the metric", "MS"
    )
    output_dir: str = same_option("output_dir", default="./tuned", help="output folder (default: ./tuned)")
    samples: Optional[int] = in_essential("samples to measure on (default: all)", "N")
    evaluations: int = in_automation("largest number of points to measure", "N", default=60)
    seed: int = in_automation("seed of the local search", "N", default=0)
    workers: int = same_option("workers")
    scheduler: Optional[str] = same_option("scheduler")
    provider: str = same_option("provider")
    json: bool = in_output("print the results as one JSON object on stdout")
    verbose: bool = in_output("print a line for each evaluation, and tracebacks of errors")


TOOLS = ("onnxruntime", "modelopt", "modelopt-torch", "pytorch-quantization")
"""Quantizers of `report --fix-list`."""


class PlanOptions(Options):
    """Plan a float or Q/DQ model for a DLA as if every tensor had a scale: the layers that the DLA supports, the
    rewrites that would keep more of them there, and the estimated time in INT8 and in FP16. Writes only the requested
    files."""

    input_onnx_model: Optional[str] = in_essential("an ONNX model, with or without Q/DQ nodes", "MODEL", short="-i")
    target: str = same_option(
        "target", default="orin-dla", choices=("orin-dla", "xavier-dla"), help="DLA to plan for (default: orin-dla)"
    )
    platform: Optional[str] = same_option("platform")
    shapes: List[str] = same_option("shapes")
    power_mode: Optional[str] = same_option("power_mode")
    dla_clock: Optional[float] = same_option("dla_clock")
    cost_model: Optional[str] = same_option("cost_model")
    keep_fp16: List[str] = same_option("keep_fp16")
    no_rewrites: bool = in_target("plan the model as it is, without --dla_rewrites")
    all: bool = in_output("show every layer and every note, not only the first few")
    json: bool = in_output("print the report as JSON on stdout, and nothing else")
    html: Optional[str] = in_output("write the report as an HTML page", "FILE")
    fit: Optional[str] = in_automation(
        "fit the cost model to a board: trtexec's --exportProfile of the translation given with -t, or cuDLA's "
        "layerwise CSV",
        "PROFILE",
    )
    translation: str = in_automation("the profiled translation, for --fit", "PATH", default="./translated", short="-t")
    save: Optional[str] = in_automation("file for the cost model of --fit (--cost_model reads it)", "FILE")
    fail_over_ms: Optional[float] = same_option("fail_over_ms")
    verbose: bool = setting("print tracebacks of errors")


class ExplicitCommand(ExplicitOptions, TranslateOptions):
    """Write an explicit network for TensorRT 11 (GPU, or the DLA of Orin) from a model with Q/DQ, from a float model
    and data (--calibrate), or from a float model and its calibration cache (-c): NAME_explicit.onnx and its report."""

    input_model: str = in_essential("ONNX model, with Q/DQ or float", "MODEL", short="-i")
    example: bool = in_essential("use the model that ships with the package")
    cache: Optional[str] = in_essential("calibration cache of the float model", "FILE", short="-c")
    output_dir: str = in_essential("output folder", "DIR", default="./translated", short="-o")
    json: bool = in_output("print the report as JSON on stdout, and nothing else")
    verbose: bool = in_output("print tracebacks of errors, and every layer above INT8")


class ReportOptions(Options):
    """Show the report of a translation: the share of INT8, the few tensors that keep other layers out of INT8 with a
    fix for each, the limits of the DLA that layers exceed, and the scales of graph inputs and outputs."""

    translation: str = translation_option()
    model: str = model_option()
    all: bool = setting("show every layer and every note, not only the first few")
    json: bool = setting("print the report as JSON on stdout, and nothing else")
    html: Optional[str] = setting("write the report as an HTML page", "FILE")
    against: Optional[str] = setting(
        "compare with an earlier translation (terminal, --json or --html); exit status 1 if this one is worse", "PATH"
    )
    verify: Optional[str] = setting("show the results of 'qdq-translator verify --save' on the page of --html", "FILE")
    tuning: Optional[str] = setting("show NAME_tune.json of 'qdq-translator tune' on the page of --html", "FILE")
    layer_info: List[str] = setting(
        "layer information of the engine (trtexec --exportLayerInfo, or NAME_board.json of ingest), compared with the "
        "plan; two files, A and B, are compared with each other (with --against, A is its engine)",
        "FILE",
    )
    profile: List[str] = setting("measured times, one file for each --layer_info (trtexec --exportProfile)", "FILE")
    log: List[str] = setting("build logs, one file for each --layer_info", "FILE")
    strict: bool = setting("exit status 1 if the engine of --layer_info disagrees with the plan, or has unfused Q/DQ")
    overlay: Optional[str] = setting("write node data for Model Explorer; FILE_ms.json contains the times", "FILE.json")
    fix_list: Optional[str] = setting(
        "print operators to quantize and to exclude, as arguments for the quantizer of the model", choices=TOOLS
    )
    verbose: bool = setting("print tracebacks of errors")


class EngineOptions(Options):
    """Options that `build` also has: the same engine, built there or by a command. Names and grammar follow trtexec."""

    translation: str = translation_option()
    model: str = model_option()
    target: Optional[str] = setting("hardware to build for (default: that of the translation)", choices=TARGETS)
    platform: Optional[str] = setting(
        "e.g. jetpack-6.2: the platform that builds the engine (default: that of the translation)", "NAME"
    )
    dla_core: int = setting("DLA core: 0 or 1 (default: 0)", "N", default=0)
    allow_gpu_fallback: bool = setting("run layers that the DLA does not support on the GPU")
    dla_standalone: bool = setting("build a DLA loadable for cuDLA instead of an engine")
    precision_constraints: Optional[str] = setting(
        "if TensorRT has no kernel for a layer's precision: fail, or use another precision (default: obey on a GPU, "
        "prefer on a DLA)",
        choices=("obey", "prefer"),
    )
    input_io_formats: str = setting(
        "types and layouts of the inputs in trtexec's grammar, e.g. int8:dla_hwc4; one for all inputs or one for each",
        "TYPE:FORMAT[,...]",
    )
    output_io_formats: str = setting("the same for the outputs, e.g. fp16:chw16", "TYPE:FORMAT[,...]")
    min_shapes: List[str] = setting("smallest sizes of dynamic inputs", "NAME:DIMS")
    opt_shapes: List[str] = setting(
        "sizes to optimize for, e.g. images:1x3x640x640 (without the other two: static sizes, as a DLA requires)",
        "NAME:DIMS",
    )
    max_shapes: List[str] = setting("largest sizes of dynamic inputs", "NAME:DIMS")
    mem_pools: List[str] = setting(
        "memory limits in MiB: workspace, dlaSRAM, dlaLocalDRAM, dlaGlobalDRAM; e.g. workspace:2048", "POOL:MIB"
    )
    timing_cache: str = setting("timing cache: read if it exists, written after the build", "FILE")
    builder_optimization_level: Optional[int] = setting("TensorRT's optimization level", "0-5")
    parser_flags: List[str] = setting(
        "flags of TensorRT's ONNX parser, e.g. report_capability_dla (10.16 and later)", "FLAG"
    )
    save_engine: str = setting("file for the engine or loadable (default: next to the model)", "FILE")
    layer_info: str = setting("layer information for check-engine (default: next to the model)", "FILE")


class TrtexecOptions(EngineOptions):
    """Print the trtexec command that builds a translation, ready to paste into a shell, or write a script that checks
    the files, corrects the header of the calibration cache for another TensorRT version, and runs it."""

    mode: str = setting(
        "the network to build: the translation; for comparison the Q/DQ model (explicit; specify it with -i), the "
        "stripped model in FP16 (fp16), or in the precisions that TensorRT finds fastest (best)",
        default="implicit",
        choices=MODES,
    )
    sparsity: Optional[str] = setting(
        "kernels for 2:4 sparse weights: for sparse weights only, or for all weights (to measure speed)",
        choices=("enable", "force"),
    )
    profile: Optional[str] = setting("write the time of every layer to FILE, for 'plan --fit'", "FILE")
    skip_inference: bool = setting("build only, do not time the engine")
    trt_version: Optional[str] = setting(
        "the TensorRT version to write for, e.g. 8.6 or 10.3 (default: from --platform, else the cache's header)",
        "VERSION",
    )
    script: Optional[str] = setting("write a shell script instead of printing", "FILE")
    tool: Literal["trtexec", "polygraphy"] = setting("program whose command is printed")
    verbose: bool = setting("print trtexec's verbose log, and tracebacks of errors")


class BuildOptions(EngineOptions):
    """Build the TensorRT engine (or, for a DLA, the loadable) of a translation on this machine, with TensorRT 8.6 to
    10.x, or of an explicit network, with 10.x, 11 or TensorRT-RTX. Writes it together with TensorRT's layer
    information."""

    precision: Literal["int8", "fp16", "fp32"] = setting(
        "int8 as translated; fp16 or fp32 build the same network without INT8, for comparison"
    )
    explicit: bool = setting(
        "build the model with Q/DQ in -t as it is (always set for a NAME_explicit.onnx, which is strongly typed)"
    )
    engine: Literal["tensorrt", "rtx"] = setting(
        "builder: TensorRT, or TensorRT-RTX (explicit networks for a GPU; needs no GPU to build)"
    )
    log: str = setting("write TensorRT's messages, for check-engine --log", "FILE")
    verbose: bool = setting("print TensorRT's whole log, and all names that did not match")


class CheckEngineOptions(Options):
    """Compare the layer information of an engine (trtexec --profilingVerbosity=detailed --exportLayerInfo=FILE, or
    build --layer_info FILE) with the plan of a translation."""

    layer_info: str = setting("the layer information in JSON", "FILE", default=REQUIRED)
    translation: str = translation_option()
    model: str = model_option()
    log: Optional[str] = setting(
        "also read the build log: DLA and GPU layers, causes of fallbacks, missing scales, explanations of known "
        "messages",
        "FILE",
    )
    all: bool = setting("list every layer, not only those that differ from the plan")
    json: bool = setting("print the result as one JSON object on stdout, and nothing else")
    strict: bool = setting("exit status 1 if the engine disobeys the plan")
    fail_on_gpu_fallback: bool = setting("exit status 1 if a layer of a DLA engine runs on the GPU")
    verbose: bool = setting("print tracebacks of errors")


class ExplainOptions(Options):
    """Explain a log (the output of trtexec, DeepStream, ONNX Runtime or cuDLA), a message of a log, a rule (S8,
    W-C1), a limit of the DLA (P3) or a platform (jetpack-6.2). Without a name, list all names."""

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


class RestoreOptions(Options):
    """Write an explicit model with QuantizeLinear/DequantizeLinear from a float ONNX and a TensorRT calibration
    cache: for TensorRT versions that read no cache (11 and later), for a DLA with strong typing, and for ONNX
    Runtime."""

    input_model: str = setting("float ONNX, such as NAME_noqdq.onnx", "MODEL", default=REQUIRED, short="-i")
    cache: str = setting("TensorRT calibration cache", "FILE", default=REQUIRED, short="-c")
    output: str = setting("the ONNX file to write", "FILE", default=REQUIRED, short="-o")
    layer_arg: Optional[str] = setting(
        "--layerPrecisions argument (a file, or the value itself); layers that it keeps above INT8 stay float", "FILE"
    )
    complete: bool = setting("infer missing scales, as 'qdq-translator explicit -c' does with more options")
    json: bool = setting("print the summary as one JSON object on stdout")
    verbose: bool = setting("print every entry that was left out, and tracebacks of errors")


class SplitOptions(Options):
    """Cut a network into at most three parts: one for the DLA, with the most estimated time and the fewest borders,
    one before it and one after it. A translation (-t) becomes translations with all their files; an ONNX model (-i),
    float or with Q/DQ, becomes ONNX models. NAME_split.json lists the parts and their tensors. Nothing is written
    unless the parts in sequence give the same bits as the whole network in ONNX Runtime."""

    translation: str = translation_option()
    input_onnx_model: Optional[str] = setting(
        "cut this ONNX model as it is, instead of a translation", "MODEL", short="-i"
    )
    output_dir: str = setting("output folder", "DIR", default="./parts", short="-o")
    begin: List[str] = setting(
        "the DLA part begins after these tensors (default, with --end: at the graph inputs)", "TENSOR"
    )
    end: List[str] = setting("and ends with these (default, with --begin: at the graph outputs)", "TENSOR")
    target: str = same_option(
        "target",
        default="orin-dla",
        choices=("orin-dla", "xavier-dla"),
        help="DLA whose limits apply, for -i (default: orin-dla)",
    )
    platform: Optional[str] = same_option("platform", help="for -i: e.g. jetpack-6.2 or drive-os-6.0.9")
    shapes: List[str] = same_option("shapes", help="for -i: sizes for dynamic input dimensions")
    samples: int = setting("number of random inputs for that comparison", "N", default=2)
    json: bool = setting("print NAME_split.json on stdout, and nothing else")
    verbose: bool = setting("print tracebacks of errors")


class IngestOptions(Options):
    """Read the archive that collect.sh of a bundle wrote on the board (NAME_board.tar.gz): check that it belongs to
    this model, explain the log, compare precisions and times with the plan, fit the cost model, and report the
    alternative of each open hypothesis that agrees with the outputs."""

    file: str = setting("NAME_board.tar.gz", "FILE", default=REQUIRED, positional=True)
    translation: str = translation_option()
    model: str = model_option()
    json: bool = setting("print the findings as one JSON object on stdout, and nothing else")
    verbose: bool = setting("print tracebacks of errors")


class DoctorOptions(Options):
    """Report board and JetPack, TensorRT, trtexec, DLA cores and DLA software, container and Python packages of this
    machine, with a remedy for each problem. Nothing is changed."""

    json: bool = setting("print the findings as a JSON list on stdout, and nothing else")


class PlatformsOptions(Options):
    """List the platforms that --platform knows: TensorRT, the number in the cache header, the DLA, and the source."""

    json: bool = setting("print the table as JSON on stdout, and nothing else")


class CompletionOptions(Options):
    """Print shell code that enables completion of commands, options and their values. For bash and zsh: eval
    "$(qdq-translator completion bash)"; for fish: qdq-translator completion fish | source."""

    shell: Literal["bash", "zsh", "fish"] = setting("the shell to write for", default=REQUIRED, positional=True)
