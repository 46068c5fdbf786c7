"""NVIDIA's table of ImageNet Top-1, with ONNX Runtime: the Q/DQ models against the simulated implicit engines.

    python -m e2e_workflow.imagenet.run --models models/ --images val/ [--labels val_labels.txt]

`models/` holds NAME.onnx for any of the names in preprocessing.py; `val/` the 50,000 images of the validation set: either
in one folder per class (sorted folder names are classes 0, 1, ...), or in one folder with --labels: a text file with
`FILE CLASS` lines, or with one class per line in the order of the sorted file names (--first_class says where they start).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from e2e_workflow.common.results import table
from e2e_workflow.imagenet import dry_run
from e2e_workflow.imagenet.counting import Counting, Images, batch, count
from e2e_workflow.imagenet.preprocessing import NETWORKS, Network
from qdq_translator import translate
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.lab.simulate.evaluation import Evaluation, evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import InputSpec, input_specs
from qdq_translator.lab.simulate.run import ExplicitNetwork, folded
from qdq_translator.lab.tune.journal import Journal
from qdq_translator.translation.ir.io import load_model

SUFFIXES = {".jpeg", ".jpg", ".png"}
HEADER = ["network", "images", "NVIDIA Q/DQ", "NVIDIA translated", "Q/DQ", "simulated", "same Top-1", "INT8 layers"]


def labelled_images(folder: Path, labels: Path | None, first_class: int = 0) -> Images:
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


def chosen(images: Images, count: int | None) -> Images:
    """`count` of them, evenly spread over the sorted list (and so over the classes)."""
    if count is None or count >= len(images):
        return images
    return [images[i] for i in np.linspace(0, len(images) - 1, count).round().astype(int)]


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


def score(
    model: Path,
    network: Network,
    images: Images,
    folder: Path,
    size: int,
    where: Evaluation,
    kept: MutableMapping[str, np.ndarray],
) -> Score:
    """Translates the model into `folder` and runs it and the simulated engine, `size` pictures at a time where the model leaves
    that open. kept: what was counted before. Raises UserError."""
    translation = translate(model, network.options)
    translation.save(folder)
    layers = [layer for layer in translation.plan if layer.precision != "none"]
    implicit = ImplicitNetwork.read(TranslationFiles.locate(folder / f"{model.stem}_noqdq.onnx"))
    spec = one_input(implicit.model, network)
    models = {
        "Q/DQ": folded(ExplicitNetwork.of(load_model(model)[0]).model),
        "simulated": simulate(implicit, SimulationOptions(fp16=True)).model,
    }
    work = Counting(models, network, spec, images, spec.shape[0] or size, where.provider)

    def report(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{network.title} {done}/{len(images)}", end="", file=sys.stderr, flush=True)

    *right, same, done = (int(n) for n in count(work, where, kept, report))
    percent = [100 * number / done for number in right]
    int8 = f"{sum(layer.precision == 'int8' for layer in layers)}/{len(layers)}"
    return Score(done, percent[0], percent[1], 100 * same / done, int8)


def row(network: Network, found: Score) -> list[str]:
    """A row of the table."""
    numbers = (*network.published, found.qdq, found.simulated, found.agreement)
    return [network.title, str(found.images), *(f"{number:.2f}" for number in numbers), found.int8]


def save_inputs(path: Path, name: str, network: Network, spec: InputSpec, images: Images) -> None:
    """The .npz that e2e_workflow/on_device and `verify --inputs` take: one array named like the input, and `labels`."""
    parts = [batch(images, network, spec, 1, number) for number in range(len(images))]
    arrays = {spec.name: np.concatenate([v for v, _ in parts]), "labels": np.concatenate([y for _, y in parts])}
    np.savez(path, **arrays)
    print(f"{name}: {len(images)} samples in {path}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", type=Path, help=f"folder with any of {', '.join(NETWORKS)} (.onnx)")
    parser.add_argument("--images", type=Path, help="folder of the validation set")
    parser.add_argument("--labels", type=Path, help="text file, where the images are not in a folder per class")
    parser.add_argument("--first_class", type=int, default=0, help="number of the first class in --labels (default: 0)")
    parser.add_argument("--count", type=int, help="so many images, evenly spread (default: all)")
    parser.add_argument("--batch", type=int, default=16, help="where the model leaves it open (default: 16)")
    parser.add_argument("--translated", type=Path, default=Path("translated"), help="(default: translated)")
    parser.add_argument(
        "--save_inputs", type=int, metavar="N", help="no scores: translate, and write N samples as .npz"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes of this machine (default: 1)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, whose workers see the same paths")
    parser.add_argument("--provider", default="cpu", help="of ONNX Runtime (default: cpu)")
    parser.add_argument(
        "--dry_run", type=Path, metavar="FOLDER", help="make small classifiers and pictures there, and run on them"
    )
    options = parser.parse_args(argv)
    if options.dry_run:
        options.models, options.images = (
            dry_run.models(options.dry_run / "models"),
            dry_run.pictures(options.dry_run / "val", 8),
        )
        options.translated = options.dry_run
    elif not options.models or not options.images:
        parser.error("--models and --images are required")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        images = chosen(labelled_images(options.images, options.labels, options.first_class), options.count)
        models = {name: options.models / f"{name}.onnx" for name in NETWORKS}
        present = {name: path for name, path in models.items() if path.is_file()}
        if not present:
            raise UserError(f"{options.models} holds none of {', '.join(p.name for p in models.values())}.", "Rename.")
        if options.save_inputs:
            for name, path in present.items():
                network, folder = NETWORKS[name], options.translated / name
                translation = translate(path, network.options)
                translation.save(folder)
                spec = one_input(translation.model, network)
                save_inputs(folder / f"{name}_samples.npz", name, network, spec, chosen(images, options.save_inputs))
        else:
            print(table(HEADER, list(rows(options, images, present))))
        absent = ", ".join(name for name in models if name not in present)
        if absent:
            print(f"Not there, and so not run: {absent}", file=sys.stderr)
    except (UserError, OSError) as error:
        print(f"e2e_workflow.imagenet.run: {error}", file=sys.stderr)
        return 1
    return 0


def rows(options: argparse.Namespace, images: Images, present: dict[str, Path]) -> Iterator[list[str]]:
    """Of the table, each printed as soon as it is there."""
    options.translated.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.translated / "counted.sqlite", {"first": _digest(images[0]), "last": _digest(images[-1])})
    with closing(journal), evaluation(options.workers, options.scheduler, options.provider) as where:
        for name, path in present.items():
            network, folder = NETWORKS[name], options.translated / name
            found = row(network, score(path, network, images, folder, options.batch, where, journal))
            print(" | ".join(found), flush=True)
            yield found


def _digest(image: tuple[Path, int]) -> str:
    return hashlib.sha256(image[0].read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
