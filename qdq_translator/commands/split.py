"""`qdq-translator split`: the part before the DLA, the DLA's part, and the part after it."""

from pathlib import Path

from qdq_translator.commands.located import locate, print_json
from qdq_translator.core.command_options import SplitOptions as Options
from qdq_translator.core.formats.report_rows import Part
from qdq_translator.core.options import AS_PLANNED, TranslateOptions
from qdq_translator.core.words import counted
from qdq_translator.workflows.parts import Request, split_model, split_translation


def run(options: Options) -> int:
    """Exit status 0; UserError if the network cannot be cut."""
    output = Path(options.output_dir)
    request = Request(options.begin, options.end, output, options.samples)
    if options.input_onnx_model is None:
        manifest = split_translation(locate(options.translation, ""), request)
    else:
        same = {name: getattr(options, name) for name in ("target", "platform", "shapes")}
        asked = TranslateOptions(dla_rewrites=True, **same, **AS_PLANNED)
        manifest = split_model(Path(options.input_onnx_model), asked, request)
    if options.json:
        print_json(manifest)
        return 0
    for part in manifest.parts:
        placed = ""
        if isinstance(part, Part):
            placed = f", {part.gpu_layers} for the GPU" if part.gpu_layers else ""
            placed += f", {part.milliseconds:.3g} ms on the DLA (estimate)" if part.milliseconds else ""
        print(f"{output / part.file}: {counted(part.layers, 'layer')}{placed}")
        for what, ends in (("input", part.inputs), ("output", part.outputs)):
            for row in ends:
                sizes = "x".join(str(size) for size in row.shape) if row.shape is not None else "?"
                scale = "" if row.scale is None else f", scale {row.scale:.6g}"
                print(f"  {what:<6} {row.name} {sizes}{scale}")
    if manifest.tail:
        print(
            f"Behind the DLA's last layer: {counted(len(manifest.tail), 'layer')}; exclude them from quantization "
            "('tail' in the manifest)."
        )
    print(f"The parts, one after the other, gave the bits of the whole in {counted(manifest.proof.runs, 'run')}.")
    return 0
