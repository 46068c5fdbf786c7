"""`qdq-translator verify`: the explicit model and the simulated implicit engine side by side."""

import dataclasses
from typing import Any, Dict, List, Optional

from qdq_translator.core.options import (
    check_count,
    check_positive,
    parse_shapes,
    same_option,
    setting,
    translation_option,
)

Real = float
"""`float` is the name of an option below."""
MOST_SENTENCES = 20
"""That go to stderr without --verbose: a model of another translation makes one for every layer."""


@dataclasses.dataclass
class Options:
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


def run(options: Options) -> int:
    """Prints the comparison; 1 where a threshold is missed or the files are not those that the translation wrote."""
    import json
    import sys
    from pathlib import Path

    from qdq_translator.commands.located import print_next
    from qdq_translator.core.disk import check_place, refuse_overwriting, write_file
    from qdq_translator.core.formats.files import TranslationFiles
    from qdq_translator.core.progress import progress_bar
    from qdq_translator.simulate.evaluation import evaluation
    from qdq_translator.workflows.verification import verify

    if options.example:
        from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES

        options = dataclasses.replace(
            options, model=options.model or str(EXAMPLE_MODEL), inputs=options.inputs or str(EXAMPLE_SAMPLES)
        )
    check(options)
    saved = [Path(path) for path in (options.save, options.save_layers) if path]
    for path in saved:
        files = TranslationFiles.locate(options.translation, options.model, only_one=True)
        read = (options.model, options.float, options.inputs, options.labels, options.device_results)
        refuse_overwriting([path], [*files, *(Path(name) for name in read if name)])
        check_place(path)
    with progress_bar(sys.stderr) as progress, evaluation(
        options.workers, options.scheduler, options.provider
    ) as where:
        results = verify(options, progress, where)
    if options.save:
        write_file(Path(options.save), (json.dumps(results, indent=2) + "\n").encode())
    if options.save_layers:
        write_file(Path(options.save_layers), "".join(f"{n}\n" for n in results["sensitivity"]["layers"]).encode())
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        from qdq_translator.workflows.verification_words import print_results

        print_results(results, options.verbose)
        print_next(TranslationFiles.locate(options.translation, options.model, only_one=True), options.model, "verify")
    shown = results["failed"] if options.verbose else results["failed"][:MOST_SENTENCES]
    for sentence in shown:
        print(f"qdq-translator verify: {sentence}", file=sys.stderr)
    if len(shown) < len(results["failed"]):
        print(f"qdq-translator verify: and {len(results['failed']) - len(shown)} more (--verbose)", file=sys.stderr)
    return 1 if results["failed"] else 0


def check(options: Options) -> None:
    """Raises UsageError for options that are out of range or do not go together."""
    from qdq_translator.core.errors import UsageError

    if not options.model:
        raise UsageError(
            "No model was given.", "Give the explicit model with -i model.onnx, or --example for the one that ships."
        )
    limits: Dict[str, Any] = {
        "--min_cosine": (options.min_cosine, 1),
        "--min_top1_agreement": (options.min_top1_agreement, 100),
    }
    for flag, (value, top) in limits.items():
        if value is not None and not 0 <= value <= top:
            raise UsageError(f"{flag} {value:g} is out of range.", f"It must be between 0 and {top}.")
    check_count("--samples", options.samples)
    check_positive("--image_std", options.image_std)
    if options.save_layers and not options.sensitivity:
        raise UsageError("--save_layers writes what --sensitivity finds.", "Add --sensitivity.")
    if options.max_metric_drop is not None and not options.metric:
        raise UsageError("--max_metric_drop needs a metric.", "Give one with --metric file.py:name.")
    if (options.labels or options.metric) and not options.inputs:
        flag = "--labels" if options.labels else "--metric"
        raise UsageError(f"{flag} needs --inputs.", "Random inputs have no labels.")
    if options.device_results and not options.inputs:
        raise UsageError("--device_results needs --inputs.", "Give the file that the device ran.")
    if options.device_results and options.ignore_nonfinite:
        raise UsageError(
            "--ignore_nonfinite does not go with --device_results.",
            "The device ran all samples: correct the data, and run it again.",
        )
