"""Paths and readers of a translation's files, which are a set: its id is in the model, the precision config and the
report.

A run that is killed while it places its files leaves a mixture of two sets: the model, which is placed first, and the
report, which is placed last, are from different ones. The cache and the layer argument have no room for an id; the
report holds their digests. Needs neither ONNX nor NumPy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional, Union

from qdq_translator.core.disk import file_digest, open_file, read_text
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.layer_precisions import parse_layer_precisions
from qdq_translator.core.formats.report_rows import CutParts, Report
from qdq_translator.core.formats.rows import read, read_some
from qdq_translator.core.formats.schemas import config_schema, only, read_json, report_schema, split_schema
from qdq_translator.core.rules import STATED
from qdq_translator.core.switch import clear_leftovers, inside

MODEL_SUFFIX = "_noqdq.onnx"
EXPLICIT_SUFFIX = "_explicit.onnx"
"""Suffix of a strongly typed network written by `explicit`."""
SPLIT_SUFFIX = "_split.json"
"""Suffix of the manifest of a network's parts, in the folder of the DLA's part."""
_AGAIN = "Translate the model again."
_LONGEST = 200
"""The most bytes of a NAME: with the longest ending it fits into a file name of 255 bytes."""


def plain_name(wanted: str) -> str:
    """A file name made from a text in a model: no folder, no control character, no leading dot, nothing that a program
    reads as an option."""
    name = re.sub(r"[^\w.+@ -]", "_", wanted).lstrip(".- ").strip()
    return name.encode("utf-8", "ignore")[:_LONGEST].decode("utf-8", "ignore") or "model"


@dataclass(frozen=True)
class _Ending:
    """The path of NAME and `text` in the folder of a translation."""

    text: str

    def __get__(self, files: TranslationFiles, kind: type) -> Path:
        return files.folder / f"{files.name}{self.text}"


@dataclass(frozen=True)
class TranslationFiles:
    """The files that `translate` writes for `NAME.onnx` into one folder.

    Raises UsageError if `name` is not a plain name.
    """

    folder: Path
    name: str

    def __post_init__(self) -> None:
        if any(c in self.name for c in (os.sep, os.altsep or os.sep, "\0")):
            raise UsageError(f"'{self.name}' is not a plain file name.", "Name the folder with output_dir.")

    model = _Ending(MODEL_SUFFIX)
    model_data = _Ending(f"{MODEL_SUFFIX}.data")
    """External data of the stripped model; exists only for large models."""
    annotated = _Ending("_annotated.onnx")
    """For viewers, of `--annotate`; exists only for models that have no place for metadata themselves."""
    config = _Ending("_precision_config.json")
    cache = _Ending("_precision_config_calib.cache")
    layer_arg = _Ending("_precision_config_layer_arg.txt")
    report = _Ending("_report.json")
    parts = _Ending("_parts")
    """Folder of the parts, of `--parts`; exists only if it was cut."""

    def __iter__(self) -> Iterator[Path]:
        """Every file of the set, whether it exists or not."""
        return iter((self.model, self.model_data, self.annotated, self.config, self.cache, self.layer_arg, self.report))

    @classmethod
    def locate(cls, path: Union[str, Path], model: str = "", only_one: bool = False) -> TranslationFiles:
        """The translation that `path` names: a `NAME_noqdq.onnx`, or a folder.

        model: a path or name whose translation is meant if the folder contains several; by default the newest.
        only_one: a single translation in a folder is used for any model name.
        Raises UserError if there is none.
        """
        path = Path(path)
        clear_leftovers(path if path.is_dir() else path.parent, reader=True)
        if path.is_dir():
            return cls(path, _choose(path, cls.names_in(path), model_name(model) if model else "", only_one))
        if not path.name.endswith(MODEL_SUFFIX):
            if not path.exists():
                raise UserError(f"{path} does not exist.", "Run translate first, or name its output folder with -t.")
            raise UserError(f"{path} is not a translation.", f"Name the output folder or its NAME{MODEL_SUFFIX}.")
        if not path.is_file():
            raise UserError(f"{path} does not exist.", "Run translate first.")
        return cls(path.parent, path.name[: -len(MODEL_SUFFIX)])

    @staticmethod
    def names_in(folder: Path) -> list[str]:
        """The translations in a folder, the newest last."""
        found = [p for p in folder.iterdir() if p.name.endswith(MODEL_SUFFIX) and p.exists()]
        return [p.name[: -len(MODEL_SUFFIX)] for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.name))]

    def read_config(self) -> dict[str, Any]:
        return dict(read_json(self.config, config_schema(), _AGAIN))

    def read_report(self, *keys: str) -> dict[str, Any]:
        """The report as JSON, checked against its schema. keys: check these alone, which may be missing (checking a
        large report is slow)."""
        return dict(read_json(self.report, only(report_schema(), *keys) if keys else report_schema(), _AGAIN))

    def report_rows(self) -> Report:
        return read(Report, self.read_report())

    def report_parts(self, *keys: str) -> list[Any]:
        """The rows under these keys of the report, None for missing ones. Only those keys are checked."""
        return read_some(Report, self.read_report(*keys), keys)

    def manifest(self) -> Optional[CutParts]:
        """The parts that the translation was cut into, or is one of; None for neither. Raises UserError."""
        whole = self.name[: -len("_dla")] if self.name.endswith("_dla") else self.name
        for folder, name in ((self.parts, self.name), (self.folder, whole)):
            path = folder / f"{name}{SPLIT_SUFFIX}"
            if path.is_file():
                found = read_json(path, split_schema(), _AGAIN)
                for row in found["parts"]:
                    named_in(folder, row["file"], path)
                return read(CutParts, {"tail": (), "proof": None, **found, "folder": str(folder)})
        return None

    def read_cache(self) -> CalibrationCache:
        return CalibrationCache.from_text(read_text(self.cache, _AGAIN), str(self.cache))

    def read_layer_precisions(self) -> dict[str, str]:
        """Layer name -> precision. Raises UserError if the file cannot be read."""
        return _precisions(read_text(self.layer_arg, _AGAIN), str(self.layer_arg), _AGAIN)


def read_lone_cache(path: Path, model: Optional[Path]) -> tuple[CalibrationCache, frozenset[str]]:
    """A cache that is named without its set, for `model` (None: one in memory); and the tensors that the translated
    model quantized itself, by the config next to it.

    Raises UserError if the cache cannot be read, or if that config knows another cache or belongs to another model.
    Logs a warning if nothing shows that cache and model belong together.
    """
    text = read_text(path, "Check the path.")
    config = _config_of(path)
    wrote = config.get(DIGESTS_KEY, {}).get("cache")
    if wrote not in (None, digest_of_json(text)):
        what = f"{path.name} is not the file that was written with the precision config beside it."
        raise UserError(what, f"{_AGAIN[:-1]}, or move the config away if you changed the cache on purpose.")
    if wrote is None or not _is_of(config, model):
        words = "Nothing shows whether %s was made for %s: only the names of tensors are compared."
        logging.getLogger("qdq_translator").warning(words, path, model or "this model")
    origins = config.get("scale_origins", {})
    stated = frozenset(tensor for tensor, origin in origins.items() if origin.get("rule") in STATED)
    return CalibrationCache.from_text(text, str(path)), stated


def _config_of(cache: Path) -> dict[str, Any]:
    """The config next to a cache of this program, {} without one."""
    name, ending, rest = cache.name.rpartition("_precision_config_calib.cache")
    files = TranslationFiles(cache.parent, name)
    return files.read_config() if ending and not rest and files.config.is_file() else {}


def _is_of(config: Mapping[str, Any], model: Optional[Path]) -> bool:
    """True for the config of `model`, which is a stripped model or the one that was translated. Raises UserError for
    the config of another translation."""
    in_model = set_of_model(model) if model and model.is_file() else None
    known = config.get(SET_KEY)
    if in_model and known not in (None, in_model):
        raise UserError(f"{model} and the precision config beside the cache are of different translations.", _AGAIN)
    if in_model or model is None:
        return bool(in_model and known)
    return bool(config.get("source", {}).get("sha256", "") == file_digest(model) != "")


def read_layer_argument(given: str) -> dict[str, str]:
    """Layer name -> precision, from the value of --layerPrecisions or a file that holds it. Raises UserError."""
    text = read_text(Path(given), "Check the path.") if ":" not in given or Path(given).is_file() else given
    return _precisions(text, given, "It contains the value of --layerPrecisions: layer:fp16,layer:fp16.")


def _precisions(text: str, where: str, hint: str) -> dict[str, str]:
    try:
        return parse_layer_precisions(text)
    except ValueError as error:
        raise UserError(f"{where}: {error}.", hint) from error


def named_in(folder: Path, name: str, where: Path) -> Path:
    """The file `name` in `folder`, as the file `where` names it. Raises UserError if that is somewhere else."""
    try:
        return inside(folder, name)
    except ValueError as error:
        raise UserError(f"{where}: {error}.", _AGAIN) from error


def model_name(path: str) -> str:
    """'nets/a.onnx', 'a.onnx' and 'a' -> 'a'."""
    name = Path(path).name
    return name[: -len(".onnx")] if name.endswith(".onnx") else name


def _choose(folder: Path, names: list[str], model: str, only_one: bool) -> str:
    if not names:
        raise UserError(f"{folder} contains no translation (no file ends in {MODEL_SUFFIX}).", "Run translate first.")
    if not model or (only_one and len(names) == 1):
        split = [path.name[: -len(SPLIT_SUFFIX)] + "_dla" for path in folder.glob(f"*{SPLIT_SUFFIX}")]
        return next((name for name in split if len(split) == 1 and name in names), names[-1])
    if model not in names:
        shown = ", ".join(sorted(names)[:3]) + ("" if len(names) < 4 else ", ...")
        raise UserError(f"{folder} contains no translation of '{model}', only of {shown}.", "Select one with -i or -t.")
    return model


DIGESTS_KEY = "digests"
"""Of the precision config: digests of the cache and the layer argument, which have no room for the set's id."""
SET_KEY = "set"
"""Of the precision config and of the report's `integrity`."""
MODEL_KEY = "qdq_translator.set"
"""Of the stripped model's metadata."""
DIGITS, SET_DIGITS = 16, 32
_IN_MODEL = re.compile(re.escape(MODEL_KEY).encode() + rb"\x12.([0-9a-f]{%d})" % SET_DIGITS, re.DOTALL)
_LOOK = 2**20
"""Bytes at both ends of a model in which its metadata are looked for; other tools write them after the graph."""


def digest(parts: Iterable[bytes], digits: int = DIGITS) -> str:
    """Hex digits of a digest of byte strings; their boundaries count."""
    framed = b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)])
    return hashlib.sha256(framed).hexdigest()[:digits]


def digest_of_json(value: Any, digits: int = DIGITS) -> str:
    return digest([json.dumps(value, sort_keys=True).encode("utf-8", "surrogateescape")], digits)


def refuse_mixture(files: TranslationFiles, edited: bool = False) -> None:
    """Raises UserError if the files belong to different translations, or if the report knows another cache or layer
    argument (not with `edited`). Without a report, or if it has no set id, only the config can show this."""
    report = read_json(files.report, only(report_schema(), "integrity"), _AGAIN) if files.report.is_file() else {}
    config = read_json(files.config, only(config_schema(), SET_KEY), _AGAIN) if files.config.is_file() else {}
    wrote = report.get("integrity") or {}
    in_model = set_of_model(files.model)
    ids = [(files.config, config.get(SET_KEY)), (files.report, wrote.get(SET_KEY))]
    for path, found in ids if in_model else ():
        if path.is_file() and found != in_model:
            raise UserError(f"{path.name} and {files.model.name} are of different translations.", _AGAIN)
    for key, path in () if edited else (("cache", files.cache), ("layer_arg", files.layer_arg)):
        if key in wrote and path.is_file() and digest_of_json(read_text(path, _AGAIN)) != wrote[key]:
            raise UserError(
                f"{path.name} is not the file that was written with {files.report.name}.",
                f"{_AGAIN[:-1]}, or delete {files.report.name} if you changed the other on purpose.",
            )


def earlier_files(files: TranslationFiles) -> list[str]:
    """Names in the folder that belong to the set there now and that the next one may lack: external data, the annotated
    model, and the parts with their manifest. Only files that this program wrote."""
    found = [path for path in (files.model, files.annotated) if path.is_file() and set_of_model(path)]
    names = [path.name for path in found if path != files.model]
    if files.model in found:
        names.append(files.model_data.name)
    with contextlib.suppress(UserError):  # a manifest that is no manifest lists nothing
        cut = read_json(files.parts / f"{files.name}{SPLIT_SUFFIX}", split_schema(), _AGAIN)
        parts = [TranslationFiles(files.parts, row["file"][: -len(MODEL_SUFFIX)]) for row in cut["parts"]]
        own = [path for part in parts if part.model.is_file() and set_of_model(part.model) for path in part]
        names += [f"{files.parts.name}/{path.name}" for path in own]
        names.append(f"{files.parts.name}/{files.name}{SPLIT_SUFFIX}")
    return names


def set_of_model(path: Path) -> Optional[str]:
    """The set's id in a model's metadata; None if absent."""
    try:
        with open_file(path) as file:
            found = _IN_MODEL.search(file.read(_LOOK))
            if found is None:
                file.seek(max(0, file.seek(0, 2) - _LOOK))
                found = _IN_MODEL.search(file.read())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", _AGAIN) from error
    return found[1].decode() if found else None


def locate(path: str, model: str) -> TranslationFiles:
    """`TranslationFiles.locate`, with a logged note if it selected the newest of several.

    Raises UserError if its files do not belong together.
    """
    files = TranslationFiles.locate(path, model)
    if not model and Path(path).is_dir():
        number = len(TranslationFiles.names_in(files.folder))
        if number > 1 and files.manifest() is None:
            text = "%s holds %d translations; this is the newest, '%s'. -i MODEL chooses another."
            logging.getLogger("qdq_translator").warning(text, path, number, files.name)
    refuse_mixture(files)
    return files
