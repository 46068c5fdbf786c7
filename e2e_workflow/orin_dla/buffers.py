"""What the application puts into the input buffers of a DLA loadable, and how it reads the output buffers.

    python -m e2e_workflow.orin_dla.buffers describe -t translated/ --input_formats int8:dla_linear --output_formats fp16:chw16
    python -m e2e_workflow.orin_dla.buffers pack -t translated/ --input_formats int8:dla_linear samples.npz sample0/
    python -m e2e_workflow.orin_dla.buffers unpack -t translated/ --output_formats fp16:chw16 sample0/ outputs.npz

`pack` takes the first sample (or --sample N) of an .npz with real numbers and writes INPUT.bin for each network input;
`unpack` reads OUTPUT.bin of each network output. Scales are those of the translation's report, so they are the cache's.
Layouts: `qdq_translator/translation/files/buffers.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.translation.files.buffers import VECTORS, Buffer, End
from qdq_translator.translation.files.buffers import describe as described


def file_name(name: str) -> str:
    """A tensor's name without what a file name cannot hold."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".bin"


def describe(what: str, buffer: Buffer) -> str:
    """One line for a person who fills that buffer."""
    rule = (
        f"code = clip(round(x / {buffer.scale!r}), -128, 127)" if buffer.scale is not None else "x itself, as float16"
    )
    memory = "x".join(map(str, buffer.padded))
    return f"{what} '{buffer.name}': {buffer.kind}:{buffer.format}, {memory} in memory, {buffer.size} bytes; {rule}"


def ends(rows: list[dict[str, Any]], batch: int) -> list[End]:
    """Of inputs or outputs of NAME_report.json. batch: if the model leaves it open."""

    def sizes(dims: list[Any]) -> tuple[Any, ...]:
        return tuple(batch if i == 0 and not isinstance(d, int) else d for i, d in enumerate(dims))

    return [End(row["name"], sizes(row["shape"] or []), row["scale"]) for row in rows]


def pack_values(buffer: Buffer, values: np.ndarray) -> np.ndarray:
    """Real numbers (N, C, H, W), or anything of that size in that order, to the buffer; fill is zero."""
    values = values.reshape(buffer.shape).astype(np.float32)
    if buffer.scale is not None:
        values = np.clip(np.rint(values / np.float32(buffer.scale)), -128, 127)
    _, c, _, w = buffer.shape
    memory = np.zeros(buffer.padded, buffer.dtype)
    if buffer.format == "dla_linear":
        memory[..., :w] = values
    elif buffer.format == "dla_hwc4":
        memory[:, :, :w, :c] = values.transpose(0, 2, 3, 1)
    else:
        for channel in range(c):
            vector = VECTORS[buffer.format]
            memory[:, channel // vector, :, :, channel % vector] = values[:, channel]
    return memory


def unpack_values(buffer: Buffer, memory: np.ndarray) -> np.ndarray:
    """The way back: (N, C, H, W) float32."""
    n, c, h, w = buffer.shape
    memory = memory.view(buffer.dtype).reshape(buffer.padded)
    if buffer.format == "dla_linear":
        values = memory[..., :w]
    elif buffer.format == "dla_hwc4":
        values = memory[:, :, :w, :c].transpose(0, 3, 1, 2)
    else:
        values = memory.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c]
    return values.astype(np.float32) * np.float32(1 if buffer.scale is None else buffer.scale)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-t", "--translation", required=True, help="output folder of translate, or NAME_noqdq.onnx")
    common.add_argument("--input_formats", default="int8:dla_linear", help="(default: int8:dla_linear)")
    common.add_argument("--output_formats", default="fp16:chw16", help="(default: fp16:chw16)")
    common.add_argument("--batch", type=int, default=1, help="where the model leaves it open (default: 1)")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("describe", parents=[common])
    pack = actions.add_parser("pack", parents=[common])
    pack.add_argument("samples", type=Path, help=".npz: one array per input, first axis = samples")
    pack.add_argument("folder", type=Path)
    pack.add_argument("--sample", type=int, default=0, help="the first one to take (default: 0)")
    unpack = actions.add_parser("unpack", parents=[common])
    unpack.add_argument("folder", type=Path)
    unpack.add_argument("outputs", type=Path, help=".npz to write")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        report = TranslationFiles.locate(options.translation).read_report()
        inputs = described(ends(report["inputs"], options.batch), options.input_formats, "input")
        outputs = described(ends(report["outputs"], options.batch), options.output_formats, "output")
        if options.action == "describe":
            for what, group in (("input", inputs), ("output", outputs)):
                for buffer in group:
                    print(describe(what, buffer))
        elif options.action == "pack":
            options.folder.mkdir(parents=True, exist_ok=True)
            with np.load(options.samples) as stored:
                for buffer in inputs:
                    part = stored[buffer.name][options.sample : options.sample + buffer.shape[0]]
                    pack_values(buffer, part).tofile(options.folder / file_name(buffer.name))
        else:
            values = {
                b.name: unpack_values(b, np.fromfile(options.folder / file_name(b.name), np.uint8)) for b in outputs
            }
            np.savez(options.outputs, **values)
    except (UserError, OSError, KeyError, ValueError) as error:
        print(f"e2e_workflow.orin_dla.buffers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
