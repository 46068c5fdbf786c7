"""What the application puts into the input buffers of a DLA loadable, and how it reads the output buffers.

    python -m e2e_workflow.orin_dla.buffers describe -t translated/ --input_formats int8:dla_linear --output_formats fp16:chw16
    python -m e2e_workflow.orin_dla.buffers pack -t translated/ --input_formats int8:dla_linear samples.npz sample0/
    python -m e2e_workflow.orin_dla.buffers unpack -t translated/ --output_formats fp16:chw16 sample0/ outputs.npz

`pack` takes the first sample (or --sample N) of an .npz with real numbers and writes INPUT.bin for each network input;
`unpack` reads OUTPUT.bin of each network output. Scales are those of the translation's report, so they are the cache's.
Layouts are those of NvInfer.h's `TensorFormat` on Orin, for a tensor (N, C, H, W) and elements of 1 (int8) or 2 bytes:

    dla_linear  [N][C][H][W], each row of W filled up to 64 bytes
    dla_hwc4    [N][H][W][C'], C' = 1 for one channel, 4 for three or four; each row filled up to 64 bytes
    chw16       [N][C / 16][H][W][16], channels filled up; fp16
    chw32       [N][C / 32][H][W][32], channels filled up; int8
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles

ROW_BYTES = 64
TYPES = {"int8": np.dtype(np.int8), "fp16": np.dtype(np.float16)}
VECTORS = {"chw16": 16, "chw32": 32}
FORMATS = ("dla_linear", "dla_hwc4", *VECTORS)


@dataclass(frozen=True)
class Buffer:
    """One network input or output. shape: (N, C, H, W); scale: of its int8 codes, None where fp16 needs none."""

    name: str
    shape: tuple[int, int, int, int]
    dtype: np.dtype
    format: str
    scale: float | None

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape of the array in memory, fill included."""
        n, c, h, w = self.shape
        in_row = ROW_BYTES // self.dtype.itemsize
        if self.format == "dla_linear":
            return (n, c, h, _up(w, in_row))
        if self.format == "dla_hwc4":
            channels = 1 if c == 1 else 4
            return (n, h, _up(w, in_row // channels), channels)
        vector = VECTORS[self.format]
        return (n, _up(c, vector) // vector, h, w, vector)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.padded)) * self.dtype.itemsize

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Real numbers (N, C, H, W), or anything of that size in that order, to the buffer; fill is zero."""
        values = values.reshape(self.shape).astype(np.float32)
        if self.scale is not None:
            values = np.clip(np.rint(values / np.float32(self.scale)), -128, 127)
        _, c, _, w = self.shape
        buffer = np.zeros(self.padded, self.dtype)
        if self.format == "dla_linear":
            buffer[..., :w] = values
        elif self.format == "dla_hwc4":
            buffer[:, :, :w, :c] = values.transpose(0, 2, 3, 1)
        else:
            for channel in range(c):
                vector = VECTORS[self.format]
                buffer[:, channel // vector, :, :, channel % vector] = values[:, channel]
        return buffer

    def unpack(self, buffer: np.ndarray) -> np.ndarray:
        """The way back: (N, C, H, W) float32."""
        n, c, h, w = self.shape
        buffer = buffer.view(self.dtype).reshape(self.padded)
        if self.format == "dla_linear":
            values = buffer[..., :w]
        elif self.format == "dla_hwc4":
            values = buffer[:, :, :w, :c].transpose(0, 3, 1, 2)
        else:
            values = buffer.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c]
        return values.astype(np.float32) * np.float32(1 if self.scale is None else self.scale)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def buffers(rows: list[dict[str, Any]], formats: str, batch: int) -> list[Buffer]:
    """`rows`: inputs or outputs of NAME_report.json; formats: `type:format`, one for all or one each. Raises UserError."""
    given = formats.split(",")
    if len(given) not in (1, len(rows)):
        raise UserError(f"'{formats}' has {len(given)} formats for {len(rows)} tensors.", "Give one, or one each.")
    found = []
    for row, text in zip(rows, given * len(rows) if len(given) == 1 else given):
        kind, _, layout = text.partition(":")
        if kind not in TYPES or layout not in FORMATS or (kind, layout) in (("int8", "chw16"), ("fp16", "chw32")):
            raise UserError(f"A loadable has no format '{text}'.", "They are {int8,fp16}:{dla_linear,dla_hwc4}, ...")
        found.append(_buffer(row, kind, layout, batch))
    return found


def _buffer(row: dict[str, Any], kind: str, layout: str, batch: int) -> Buffer:
    name, dims = row["name"], row["shape"] or []
    sizes = [batch if i == 0 and not isinstance(d, int) else d for i, d in enumerate(dims)]
    if not 2 <= len(sizes) <= 4 or not all(isinstance(size, int) for size in sizes):
        raise UserError(f"'{name}' has the shape {dims}.", "Buffers are for batch, channels and up to two more sizes.")
    n, c, h, w = (*sizes, 1, 1, 1)[:4]
    if layout == "dla_hwc4" and c not in (1, 3, 4):
        raise UserError(f"'{name}' has {c} channels.", "dla_hwc4 is for 1, 3 or 4; take dla_linear or chw32.")
    if kind == "int8" and row["scale"] is None:
        raise UserError(f"'{name}' has no scale, so it cannot be int8.", "Quantize it in the model, or take fp16.")
    return Buffer(name, (n, c, h, w), TYPES[kind], layout, row["scale"] if kind == "int8" else None)


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
