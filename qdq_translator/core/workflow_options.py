"""Options of `verify`, `deploy`, `tune` and `explicit`, which their workflows read; `translate` does not import them.

No `from __future__ import annotations`: argparse-dataclass reads the real annotations.
"""

import dataclasses
from typing import Dict, List, Literal, Optional

from qdq_translator.core.options import (
    REQUIRED,
    TranslateOptions,
    in_automation,
    in_essential,
    in_output,
    in_target,
    parse_shapes,
    same_option,
    setting,
    translation_option,
)


@dataclasses.dataclass(frozen=True)
class ExplicitOptions:
    """How the network of `explicit` is written."""

    float_type: Literal["fp16", "fp32"] = in_target("type of everything that is not INT8", "fp16")
    scale_type: Literal["auto", "fp16", "fp32"] = in_target(
        "type of the scales of an fp16 network: fp16 is opset 20, fp32 is opset 23; auto: fp16 if all scales are "
        "normal float16 numbers",
        "auto",
    )
    io_types: Literal["same", "fp32", "fp16", "int8"] = in_target(
        "types of graph inputs and outputs: TensorRT 11 has no typed I/O formats", "same"
    )
    allow_fp16: bool = in_target("on a DLA: allow layers without a scale in FP16")


Real = float
"""`float` is the name of an option below."""


@dataclasses.dataclass
class VerifyOptions:
    """Run the Q/DQ model and a simulation of the planned INT8 engine in ONNX Runtime, and compare their outputs.
    TensorRT is not needed."""

    model: str = setting("the explicit Q/DQ model", "", metavar="MODEL", short="-i")
    example: bool = setting("use the model and the inputs that ship with the package")
    translation: str = translation_option()
    float: Optional[str] = setting("also compare the model before quantization", None, metavar="MODEL")
    inputs: Optional[str] = setting(
        "an .npz (one array per input, first axis = samples), .npy, image, a folder of them, or a file that "
        "'polygraphy run --save-inputs' wrote (default: random)",
        None,
        metavar="PATH",
    )
    labels: Optional[str] = setting(
        "an .npy with one label per sample: the class, or the labels for --metric (default: the array 'labels' of "
        "the .npz)",
        None,
        metavar="FILE",
    )
    samples: Optional[int] = setting("samples to run (default: all of --inputs; 8 random ones)", None, metavar="N")
    ignore_nonfinite: bool = same_option("ignore_nonfinite", group="")
    seed: int = setting("seed of the random inputs", 0, metavar="N")
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
        "write the layers that --sensitivity finds, one per line, for translate --keep_fp16 @FILE", None, metavar="FILE"
    )
    time_limit: Real = setting("time limit of --sensitivity", 300.0, metavar="SECONDS")
    fp16: bool = setting("compute layers above INT8 in float16 instead of float32")
    rounding: Literal["auto", "even", "away"] = setting(
        "ties go to even, or away from zero; auto: away if the translation's target is xavier-dla", "auto"
    )
    sigmoid: Literal["auto", "int8", "fp16"] = setting(
        "Sigmoid and Tanh in int8, or in fp16 as a DLA does; auto: fp16 if the translation's target is a DLA", "auto"
    )
    fuse: Literal["both", "on", "off"] = setting(
        "the tensor between a Conv and the Add, Relu or Clip that it fuses with passes unrounded (on), is rounded by "
        "its scale (off, unary scales of rule S9 too), or both, as a second row if that differs",
        "both",
    )
    hypotheses: Literal["both", "plan"] = setting(
        "open questions about a DLA (a Sigmoid's scale, a layer between FP16 layers, INT8 on the GPU in the same "
        "engine): simulate both alternatives, in a further row if they differ, or only that of the plan",
        "both",
    )
    layer_arg: Optional[str] = setting(
        "use another --layerPrecisions argument: a file, or the value itself", None, metavar="FILE"
    )
    min_cosine: Optional[Real] = setting(
        "exit status 1 if the cosine of an output, or of its worst slice along an axis, is below X", None, metavar="X"
    )
    min_top1_agreement: Optional[Real] = setting(
        "exit status 1 if the top-1 classes agree for fewer samples", None, metavar="PERCENT"
    )
    metric: Optional[str] = setting(
        "your own metric, file.py:name or package.module:name: a function (outputs, labels) -> number, or a class "
        "with add(outputs, labels) and result(); higher is better",
        None,
        metavar="WHERE:NAME",
    )
    max_metric_drop: Optional[Real] = setting(
        "exit status 1 if --metric falls by more than X from the explicit model to the simulated engine",
        None,
        metavar="X",
    )
    device_results: Optional[str] = setting(
        "also compare device_results.json of e2e_workflow/on_device, or a file of 'polygraphy run --save-outputs'",
        None,
        metavar="FILE",
    )
    explicit_network: Optional[str] = setting(
        "also compare the NAME_explicit.onnx that 'explicit' wrote for the same model", None, metavar="FILE"
    )
    workers: int = same_option("workers", group="")
    scheduler: Optional[str] = same_option("scheduler", group="")
    provider: str = same_option("provider", group="")
    save: Optional[str] = setting("write the results as JSON, for 'report --verify'", None, metavar="FILE")
    json: bool = setting("print the results as one JSON object on stdout")
    verbose: bool = setting("print every layer of --per_layer, and tracebacks of errors")

    @property
    def sizes(self) -> Dict[str, List[int]]:
        """Of dynamic inputs. Raises UsageError."""
        return parse_shapes(self.shapes)


@dataclasses.dataclass
class DeployOptions:
    """Make one folder with everything that a board needs for a model: scales (from the model's Q/DQ and from data),
    the network, the calibration cache, scripts and configurations for the programs that run it, a comparison in ONNX
    Runtime, and a page. Run again, it repeats only the steps whose inputs changed."""

    model: str = setting("an ONNX model, float or with Q/DQ", REQUIRED, positional=True, metavar="MODEL")
    board: str = setting(
        "the platform, e.g. jetpack-6.2 ('qdq-translator platforms' lists them)", REQUIRED, metavar="NAME"
    )
    consumers: List[str] = setting(
        "programs: trtexec, python (qdq-translator build), cudla, deepstream, ultralytics, onnxruntime, triton",
        ["trtexec"],
        short="--for",
        metavar="NAME",
    )
    data: Optional[str] = setting(
        "inputs to calibrate and to verify on: an .npz, .npy, image, or a folder of them", None, metavar="PATH"
    )
    output_dir: str = setting("output folder (default: the model's name and _deploy)", "", short="-o", metavar="FOLDER")
    target: Optional[str] = setting(
        "gpu: do not use the DLA of the board", None, choices=("gpu", "orin-dla", "xavier-dla")
    )
    dla_core: int = setting("DLA core", 0, metavar="N")
    keep_model: bool = setting("programs that can build from the given float ONNX use it, with a cache for it")
    shapes: List[str] = same_option("shapes", group="")
    samples: Optional[int] = setting("number of samples of --data to calibrate on (default: all)", None, metavar="N")
    image_mean: List[float] = same_option("image_mean", group="")
    image_std: List[float] = same_option("image_std", group="")
    layout: str = same_option("layout", group="")
    skip: List[str] = setting("steps to leave out: cut, verify", [], metavar="STEP")
    json: bool = setting("print the summary as one JSON object on stdout, and nothing else")
    verbose: bool = setting("print tracebacks of errors")


@dataclasses.dataclass(frozen=True)
class TuneOptions(TranslateOptions):
    """Search for the translation with the least estimated time whose metric stays within a budget, or with the best
    metric within a budget of milliseconds. Every accepted point is measured on all samples in the simulated engine;
    an interrupted search continues from its journal. Options of translate apply to every point, unless the search
    sets them."""

    model: str = in_essential("the model, Q/DQ or float", "", metavar="MODEL", short="-i")
    data: str = in_essential(
        "samples to measure on: an .npz, .npy, a folder of them or of images, or an fsspec address", "", metavar="PATH"
    )
    labels: Optional[str] = in_essential(
        "a .npy, or an .npz with the array labels, if the samples have none", None, metavar="FILE"
    )
    held_out: Optional[str] = in_essential(
        "samples that the search does not use, with labels: the table shows the drop on them", None, metavar="PATH"
    )
    metric: str = in_essential(
        "top1, map, or your own: file.py:name or package.module:name (docs/accuracy.md)", "top1", metavar="METRIC"
    )
    max_drop: Optional[float] = in_essential(
        "largest allowed drop of the metric from that of the given model, in the metric's unit", None, metavar="X"
    )
    budget_ms: Optional[float] = in_essential(
        "budget of estimated milliseconds on the DLA; the search then improves the metric", None, metavar="MS"
    )
    output_dir: str = same_option("output_dir", default="./tuned", help="output folder (default: ./tuned)")
    samples: Optional[int] = in_essential("samples to measure on (default: all)", None, metavar="N")
    evaluations: int = in_automation("largest number of points to measure", 60, metavar="N")
    seed: int = in_automation("seed of the local search", 0, metavar="N")
    workers: int = same_option("workers")
    scheduler: Optional[str] = same_option("scheduler")
    provider: str = same_option("provider")
    json: bool = in_output("print the results as one JSON object on stdout")
    verbose: bool = in_output("print a line for each evaluation, and tracebacks of errors")
