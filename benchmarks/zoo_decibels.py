"""How far an implicit INT8 network is from its float, and how far the Q/DQ network is that it came from, for a folder of Q/DQ models.

    python -m benchmarks.zoo_decibels FOLDER [--only NAME ...] [--write]

SQNR in dB of the worst output, simulated, for the GPU and Orin's DLA: the Q/DQ model; its translation by the preset; the same with
`--calibrate DATA --calibrate_method output --recalibrate`. Each with the share of multiply-accumulates in INT8. The reference is the
Q/DQ model without the rounding of its activations. Inputs are smooth noise: values of deviation 1 on a grid eight times as coarse, linear
in between; white noise where there is no image. SEEN samples that nothing was calibrated on, and CALIBRATION others. Models with one
float32 input of known shape whose Q/DQ model has at least LEAST dB. `--write` puts the table into docs/tables/decibels.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import onnx

from benchmarks.dla_rewrites import page
from benchmarks.measure import machine
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import CodedEnds, ExplicitNetwork, Session
from qdq_translator.lab.simulate.verdict import float_twin
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.translator import Translation

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "decibels.md"
SEEN, CALIBRATION, LEAST, COARSE = 64, 32, 3.0, 8
FARTHER = 0.3
"""dB; and twice the standard error of the difference."""
PRESETS = {"gpu": {"preset": "gpu"}, "orin-dla": {"preset": "dla", "platform": "jetpack-6.2"}}
HEAD = (
    "| network | Q/DQ model | GPU | GPU, `output` | Orin DLA | Orin DLA, `output` |",
    "| --- | ---: | ---: | ---: | ---: | ---: |",
)


class Noise(NamedTuple):
    """Energies, [samples, outputs]."""

    signal: np.ndarray
    noise: np.ndarray

    def db(self, samples: Sequence[int]) -> float:
        """SQNR in dB of the worst output."""
        noise = np.maximum(self.noise[samples].sum(0), 1e-300)
        return float(10 * np.log10((self.signal[samples].sum(0) / noise).min()))


def noise_of(
    reference: Session, model: onnx.ModelProto, feeds: list[dict[str, Any]], ends: Optional[CodedEnds]
) -> Noise:
    """ends: of a Q/DQ model."""
    session = Session(model, "compared", one_thread=True)
    signal, noise = [], []
    for feed in feeds:
        wanted = reference.run(feed)
        found = session.run(feed) if ends is None else ends.real(session.run(ends.feed(feed)))
        pairs = [(values.astype(np.float64), found[name].reshape(values.shape)) for name, values in wanted.items()]
        signal.append([float(np.sum(a * a)) for a, _ in pairs])
        noise.append([float(np.sum((b - a) ** 2)) for a, b in pairs])
    return Noise(np.array(signal), np.array(noise))


def smooth(seed: int, count: int, shape: Sequence[int]) -> np.ndarray:
    """(count, *shape), float32. shape: [C, H, W] or [H, W, C] of an image, or anything else."""
    image = () if len(shape) != 3 else (1, 2) if shape[0] <= 4 else (0, 1)
    coarse = [max(2, size // COARSE) if axis in image else size for axis, size in enumerate(shape)]
    values = np.random.default_rng(seed).standard_normal((count, *coarse))
    for axis in image:
        at = np.linspace(0, coarse[axis] - 1, shape[axis])
        grid = np.arange(coarse[axis])
        values = np.apply_along_axis(lambda row: np.interp(at, grid, row), axis + 1, values)  # noqa: B023
    return values.astype(np.float32)


def models(folder: Path) -> Iterator[tuple[str, Path, str, list[int]]]:
    """Name, path, input and its shape without the batch."""
    for path in sorted(folder.glob("*.onnx")):
        graph = load_model(path)[0].graph
        known = {tensor.name for tensor in graph.initializer}
        given, *more = [one for one in graph.input if one.name not in known]
        sizes = [size.dim_value for size in given.type.tensor_type.shape.dim]
        is_float = given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        quantized = any(node.op_type == "QuantizeLinear" for node in graph.node)
        if quantized and is_float and not more and sizes and sizes[0] in (0, 1) and all(sizes[1:]):
            yield path.stem, path, given.name, sizes[1:]


def share(translation: Translation, layers: Sequence[str]) -> str:
    """Of the multiply-accumulates, those of these layers."""
    macs = {row.name: row.macs or 0 for row in translation.plan}
    return f"{100 * sum(macs.get(name, 0) for name in layers) / max(1, sum(macs.values())):.0f}%"


def line(name: str, path: Path, given: str, shape: list[int], work: Path) -> tuple[str, list[bool]]:
    """A row, and which cells are farther from the float network than the Q/DQ model; '' below LEAST dB."""
    explicit = ExplicitNetwork.of(load_model(path)[0])
    reference = Session(float_twin(explicit).to_model(), "reference", one_thread=True)
    feeds = [{given: sample[np.newaxis]} for sample in smooth(1, SEEN, shape)]
    np.savez(work / "data.npz", **{given: smooth(0, CALIBRATION, shape)})
    trained = noise_of(reference, explicit.model, feeds, explicit.ends)
    every, random = range(SEEN), np.random.default_rng(0)
    if trained.db(every) < LEAST:
        return "", []
    resampled = [random.integers(0, SEEN, SEEN) for _ in range(200)]
    moved = {"calibrate": str(work / "data.npz"), "calibrate_method": "output", "recalibrate": ["worst:100000"]}
    cells, farther = [name], []
    for target, preset in PRESETS.items():
        for more in ({}, moved):
            options: dict[str, Any] = {**preset, **more, "shapes": [f"{given}:{'x'.join(map(str, [1, *shape]))}"]}
            made = translate(path, TranslateOptions(**options))
            model = simulate(ImplicitNetwork.of(made), SimulationOptions.on(target)).model
            noise = noise_of(reference, model, feeds, None)
            if len(cells) == 1:
                cells.append(f"{trained.db(every):.1f}, {share(made, [row.node for row in made.weights])}")
            lost = trained.db(every) - noise.db(every)
            error = float(np.std([trained.db(some) - noise.db(some) for some in resampled]))
            farther.append(lost > max(FARTHER, 2 * error))
            cell = f"{noise.db(every):.1f}, {share(made, [row.name for row in made.plan if row.precision == 'int8'])}"
            cells.append(f"**{cell}**" if farther[-1] else cell)
    return "| " + " | ".join(cells) + " |", farther


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], help="networks whose name begins so")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    rows: list[str] = []
    counts, silent = np.zeros(len(PRESETS) * 2, int), []
    print("\n".join(HEAD))
    with tempfile.TemporaryDirectory() as folder:
        for name, path, given, shape in models(asked.folder):
            if not name.startswith(tuple(asked.only)):
                continue
            try:
                row, farther = line(name, path, given, shape, Path(folder))
            except UserError as error:
                print(f"{name} is not translated: {error.what}", file=sys.stderr)
                continue
            if not row:
                silent.append(name)
                continue
            rows.append(row)
            counts += np.array([not one for one in farther])
            print(row, flush=True)
    total = "| as near as the Q/DQ model, or nearer | | " + " | ".join(f"{n} of {len(rows)}" for n in counts) + " |"
    text = (
        "\n".join([*HEAD, *rows, total])
        + f"\n\nQ/DQ model below {LEAST:g} dB: {', '.join(silent) or 'none'}. {machine()}.\n"
    )
    print(text)
    if asked.write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "zoo", text), encoding="utf-8")


if __name__ == "__main__":
    main()
