"""What the application puts into the input buffers of a DLA loadable, and how it reads the output buffers.

    python -m e2e_workflow.orin_dla.buffers describe -t translated/ --input_formats int8:dla_linear --output_formats fp16:chw16
    python -m e2e_workflow.orin_dla.buffers pack -t translated/ --input_formats int8:dla_linear samples.npz sample0/
    python -m e2e_workflow.orin_dla.buffers unpack -t translated/ --output_formats fp16:chw16 sample0/ outputs.npz

`pack` takes the first sample (or --sample N) of an .npz with real numbers and writes INPUT.bin for each network input;
`unpack` reads OUTPUT.bin of each network output. Scales are those of the translation's report, so they are the cache's.
Layouts: `qdq_translator/output/buffers.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.output.buffers import TYPES, Buffer, buffers


def file_name(name: str) -> str:
    """A tensor's name without what a file name cannot hold."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".bin"


def describe(what: str, buffer: Buffer) -> str:
    """One line for a person who fills that buffer."""
    rule = (
        f"code = clip(round(x / {buffer.scale!r}), -128, 127)" if buffer.scale is not None else "x itself, as float16"
    )
    kind = next(name for name, dtype in TYPES.items() if dtype == buffer.dtype)
    memory = "x".join(map(str, buffer.padded))
    return f"{what} '{buffer.name}': {kind}:{buffer.format}, {memory} in memory, {buffer.size} bytes; {rule}"


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
        inputs = buffers(report["inputs"], options.input_formats, options.batch)
        outputs = buffers(report["outputs"], options.output_formats, options.batch)
        if options.action == "describe":
            for what, group in (("input", inputs), ("output", outputs)):
                for buffer in group:
                    print(describe(what, buffer))
        elif options.action == "pack":
            options.folder.mkdir(parents=True, exist_ok=True)
            with np.load(options.samples) as stored:
                for buffer in inputs:
                    part = stored[buffer.name][options.sample : options.sample + buffer.shape[0]]
                    buffer.pack(part).tofile(options.folder / file_name(buffer.name))
        else:
            values = {b.name: b.unpack(np.fromfile(options.folder / file_name(b.name), np.uint8)) for b in outputs}
            np.savez(options.outputs, **values)
    except (UserError, OSError, KeyError, ValueError) as error:
        print(f"e2e_workflow.orin_dla.buffers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
