"""Inputs for a run: .npy, .npz, folders of them, images, Polygraphy files, or random numbers in a plausible range."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pickle
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, cast

import numpy as np
import onnx

from qdq_translator.core.disk import shown_place
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.npz import read_npy, read_npz
from qdq_translator.core.formats.polygraphy import read_inputs
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.words import by_x, counted
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.lab.simulate.datasets import Dataset, find_dataset
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.images import (
    SUFFIXES,
    ImageOptions,
    class_names,
    image_layout,
    image_options,
    is_ultralytics,
    open_image,
)
from qdq_translator.lab.simulate.places import Place, RemoteArray, RemotePlace, file_of, place
from qdq_translator.lab.simulate.run import in_rank
from qdq_translator.translation.ir.qparams import QuantParams

LABELS = "labels"
"""Array of an .npz, or stem of an .npy among others, with one label per sample, unless an input has that name: the
right class, or the labels that a user's metric expects."""
DEFAULT_SAMPLES = 8


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """An input of the model: `shape` has None for dynamic sizes (a dynamic first one is the batch, of one sample).
    codes: the grid of an input that was quantized in the model as given, whose data may be quantized values too."""

    name: str
    shape: tuple[Optional[int], ...]
    dtype: np.dtype
    codes: Optional[QuantParams] = None

    @property
    def batch(self) -> int:
        return (self.shape[0] or 1) if self.shape else 1

    def __str__(self) -> str:
        dims = "x".join("?" if d is None else str(d) for d in self.shape)
        return f"'{self.name}': {self.dtype} {dims or 'scalar'}"


@dataclasses.dataclass
class Samples:
    """`runs` feeds of `batch` samples each; `feed(i)` loads the i-th. labels: one row per sample, if known. metric: the
    one that the data decide, "" for none. classes: how many the labels distinguish, 0 if unknown. ranges, doubts,
    checked: see `usable`."""

    runs: int
    batch: int
    source: str
    feed: Callable[[int], dict[str, np.ndarray]]
    labels: Optional[np.ndarray] = None
    notes: list[str] = dataclasses.field(default_factory=list)
    reopen: Optional[Callable[[], Samples]] = None
    metric: str = ""
    classes: int = 0
    ranges: Mapping[str, float] = dataclasses.field(default_factory=dict)
    doubts: list[str] = dataclasses.field(default_factory=list)
    checked: bool = False

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the first and the last shard and all labels, for detecting changes of the data during a run."""
        found = hashlib.sha256(f"{self.runs} {self.batch}".encode())
        parts = shards(self.runs)
        for run in dict.fromkeys((*parts[0], *parts[-1])):
            for name, values in sorted(self.feed(run).items()):
                found.update(f"{name} {values.dtype} {values.shape}".encode())
                found.update(np.ascontiguousarray(values).data)
        if self.labels is not None:
            found.update(np.ascontiguousarray(self.labels).data)
        return found.hexdigest()

    def check_unchanged(self) -> None:
        """Raises UserError if the data have changed since the first request for `digest`."""
        if self.reopen is not None and self.reopen().digest != self.digest:
            raise UserError(
                f"{self.source} changed while it was read.", "Start again when no other program writes there."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Send a worker the calls that read the data, and their digest, not the data."""
        if self.reopen is None:
            raise TypeError(f"samples of {self.source} cannot be read elsewhere")
        return _reopened, (pickle.dumps(self.reopen), self.digest)

    def some(self, runs: int) -> Samples:
        """`runs` of the runs, evenly spread; all if there are not more."""
        if runs >= self.runs:
            return self
        return self.chosen([int(run) for run in np.linspace(0, self.runs - 1, runs).round()])

    def chosen(self, chosen: Sequence[int]) -> Samples:
        """These runs."""
        feed, rows = self.feed, [run * self.batch + index for run in chosen for index in range(self.batch)]
        labels = None if self.labels is None else self.labels[rows]
        return self._with("chosen", chosen, runs=len(chosen), feed=lambda index: feed(chosen[index]), labels=labels)

    def _with(self, how: str, which: Any, **changes: Any) -> Samples:
        """The samples after a call of the method `how`, which a worker repeats."""
        reopen = None if self.reopen is None else functools.partial(_again, self.reopen, how, which)
        return dataclasses.replace(self, reopen=reopen, **changes)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self.feed(i) for i in range(self.runs))

    def labels_of(self, run: int) -> Optional[np.ndarray]:
        """Labels of the samples of one run; None if there are none."""
        return None if self.labels is None else self.labels[run * self.batch : (run + 1) * self.batch]

    def classes_of(self, run: int) -> Optional[np.ndarray]:
        """Labels if they are correct classes, one integer per sample; else None."""
        labels = self.labels_of(run)
        return labels if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu" else None

    def words(self, run: int) -> str:
        """The samples of one run as part of a sentence."""
        first = run * self.batch
        return f"sample {first}" if self.batch == 1 else f"samples {first} to {first + self.batch - 1}"

    def labelled(self, path: Place) -> Samples:
        """These samples with the labels of a .npy, or of the array `labels` of an .npz. Raises UserError if there are
        too few."""
        if path.suffix not in (".npy", ".npz"):
            raise UserError(f"Labels {path} are neither .npy nor .npz.", "The first axis of the array is the samples.")
        values = _read(path) if path.suffix == ".npy" else _read_npz(path).get(LABELS)
        if values is None:
            raise UserError(f"{path} has no array '{LABELS}'.", "Save it with numpy.savez(file, labels=...).")
        return self._with("labelled", path, labels=_labels(values, len(self), str(path)))

    def __len__(self) -> int:
        """Samples, not runs."""
        return self.runs * self.batch


@functools.lru_cache(maxsize=2)
def _reopened(how: bytes, digest: str) -> Samples:
    """Reopen on a worker. Raises UserError if the data differ there."""
    samples: Samples = pickle.loads(how)()
    if samples.digest != digest:
        raise UserError(
            f"{samples.source} has different data on a worker than at the start.",
            "It changed, or the path means something else there.",
        )
    return samples


def _again(reopen: Callable[[], Samples], how: str, which: Any) -> Samples:
    """`chosen` or `labelled` on a worker."""
    return getattr(reopen(), how)(which)  # type: ignore[no-any-return]


def input_specs(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], codes: Mapping[str, QuantParams] = {}
) -> list[InputSpec]:
    """The inputs of a float model. shapes: input -> its sizes, for dynamic ones. codes: see `InputSpec`. Raises
    UserError for inputs that are not tensors."""
    constant = {t.name for t in model.graph.initializer}
    specs = []
    for value in model.graph.input:
        if value.name in constant:
            continue
        tensor = value.type.tensor_type
        if not tensor.elem_type:
            raise UserError(f"Input '{value.name}' is not a tensor.", "Only tensors can be fed.")
        dims: list[Optional[int]] = [d.dim_value if d.dim_value > 0 else None for d in tensor.shape.dim]
        for index, size in enumerate(shapes.get(value.name, ())):
            if index < len(dims):
                dims[index] = size
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        specs.append(InputSpec(value.name, tuple(dims), dtype, codes.get(value.name)))
    return specs


def _wants(specs: Sequence[InputSpec]) -> str:
    return "The model requires " + "; ".join(str(s) for s in specs) + "."


# ---------------- values that are not finite


REMEDY = "Correct the data, or leave such samples out with --ignore_nonfinite."

_Spoilt = Tuple[int, str, int]
"""Run, input, and number of its values that are NaN or infinite."""


def left_out(samples: int, total: int) -> str:
    """Note that `samples` of `total` were left out."""
    return (
        f"{samples} of {counted(total, 'sample')} {'holds' if samples == 1 else 'hold'} values that are not finite and "
        f"{'was' if samples == 1 else 'were'} left out"
    )


WRONG_SCALE = 16.0
"""Ratio of the largest value to the range of an input from which the samples are not scaled as the model expects."""
_FEW = 16
"""Values of an input that may well be equal: a state, a size."""


def usable(
    samples: Samples,
    ignore: bool,
    progress: Progress = silent,
    where: Evaluation = HERE,
    ranges: Mapping[str, float] = {},
) -> Samples:
    """The samples; with `ignore`, those with finite inputs, and a note of how many were left out. ranges: input -> its
    largest magnitude by the model, in addition to the metadata's. Samples that are constant, repeated or small
    are in `doubts`.

    Raises UserError, with the first place, if some are not finite and `ignore` is not set, or if none is; if all are
    constant, or larger by far than the metadata state.
    """
    if samples.checked:
        return samples
    rows = where.over(_Looking(samples), samples.runs, progress, "reading inputs")
    seen = [_Seen(*row) for row in rows]
    found = [spoilt for one in seen for spoilt in one.spoilt]
    if not found:
        doubts = [*samples.doubts, *_doubts(samples, seen, {**ranges, **samples.ranges})]
        samples.checked = True
        return dataclasses.replace(samples, doubts=doubts) if doubts else samples
    return _finite(samples, found, ignore)


def _finite(samples: Samples, found: Sequence[_Spoilt], ignore: bool) -> Samples:
    """The samples without the spoilt ones. Raises UserError unless these may be ignored and others are left."""
    runs = {run for run, _, _ in found}
    if ignore and len(runs) < samples.runs:
        kept = samples.chosen([run for run in range(samples.runs) if run not in runs])
        return dataclasses.replace(kept, doubts=[*kept.doubts, left_out(len(samples) - len(kept), len(samples))])
    total = sum(count for _, _, count in found)
    first, name, _ = found[0]
    what = "samples" if samples.batch == 1 else f"batches of {samples.batch} samples"
    raise UserError(
        f"{samples.source}: {counted(total, 'value')} in {len(runs)} of {samples.runs} {what} "
        f"{'is' if total == 1 else 'are'} not finite (NaN or infinite), the first of input '{name}' in "
        f"{samples.words(first)}.",
        "Correct the data." if len(runs) == samples.runs else REMEDY,
    )


def _doubts(samples: Samples, seen: Sequence[_Seen], ranges: Mapping[str, float]) -> Iterator[str]:
    """Sentences on samples that are constant, repeated or small. Raises UserError as `usable`."""
    level = [one.level for one in seen if one.level is not None]
    if len(level) == len(seen):
        what = "0" if not any(level) else "constant"
        raise UserError(
            f"{samples.source}: all {counted(len(samples), 'sample')} are {what}: each has one value throughout.",
            "Give inputs as the application has them.",
        )
    if level:
        yield f"{len(level)} of {counted(len(samples), 'sample')} have one value throughout: leave them out"
    different = len({one.digest for one in seen})
    if different < len(seen) and len(seen) > len(level) + 1:
        yield f"only {different} of {counted(len(seen), 'sample')} are different: repeated ones show nothing new"
    for name, most in ranges.items():
        yield from _scaled(samples, name, max((one.largest.get(name, 0.0) for one in seen), default=0.0), most)


def _scaled(samples: Samples, name: str, largest: float, most: float) -> Iterator[str]:
    """A sentence if the input's largest value is far from its range `most`. Raises UserError as `usable`."""
    if most and largest > WRONG_SCALE * most:
        what = f"input '{name}' reaches {largest:.4g}, but the model's range ends at {most:.4g}"
        cure = "scale the samples as in training (images: divide by 255, then mean and deviation)"
        if name in samples.ranges:
            raise UserError(f"{samples.source}: {what}.", f"{cure.capitalize()}.")
        yield f"{what}: {cure}"
    if most and 0 < largest < most / WRONG_SCALE:
        yield (
            f"input '{name}' only reaches {largest:.3g}, but the model's range ends at {most:.4g}: scale the "
            "samples as in training (perhaps they were divided by 255 once too often)"
        )


@dataclasses.dataclass(frozen=True)
class _Seen:
    """One run. level: its value, if every input is constant. largest: input -> largest magnitude."""

    spoilt: Sequence[_Spoilt]
    level: Optional[float]
    digest: str
    largest: Mapping[str, float]


@dataclasses.dataclass
class _Looking(Work):
    samples: Samples
    passes = 0.0

    def open(self) -> Callable[[int], list[tuple[Any, ...]]]:
        return lambda run: [_look(self.samples.feed(run), run)]


def _look(feed: Mapping[str, np.ndarray], run: int) -> tuple[Any, ...]:
    """The fields of a `_Seen`."""
    digest = hashlib.sha256()
    for values in feed.values():
        digest.update(np.ascontiguousarray(values).data)
    floats = {name: values for name, values in feed.items() if values.dtype.kind == "f" and values.size}
    bad = {name: int(values.size - np.count_nonzero(np.isfinite(values))) for name, values in floats.items()}
    largest = {name: float(np.abs(values).max()) for name, values in floats.items()}
    large = [values for values in feed.values() if values.size >= _FEW]
    flat = large and all((values == values.flat[0]).all() for values in large)
    level = max(float(abs(values.flat[0])) for values in large) if flat else None
    return [(run, name, count) for name, count in bad.items() if count], level, digest.hexdigest(), largest


# ---------------- random


def random_samples(specs: Sequence[InputSpec], scales: Mapping[str, float], count: Optional[int], seed: int) -> Samples:
    """Normal numbers, small non-negative integers, or random booleans, by type. Three standard deviations are an
    input's INT8 range if it has a scale, else the deviation is 1. Raises UserError if sizes other than the batch are
    dynamic."""
    for spec in specs:
        if any(d is None for d in spec.shape[1:]):
            raise UserError(
                f"Input {spec} has open sizes, so random inputs cannot be made.",
                f"Give them with --shapes {spec.name}:"
                + "x".join("1" if i == 0 else "SIZE" if d is None else str(d) for i, d in enumerate(spec.shape))
                + ".",
            )
    batch = _batch(specs)
    runs = max(1, -(-(count or DEFAULT_SAMPLES) // batch))

    def feed(index: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, index])
        values = {}
        for spec in specs:
            shape = tuple(1 if d is None else d for d in spec.shape)
            if spec.dtype.kind == "f":
                size = 127 * scales[spec.name] if spec.name in scales else 3.0
                values[spec.name] = (rng.standard_normal(shape) * (size / 3)).astype(spec.dtype)
            elif spec.dtype.kind == "b":
                values[spec.name] = rng.integers(0, 2, shape).astype(bool)
            else:
                values[spec.name] = rng.integers(0, 10, shape).astype(spec.dtype)
        return values

    reopen = functools.partial(random_samples, specs, scales, count, seed)
    return Samples(runs, batch, f"random, seed {seed}", feed, reopen=reopen)


def _batch(specs: Sequence[InputSpec]) -> int:
    sizes = {s.batch for s in specs if s.shape}  # if they differ, the first axis is not the samples
    return sizes.pop() if len(sizes) == 1 else 1


# ---------------- files


def given_samples(
    data: str,
    labels: Optional[str],
    model: onnx.ModelProto,
    sizes: Mapping[str, Sequence[int]],
    options: Any,
    codes: Mapping[str, QuantParams],
) -> Samples:
    """A command's input data: `options` has the number of samples and how to read images; codes: see `InputSpec`.
    Raises UserError."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    specs, images = input_specs(model, sizes, codes), image_options(options, metadata)
    samples = load_samples(place(data), specs, options.samples, images, tuple(class_names(metadata)))
    if is_ultralytics(metadata):
        samples.ranges = {spec.name: 1.0 for spec in specs if len(spec.shape) == 4 and spec.dtype.kind == "f"}
    return samples.labelled(place(labels)) if labels else samples


def load_samples(
    path: Place,
    specs: Sequence[InputSpec],
    count: Optional[int],
    images: ImageOptions = ImageOptions(),  # noqa: B008
    names: tuple[str, ...] = (),
) -> Samples:
    """Samples from a file or folder. names: of the model's classes. Raises a UserError that describes the model's
    inputs, for wrong names, shapes and types."""
    if not path.exists():
        raise UserError(f"Inputs {path} do not exist.", _wants(specs))
    kind, dataset = _kind(path), find_dataset(path, names)
    if dataset is not None:
        samples = _images(dataset, specs, count, images)
    elif path.is_dir():
        samples = _folder(path, specs, count)
    elif kind:
        samples = _arrays(_arrays_of(path, specs), specs, count, shown_place(str(path)))
    else:
        raise UserError(
            f"Inputs {path} are neither .npy, .npz, Polygraphy's .json, an image, a folder nor a data.yaml.",
            _wants(specs),
        )
    return dataclasses.replace(samples, reopen=functools.partial(load_samples, path, specs, count, images, names))


def _kind(path: Place) -> str:
    """'npz', 'npy', 'json' or 'images'; '' for another file."""
    if path.suffix in (".npz", ".npy") or (path.suffix == ".json" and isinstance(path, Path)):
        return path.suffix[1:]
    return "images" if path.suffix.lower() in SUFFIXES else ""


def _arrays_of(path: Place, specs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    """Name -> array of a .npz, .npy or .json."""
    if path.suffix == ".npy":
        return {_only(specs, path).name: _read(path)}
    return read_inputs(path) if isinstance(path, Path) and path.suffix == ".json" else _read_npz(path)


def _only(specs: Sequence[InputSpec], path: Place) -> InputSpec:
    if len(specs) != 1:
        raise UserError(
            f"{path.name} contains one array, but the model has {len(specs)} inputs.",
            f"Put one array per input, named like it, into an .npz. {_wants(specs)}",
        )
    return specs[0]


def _read(path: Place) -> np.ndarray:
    with file_of(path, "a NumPy array file", "Save it with numpy.save.", EOFError):
        return cast(np.ndarray, RemoteArray(path)) if isinstance(path, RemotePlace) else read_npy(path)


def _read_npz(path: Place) -> dict[str, np.ndarray]:
    with file_of(path, "an .npz file", "Save it with numpy.savez."):
        return read_npz(path if isinstance(path, Path) else path.open())


def _arrays(arrays: Mapping[str, np.ndarray], specs: Sequence[InputSpec], count: Optional[int], source: str) -> Samples:
    stacked = _stacked(arrays, specs, source)
    batch, available = _batch(specs), len(stacked[specs[0].name])
    wanted = available if count is None else min(count, available)
    runs = wanted // batch
    if not runs:
        raise UserError(f"{source} holds {available} samples; the model needs {batch} at a time.", "Give more of them.")
    notes, spare = _fewer(count, available), wanted - runs * batch
    if spare:
        were = "was" if spare == 1 else "were"
        notes.insert(0, f"{counted(spare, 'sample')} {were} left out: the model needs {batch} at a time")

    def feed(index: int) -> dict[str, np.ndarray]:
        part = slice(index * batch, (index + 1) * batch)
        result = {}
        for spec in specs:
            values = _real(np.asarray(stacked[spec.name][part]), spec)
            if values.ndim > len(spec.shape):  # one run per sample: the model's input has no axis for samples
                values = values[0]
            result[spec.name] = np.asarray(values, spec.dtype, order="C")
        return result

    labels = arrays.get(LABELS) if LABELS not in stacked else None
    if labels is not None:
        labels = _labels(labels, runs * batch, source)
    return Samples(runs, batch, source, feed, labels, notes)


def _stacked(arrays: Mapping[str, np.ndarray], specs: Sequence[InputSpec], source: str) -> dict[str, np.ndarray]:
    """Input -> its array with the samples along the first axis, equally many of each. Raises UserError."""
    if len(specs) == 1 and list(arrays) == ["arr_0"]:  # numpy.savez of an array without a name
        arrays = {specs[0].name: arrays["arr_0"]}
    missing = [s.name for s in specs if s.name not in arrays]
    if missing:
        raise UserError(f"{source} has no array '{missing[0]}' (it has {', '.join(arrays) or 'none'}).", _wants(specs))
    form = _as_runs if len({s.batch for s in specs if s.shape}) > 1 else _as_samples
    return _alike({s.name: form(arrays[s.name], s, source) for s in specs}, source)


def _alike(stacked: dict[str, np.ndarray], source: str) -> dict[str, np.ndarray]:
    """One of an input is that of all. Raises UserError for other differences in number."""
    count = max(map(len, stacked.values()))
    if any(len(values) not in (1, count) for values in stacked.values()):
        told = ", ".join(f"'{name}' {len(values)}" for name, values in stacked.items())
        raise UserError(
            f"{source} has different numbers of samples ({told}).", "All inputs need the same number, or one for all."
        )
    return {n: v if len(v) == count else np.broadcast_to(v, (count, *v.shape[1:])) for n, v in stacked.items()}


def _as_runs(values: np.ndarray, spec: InputSpec, source: str) -> np.ndarray:
    """Values of an input among others with a different first axis, which is thus not the samples (the initial state of
    an LSTM): the runs along a further first axis, or as many values along the first axis as the runs need. Raises
    UserError."""
    _check_type(values.dtype, spec, source)
    values, shape = np.asarray(values), spec.shape
    if shape and _fits(values, (None, *shape[1:])) and len(values) % spec.batch == 0:
        return values.reshape(-1, spec.batch, *values.shape[1:])
    if not shape and not values.ndim:
        return values[None]
    if not _fits(values, (None, *shape)):
        raise _wrong_shape(values, spec, source, "the runs along a further first axis")
    return values


def _wrong_shape(values: np.ndarray, spec: InputSpec, source: str, how: str) -> UserError:
    return UserError(
        f"{source}: array '{spec.name}' has the shape {by_x(values.shape) or 'scalar'}.",
        _turned(values.shape, spec.shape) or f"The model requires {spec}, with {how}.",
    )


def _real(values: np.ndarray, spec: InputSpec) -> np.ndarray:
    """Quantized values as real numbers; other values as they are."""
    if spec.codes is None or values.dtype.kind == "f":
        return values
    return (values.astype(np.float32) - spec.codes.zero_point.astype(np.float32)) * spec.codes.scale


def _fewer(wanted: Optional[int], available: int) -> list[str]:
    """A note if the data have fewer samples than requested."""
    if wanted is None or wanted <= available:
        return []
    return [f"{wanted} samples were asked for, and {available} {'is' if available == 1 else 'are'} there"]


def _labels(values: np.ndarray, samples: int, source: str) -> np.ndarray:
    """The first `samples` rows. Raises UserError if there are fewer."""
    rows = np.atleast_1d(values)
    held = len(rows)
    if held < samples:
        raise UserError(f"{source} holds {held} labels for {samples} samples.", "Give one label a sample.")
    return rows[:samples]


def _as_samples(values: np.ndarray, spec: InputSpec, source: str) -> np.ndarray:
    """Array whose first axis is the samples; an array of exactly one run, or without batch axis, is also accepted."""
    _check_type(values.dtype, spec, source)
    shape, alone = spec.shape, spec.batch == 1
    if (shape and _fits(values, (None, *shape[1:]))) or (alone and _fits(values, (None, *shape))):
        return values
    if not alone and _fits(values, (None, *shape)):  # its first axis is no batch, or the data have one more
        return np.asarray(values).reshape(-1, *values.shape[2:])
    if alone and _fits(values, shape[1:]):
        return values[None]
    if values.ndim > 1 and len(shape) == 4 and all(shape[1:]) and in_rank(values, shape) is not values:  # rule D16
        return in_rank(values, shape)
    raise _wrong_shape(values, spec, source, "the samples along the first axis")


def _turned(given: Sequence[int], wanted: Sequence[Optional[int]]) -> str:
    """The remedy for images in the other order, '' for others."""
    for order, there, want in (((0, 3, 1, 2), "NHWC", "NCHW"), ((0, 2, 3, 1), "NCHW", "NHWC")):
        if len(given) == len(wanted) == 4 and all(
            wanted[n] in (None, given[axis]) for n, axis in enumerate(order) if n
        ):
            return f"They are {there}, and the model takes {want}: give samples.transpose{order}."
    return ""


def _check_type(given: np.dtype, spec: InputSpec, source: str) -> None:
    """Raises UserError unless both are float or both are integers, of any size because `feed` converts them."""
    needs = spec.dtype
    if given == needs or any(given.kind in kinds and needs.kind in kinds for kinds in ("f", "iu")):
        return
    if spec.codes is not None and given == spec.codes.dtype:
        return
    raise UserError(
        f"{source}: array '{spec.name}' holds {given}; the model requires {needs}.",
        "Convert it first, with the preprocessing that the network was trained with."
        if needs.kind == "f"
        else f"Convert it to {needs}.",
    )


def _fits(values: np.ndarray, wanted: Sequence[Optional[int]]) -> bool:
    return values.ndim == len(wanted) and all(w is None or s == w for s, w in zip(values.shape, wanted))


def _folder(path: Place, specs: Sequence[InputSpec], count: Optional[int]) -> Samples:
    """Arrays of a folder, which may have images too if that is an error."""
    kinds: dict[str, list[Place]] = {"npz": [], "npy": [], "images": []}
    for file in sorted(p for p in path.iterdir() if p.is_file()):
        kinds.get(_kind(file), []).append(file)
    present = [kind for kind, files in kinds.items() if files]
    if len(present) != 1:
        found = "holds both " + " and ".join(present) if present else "holds no .npy, .npz or image"
        raise UserError(f"{path} {found}.", "Put inputs of one kind there. " + _wants(specs))
    files = kinds[present[0]]
    named = {p.stem: p for p in files}
    if present == ["npy"] and named.keys() >= {s.name for s in specs}:  # a file for each input, and one with labels
        wanted = [*(s.name for s in specs), *named.keys() & {LABELS}]
        return _arrays({name: _read(named[name]) for name in wanted}, specs, count, str(path))
    return _joined(path, files, specs, count)


def _joined(path: Place, files: Iterable[Place], specs: Sequence[InputSpec], count: Optional[int]) -> Samples:
    """Samples of several files, concatenated."""
    parts: list[Samples] = []
    for file in files:
        left = None if count is None else count - sum(map(len, parts))
        if left is None or left > 0:
            parts.append(_arrays(_arrays_of(file, specs), specs, left, str(file)))
    feeds = [functools.partial(part.feed, run) for part in parts for run in range(part.runs)]
    found = [part.labels for part in parts if part.labels is not None]
    labels = np.concatenate(found) if len(found) == len(parts) else None
    notes = _fewer(count, sum(map(len, parts)))
    return Samples(len(feeds), parts[0].batch, str(path), lambda index: feeds[index](), labels, notes)


# ---------------- images


def _images(found: Dataset, specs: Sequence[InputSpec], count: Optional[int], options: ImageOptions) -> Samples:
    files, source = found.files[: count or len(found.files)], found.source
    spec = _only(specs, files[0])
    if spec.dtype.kind != "f" and spec.dtype != np.uint8:
        raise UserError(f"Images cannot be fed to the input {spec}.", "Prepare an .npz instead.")
    layout, channels, height, width = image_layout(spec, spec.shape, options.layout)
    for name, values in (("--image_mean", options.mean), ("--image_std", options.std)):
        if len(values) not in (1, channels):
            raise UserError(f"{name} has {len(values)} values.", f"Give 1, or one for each of the {channels} channels.")
    batch, runs = spec.batch, len(files) // spec.batch
    if not runs:
        raise UserError(f"{source} holds {len(files)} images; the model needs {batch} at a time.", "Give more of them.")
    files = files[: runs * batch]

    def load(path: Place) -> np.ndarray:
        values = open_image(path, channels, height, width, options)
        if spec.dtype != np.uint8:
            mean, std = np.asarray(options.mean, np.float32), np.asarray(options.std, np.float32)
            values = ((values.astype(np.float32) / 255 - mean) / std).astype(spec.dtype)
        return values.transpose(2, 0, 1) if layout == "nchw" else values

    def feed(index: int) -> dict[str, np.ndarray]:
        return {spec.name: np.stack([load(p) for p in files[index * batch : (index + 1) * batch]])}

    notes = [*_fewer(count, len(found.files)), *found.notes]
    if spec.dtype != np.uint8:
        notes.append(options.words(channels, width, height))
    labels = found.labels(len(files), (width, height), options.resize)
    return Samples(runs, batch, source, feed, labels, notes, metric=found.metric, classes=len(found.names))
