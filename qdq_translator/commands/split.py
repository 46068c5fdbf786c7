"""`qdq-translator split`: the part before the DLA, the DLA's part, and the part after it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from qdq_translator.commands.located import locate
from qdq_translator.core.options import AS_PLANNED, TranslateOptions, same_option, setting, translation_option


@dataclass
class Options:
    """Cut a network into at most three parts: one for the DLA, with the most estimated time and the fewest borders,
    one before it and one after it. A translation (-t) becomes translations with all their files; an ONNX model (-i),
    float or with Q/DQ, becomes ONNX models. NAME_split.json lists the parts and their tensors. Nothing is written
    unless the parts in sequence give the same bits as the whole network in ONNX Runtime."""

    translation: str = translation_option()
    input_onnx_model: Optional[str] = setting(
        "cut this ONNX model as it is, instead of a translation", None, metavar="MODEL", short="-i"
    )
    output_dir: str = setting("output folder", "./parts", metavar="DIR", short="-o")
    begin: List[str] = setting(
        "the DLA part begins after these tensors (default, with --end: at the graph inputs)", [], metavar="TENSOR"
    )
    end: List[str] = setting("and ends with these (default, with --begin: at the graph outputs)", [], metavar="TENSOR")
    target: str = same_option(
        "target",
        default="orin-dla",
        choices=("orin-dla", "xavier-dla"),
        help="DLA whose limits apply, for -i (default: orin-dla)",
    )
    platform: Optional[str] = same_option("platform", help="for -i: e.g. jetpack-6.2 or drive-os-6.0.9")
    shapes: List[str] = same_option("shapes", help="for -i: sizes for dynamic input dimensions")
    samples: int = setting("number of random inputs for that comparison", 2, metavar="N")
    json: bool = setting("print NAME_split.json on stdout, and nothing else")
    verbose: bool = setting("print tracebacks of errors")


def run(options: Options) -> int:
    """Exit status 0; UserError if the network cannot be cut."""
    from qdq_translator.workflows.parts import Request, split_model, split_translation

    output = Path(options.output_dir)
    request = Request(options.begin, options.end, output, options.samples)
    if options.input_onnx_model is None:
        manifest = split_translation(locate(options.translation, ""), request)
    else:
        same = {name: getattr(options, name) for name in ("target", "platform", "shapes")}
        asked = TranslateOptions(dla_rewrites=True, **same, **AS_PLANNED)
        manifest = split_model(Path(options.input_onnx_model), asked, request)
    if options.json:
        print(json.dumps(manifest, indent=2))
        return 0
    for part in manifest["parts"]:
        time = part.get("milliseconds")
        estimate = f", {time:.3g} ms on the DLA (estimate)" if time else ""
        gpu = f", {part['gpu_layers']} for the GPU" if part.get("gpu_layers") else ""
        print(f"{output / part['file']}: {part['layers']} layers{gpu}{estimate}")
        for what in ("inputs", "outputs"):
            for row in part[what]:
                sizes = "x".join(str(size) for size in row["shape"]) if row["shape"] is not None else "?"
                scale = "" if row["scale"] is None else f", scale {row['scale']:.6g}"
                print(f"  {what[:-1]:<6} {row['name']} {sizes}{scale}")
    if manifest["tail"]:
        print(
            f"{len(manifest['tail'])} layers follow the DLA's last one; exclude them from quantization ('tail' in the manifest)."
        )
    print(f"The parts, one after the other, gave the bits of the whole in {manifest['proof']['runs']} runs.")
    return 0
