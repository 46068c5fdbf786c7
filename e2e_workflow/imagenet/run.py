"""NVIDIA's table of ImageNet Top-1, with ONNX Runtime: the Q/DQ models against the simulated implicit engines.

    python -m e2e_workflow.imagenet.run --models models/ --images val/ [--labels val_labels.txt]

`models/` holds NAME.onnx for any of the names in preprocessing.py; `val/` the 50,000 images of the validation set: either
in one folder per class (sorted folder names are classes 0, 1, ...), or in one folder with --labels: a text file with
`FILE CLASS` lines, or with one class per line in the order of the sorted file names (--first_class says where they start).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from e2e_workflow.common.results import table
from e2e_workflow.imagenet.preprocessing import NETWORKS, Network
from qdq_translator import translate
from qdq_translator.errors import UserError
from qdq_translator.formats.files import TranslationFiles
from qdq_translator.io import load_model
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import InputSpec, input_specs
from qdq_translator.simulate.metrics import class_scores
from qdq_translator.simulate.run import ExplicitNetwork, Session

SUFFIXES = {".jpeg", ".jpg", ".png"}
STAGES = ("Q/DQ", "simulated")
HEADER = ["network", "images", "NVIDIA Q/DQ", "NVIDIA translated", "Q/DQ", "simulated", "same Top-1", "INT8 layers"]


def labelled_images(folder: Path, labels: Path | None, first_class: int = 0) -> list[tuple[Path, int]]:
    """Images and their classes (0 to 999), sorted by path. Raises UserError where they cannot be told."""
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not files:
        raise UserError(f"{folder} holds no images.", "Give the folder of the validation set.")
    if labels is None:
        classes = {name: index for index, name in enumerate(sorted({p.parent.name for p in files}))}
        if len(classes) < 2:
            raise UserError(f"{folder} has no folders for classes.", "Sort the images into them, or give --labels.")
        return [(path, classes[path.parent.name]) for path in files]
    lines = [line.split() for line in labels.read_text(encoding="utf-8").splitlines() if line.strip()]
    try:
        if all(len(line) == 1 for line in lines):
            if len(lines) != len(files):
                raise UserError(
                    f"{labels} has {len(lines)} classes for {len(files)} images.", "It needs one line per image."
                )
            found = [(path, int(line[0])) for path, line in zip(files, lines)]
        else:
            known = {line[0]: int(line[1]) for line in lines}
            found = [(path, known[path.name]) for path in files]
    except (ValueError, KeyError, IndexError) as error:
        raise UserError(
            f"{labels} cannot be used: {error}.", "Its lines are 'FILE CLASS', or one class for each sorted file."
        ) from error
    found = [(path, label - first_class) for path, label in found]
    if not all(0 <= label < 1000 for _, label in found):
        raise UserError(f"{labels} holds classes outside 0 to 999.", "Shift them with --first_class.")
    return found


def chosen(images: list[tuple[Path, int]], count: int | None) -> list[tuple[Path, int]]:
    """`count` of them, evenly spread over the sorted list (and so over the classes)."""
    if count is None or count >= len(images):
        return images
    return [images[i] for i in np.linspace(0, len(images) - 1, count).round().astype(int)]


def batches(
    images: list[tuple[Path, int]], network: Network, spec: InputSpec, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs in the model's layout and batch size (the last one filled up) and the labels of the real ones."""
    size = spec.shape[0] or size
    channels_first = spec.shape[1] == 3
    for start in range(0, len(images), size):
        part = images[start : start + size]
        values = np.stack([network.preprocessing.load(path) for path, _ in part])
        values = np.concatenate([values, np.repeat(values[-1:], size - len(part), 0)])
        if channels_first:
            values = values.transpose(0, 3, 1, 2)
        yield np.ascontiguousarray(values, spec.dtype), np.array([label for _, label in part])


@dataclass(frozen=True)
class Score:
    """Percent, over `images` images. int8: layers that may run in INT8, and all."""

    images: int
    qdq: float
    simulated: float
    agreement: float
    int8: str


def one_input(model: onnx.ModelProto, network: Network) -> InputSpec:
    """The model's only input. Raises UserError where it does not take this network's pictures."""
    specs = input_specs(model, {})
    crop = network.preprocessing.crop
    wanted = ((3, crop, crop), (crop, crop, 3))
    shape = tuple(specs[0].shape[1:]) if specs else ()
    fits = any(len(shape) == 3 and all(a in (None, b) for a, b in zip(shape, w)) for w in wanted)
    if len(specs) != 1 or not fits:
        raise UserError(
            f"{network.title} takes one input of 3x{crop}x{crop} or {crop}x{crop}x3; the model has "
            f"{', '.join(map(str, specs))}.",
            "Export it at that size, or check its file name.",
        )
    return specs[0]


def score(model: Path, network: Network, images: list[tuple[Path, int]], folder: Path, batch: int) -> Score:
    """Translates the model into `folder` and runs it and the simulated engine. Raises UserError."""
    translation = translate(model, network.options)
    translation.save(folder)
    layers = [layer for layer in translation.plan if layer.precision != "none"]
    implicit = ImplicitNetwork.read(TranslationFiles.locate(folder / f"{model.stem}_noqdq.onnx"))
    explicit = ExplicitNetwork.of(load_model(model)[0])
    spec = one_input(implicit.model, network)
    sessions = {
        "Q/DQ": Session(explicit.model, "Q/DQ"),
        "simulated": Session(simulate(implicit, SimulationOptions(fp16=True)).model, "simulated"),
    }
    right = dict.fromkeys(STAGES, 0)
    same = done = 0
    for values, labels in batches(images, network, spec, batch):
        best = {}
        for stage, session in sessions.items():
            scores = class_scores(session.run({spec.name: values})[session.outputs[0]])
            if scores is None:
                raise UserError(f"The first output of {model.name} holds no class scores.", "Give a classifier.")
            best[stage] = scores[: len(labels)].argmax(1)
            right[stage] += int(np.count_nonzero(best[stage] == labels))
        same += int(np.count_nonzero(best["Q/DQ"] == best["simulated"]))
        done += len(labels)
        if sys.stderr.isatty():
            print(f"\r{network.title} {done}/{len(images)}", end="", file=sys.stderr, flush=True)
    percent = [100 * right[stage] / done for stage in STAGES]
    int8 = f"{sum(layer.precision == 'int8' for layer in layers)}/{len(layers)}"
    return Score(done, percent[0], percent[1], 100 * same / done, int8)


def row(network: Network, found: Score) -> list[str]:
    """A row of the table."""
    numbers = (*network.published, found.qdq, found.simulated, found.agreement)
    return [network.title, str(found.images), *(f"{number:.2f}" for number in numbers), found.int8]


def save_inputs(path: Path, name: str, network: Network, spec: InputSpec, images: list[tuple[Path, int]]) -> None:
    """The .npz that e2e_workflow/on_device and `verify --inputs` take: one array named like the input, and `labels`."""
    parts = list(batches(images, network, replace(spec, shape=(1, *spec.shape[1:])), 1))
    arrays = {spec.name: np.concatenate([v for v, _ in parts]), "labels": np.concatenate([y for _, y in parts])}
    np.savez(path, **arrays)
    print(f"{name}: {len(images)} samples in {path}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", type=Path, required=True, help=f"folder with any of {', '.join(NETWORKS)} (.onnx)")
    parser.add_argument("--images", type=Path, required=True, help="folder of the validation set")
    parser.add_argument("--labels", type=Path, help="text file, where the images are not in a folder per class")
    parser.add_argument("--first_class", type=int, default=0, help="number of the first class in --labels (default: 0)")
    parser.add_argument("--count", type=int, help="so many images, evenly spread (default: all)")
    parser.add_argument("--batch", type=int, default=16, help="where the model leaves it open (default: 16)")
    parser.add_argument("--translated", type=Path, default=Path("translated"), help="(default: translated)")
    parser.add_argument(
        "--save_inputs", type=int, metavar="N", help="no scores: translate, and write N samples as .npz"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        images = chosen(labelled_images(options.images, options.labels, options.first_class), options.count)
        models = {name: options.models / f"{name}.onnx" for name in NETWORKS}
        present = {name: path for name, path in models.items() if path.is_file()}
        if not present:
            raise UserError(f"{options.models} holds none of {', '.join(p.name for p in models.values())}.", "Rename.")
        rows = []
        for name, path in present.items():
            network, folder = NETWORKS[name], options.translated / name
            if options.save_inputs:
                translation = translate(path, network.options)
                translation.save(folder)
                spec = one_input(translation.model, network)
                save_inputs(folder / f"{name}_samples.npz", name, network, spec, chosen(images, options.save_inputs))
                continue
            rows.append(row(network, score(path, network, images, folder, options.batch)))
            print(" | ".join(rows[-1]), flush=True)
        if rows:
            print(table(HEADER, rows))
        absent = ", ".join(name for name in models if name not in present)
        if absent:
            print(f"Not there, and so not run: {absent}", file=sys.stderr)
    except (UserError, OSError) as error:
        print(f"e2e_workflow.imagenet.run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
