"""Images and their labels as data sets are laid out: a folder, a folder of class folders, a YOLO data set."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np

from qdq_translator.core.errors import UserError, needed
from qdq_translator.core.words import counted
from qdq_translator.lab.simulate.images import SUFFIXES, Placed, image_size
from qdq_translator.lab.simulate.places import Place, file_of, opened, place

TOP1, MAP = "top1", "map"
_SPLITS = ("val", "valid", "test", "train")
_YAML = (".yaml", ".yml")
_CLASS_FILES = ("classes.txt", "labels.txt", "class_names.txt", "synset.txt")


@dataclasses.dataclass
class Dataset:
    """Images and what is known of them. files: the images. metric: `top1` or `map`, which the labels decide, "" without
    labels. classes: the label of each image. texts: the YOLO label file of each image, which need not exist. names: of
    the classes, if known."""

    files: Sequence[Place]
    source: str
    metric: str = ""
    classes: Sequence[int] = ()
    texts: Sequence[Place] = ()
    names: Sequence[str] = ()
    keypoints: bool = False
    notes: Sequence[str] = ()

    def labels(self, count: int, wanted: tuple[int, int], resize: str) -> Optional[np.ndarray]:
        """Labels of the first `count` images: classes (count,), or objects (count, most, 5) of class and corners in the
        input of the size `wanted` (width, height), filled up with -1. None without labels."""
        if self.metric == TOP1:
            return np.array(self.classes[:count])
        if self.metric != MAP:
            return None
        rows = []
        for image, text in zip(self.files[:count], self.texts):
            found = _objects(text, self.keypoints)
            corners = Placed.of(image_size(image), wanted, resize).corners(found[:, 1:])
            rows.append(np.concatenate([found[:, :1], corners], axis=1))
        labels = np.full((count, max([1, *map(len, rows)]), 5), -1.0)
        for index, row in enumerate(rows):
            labels[index, : len(row)] = row
        return labels


def find_dataset(path: Place, names: Sequence[str]) -> Optional[Dataset]:
    """The images at `path`, an image, a data.yaml or a folder; None if there are only other files, or arrays too.
    names: of the model's classes. Raises UserError for a data set that is not complete."""
    if not path.is_dir():
        suffix = path.suffix.lower()
        if suffix in _YAML:
            return _yolo(Path(str(path)))
        return Dataset([path], str(path)) if suffix in SUFFIXES else None
    entries = _entries(path)
    described = (one for one in entries if isinstance(one, Path) and one.suffix in _YAML)
    data_yaml = next((one for one in described if {*_SPLITS} & _yaml(one).keys()), None)
    if data_yaml is not None:
        return _yolo(data_yaml)
    if any(one.suffix in (".npy", ".npz") for one in entries):
        return None
    images = [one for one in entries if one.suffix.lower() in SUFFIXES]
    return Dataset(images, str(path)) if images else _of_folders(path, names)


def _folders(path: Place) -> dict[str, Place]:
    return {one.name: one for one in _entries(path) if one.is_dir() and not one.name.startswith(".")}


def _of_folders(path: Place, names: Sequence[str]) -> Optional[Dataset]:
    """The images of a folder with folders: `images` of a YOLO data set, parts (val, train), or classes."""
    folders = _folders(path)
    split = next((one for one in _SPLITS if one in folders), "")
    if "images" in folders:
        parts = _folders(folders["images"])
        return _with_texts([next((parts[one] for one in _SPLITS if one in parts), folders["images"])], str(path))
    if split and folders.keys() <= {*_SPLITS}:
        return find_dataset(folders[split], names)
    held = {name: files for name, files in ((name, [*_images_below(one)]) for name, one in folders.items()) if files}
    return _class_folders(path, held, names) if held else None


def _class_folders(path: Place, held: Mapping[str, Sequence[Place]], names: Sequence[str]) -> Dataset:
    """Images of folders that are classes, in a fixed random order, so that any part of them has all classes."""
    listed = next((one for one in path.iterdir() if one.name in _CLASS_FILES), None)
    order, how = sorted(held), "in the order of their names"
    if listed is not None:
        order, how = [one if one in held else one.split()[0].rstrip(",") for one in _lines(listed)], f"by {listed.name}"
    elif {*held} <= {*names}:
        order, how = list(names), "by the model's metadata"
    missing = sorted(held.keys() - {*order})
    if missing:
        raise UserError(f"{listed} does not name the folder '{missing[0]}'.", "Give one line a class, in their order.")
    rows = [(file, order.index(name)) for name in sorted(held) for file in held[name]]
    rows = [rows[index] for index in np.random.default_rng(0).permutation(len(rows))]
    notes = [f"labels: {counted(len(held), 'folder')} {how}"]
    classes = [label for _, label in rows]
    return Dataset([file for file, _ in rows], str(path), TOP1, classes=classes, names=order, notes=notes)


def _yolo(path: Path) -> Dataset:
    """The images of a data.yaml, as ultralytics reads it: those for validation, or the first others that it has."""
    about = _yaml(path)
    split = next((about[name] for name in _SPLITS if about.get(name)), None)
    if split is None:
        raise UserError(f"{path} names no images.", "Give the images of a YOLO data set as 'val: FOLDER' there.")
    base = path.parent / str(about.get("path") or "")
    sources = [_source(path, base, str(name)) for name in (split if isinstance(split, list) else [split])]
    names = about.get("names") or []
    named = list(names.values() if isinstance(names, dict) else names) or [""] * int(about.get("nc") or 0)
    return _with_texts(sources, str(path), [str(one) for one in named], "kpt_shape" in about)


def _source(path: Path, base: Path, name: str) -> Path:
    """A folder or list that a data.yaml names; `../valid/images` of Roboflow means `valid/images`. Raises UserError."""
    forms = (name, name[3:]) if name.startswith("../") else (name,)
    tried = [root / form for root in (base, path.parent) for form in forms]
    found = next((one for one in tried if one.exists()), None)
    if found is None:
        raise UserError(f"{path}: {tried[0]} does not exist.", "Correct the paths 'path' and 'val' there.")
    return found


def _with_texts(sources: Sequence[Place], source: str, names: Sequence[str] = (), keypoints: bool = False) -> Dataset:
    """The images of folders and lists of a YOLO data set, with labels if there is any label file."""
    files = [file for one in sources for file in (_images_below(one) if one.is_dir() else _listed(Path(str(one))))]
    if not files:
        raise UserError(f"{source}: {sources[0]} holds no images.", f"Images end with {', '.join(SUFFIXES)}.")
    texts = [_text_of(file) for file in files]
    metric = MAP if any(text.exists() for text in texts) else ""
    return Dataset(files, source, metric, texts=texts, names=names, keypoints=keypoints)


def _text_of(image: Place) -> Place:
    """`labels/a.txt` of `images/a.jpg`; next to the image if no folder is called images."""
    stem = str(image)[: -len(image.suffix)]
    before, folder, after = stem.rpartition("/images/")
    return place(f"{before}/labels/{after}.txt" if folder else f"{stem}.txt")


def _listed(path: Path) -> Iterator[Place]:
    """The images of a list, one a line, relative to the list."""
    yield from (path.parent / line for line in _lines(path))


def _entries(folder: Place) -> list[Place]:
    return sorted(folder.iterdir(), key=str)


def _images_below(folder: Place) -> Iterator[Place]:
    for one in _entries(folder):
        if one.is_dir():
            yield from _images_below(one)
        elif one.suffix.lower() in SUFFIXES:
            yield one


def _objects(path: Place, keypoints: bool) -> np.ndarray:
    """(objects, 5) of class and corners in parts of the image, from `class x y w h` or the points of a polygon."""
    found = []
    for number, line in enumerate(_text(path).splitlines() if path.exists() else (), 1):
        if not line.strip():
            continue
        try:
            label, *values = map(float, line.split())
        except ValueError:
            label, values = -1.0, []
        if len(values) == 4 or (keypoints and len(values) > 4):
            x, y, w, h = values[:4]
            found.append([label, x - w / 2, y - h / 2, x + w / 2, y + h / 2])
        elif len(values) > 5 and len(values) % 2 == 0:
            xs, ys = values[::2], values[1::2]
            found.append([label, min(xs), min(ys), max(xs), max(ys)])
        else:
            form = "It is 'class x y width height', in parts of the image."
            raise UserError(f"{path}, line {number} is no object.", form)
    return np.array(found).reshape(-1, 5)


def _text(path: Place) -> str:
    with file_of(path, "a text file", "Save it as UTF-8."), opened(path) as file:
        return str(file.read().decode())


def _lines(path: Place) -> list[str]:
    """The lines of the file that are not empty."""
    return [line.strip() for line in _text(path).splitlines() if line.strip()]


def _yaml(path: Path) -> dict[str, Any]:
    yaml = needed("yaml", f"Reading {path} needs PyYAML, which is not installed.", "pip install pyyaml")
    with file_of(path, "a YAML file", "See docs/calibration.md for a YOLO data set.", yaml.YAMLError):
        found = yaml.safe_load(_text(path))
    return found if isinstance(found, dict) else {}
