"""`qdq-translator translate --parts model`: an ONNX file as parts for the DLA, and those before, between and after."""

from pathlib import Path

from qdq_translator.commands.located import print_json
from qdq_translator.core.formats.report_rows import Part
from qdq_translator.core.options import AS_PLANNED, TranslateCommand
from qdq_translator.core.words import counted
from qdq_translator.lab.parts import split_model


def cut(model: str, options: TranslateCommand) -> None:
    """Cuts one model as it is, planned as by `plan`, and prints its parts. Raises UserError if it cannot be cut."""
    output = Path(options.output_dir)
    asked = options.changed(**{name: value for name, value in AS_PLANNED.items() if name not in options.typed})
    manifest = split_model(Path(model), asked, output, [(options.begin, options.end)])
    if options.json:
        print_json(manifest)
        return
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
