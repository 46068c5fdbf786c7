"""The files of a bundle: which of them `deploy` wrote, which it can keep, and which are the user's."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Sequence

from qdq_translator._version import __version__
from qdq_translator.core.disk import file_digest, write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.schemas import DEPLOY, read_json
from qdq_translator.core.options import TranslateOptions, effective
from qdq_translator.core.switch import SCRATCH, clear_leftovers, inside

MANIFEST = "deploy.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The content of a bundle's manifest, {} without one. Raises UserError for another content, and for names of files
    that would not be in the bundle."""
    clear_leftovers(folder, reader=True)
    path = folder / MANIFEST
    if not path.exists():
        return {}
    hint = "Choose another folder with -o, or move that one away."
    found: dict[str, Any] = read_json(path, DEPLOY, hint)
    try:
        for step in ({"files": found.get("files", {})}, *found["steps"].values()):
            for name in step["files"]:
                inside(folder, name)
    except ValueError as error:
        raise UserError(f"{path}: {error}.", hint) from error
    return found


def check_folder(folder: Path) -> None:
    """Raises UserError if the folder contains anything but a bundle."""
    holds = [path for path in folder.iterdir() if not path.name.startswith(SCRATCH)] if folder.is_dir() else []
    if (holds or (folder.exists() and not folder.is_dir())) and not (folder / MANIFEST).is_file():
        raise UserError(f"{folder} exists and is not a bundle of deploy.", "Choose another folder with -o.")


class Steps:
    """Steps that write files into a new folder, or reuse those of the earlier bundle."""

    def __init__(self, before: Path, inputs: Sequence[Any], say: Callable[[str], None]) -> None:
        """Begin the steps of a bundle. before: folder of the last run. inputs: values of JSON types on which every step
        depends."""
        manifest = read_manifest(before)
        self.before, self.say, self.inputs = before, say, [__version__, *inputs]
        self.old: dict[str, Any] = manifest.get("steps", {})
        self.wrote: dict[str, str] = manifest.get("files", {})
        self.knows_all = not manifest or "files" in manifest  # manifests of version 0.3 list files of steps only
        self.made: dict[str, Any] = {}
        self.redone: list[str] = []

    @property
    def gone(self) -> list[str]:
        """Files of the earlier bundle as they were written. The user's own, and those that were edited, stay."""
        return [name for name, digest in self.wrote.items() if _digest(self.before / name) == digest]

    def run(self, work: Path, name: str, options: TranslateOptions, make: Callable[[], object]) -> None:
        key = hashlib.sha256(json.dumps([*self.inputs, name, effective(options)], sort_keys=True).encode()).hexdigest()
        old = self.old.get(name, {})
        if old.get("key") == key and all(_digest(self.before / file) == d for file, d in old["files"].items()):
            for file in old["files"]:
                (work / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.before / file, work / file)
            self.made[name] = old
            self.say(f"{name}: as before")
            return
        self.say(f"{name} ...")
        there = {*_files_in(work)}
        make()
        files = {file: _digest(work / file) for file in _files_in(work) if file not in there}
        self.made[name] = {"key": key, "files": files}
        self.redone.append(name)

    def finish(self, work: Path) -> None:
        """Writes the manifest and leaves out what the user edited. Raises UserError for a file of the user that a new
        one would replace."""
        files = {file: _digest(work / file) for file in _files_in(work)}
        of_steps = {file for step in self.old.values() for file in step["files"]}  # made again if they were edited
        for file in sorted(files.keys() - of_steps) if self.knows_all else ():
            now, wrote = self.before / file, self.wrote.get(file)
            if not now.exists() or _digest(now) in (files[file], wrote):
                continue
            if wrote != files[file]:
                what = f"{now} is not as deploy wrote it, and the new bundle has another one."
                raise UserError(what, "Move it away, or choose another folder with -o.")
            (work / file).unlink()
            self.say(f"{file}: kept as you edited it")
        about = {"schema_version": 1, "kind": "qdq-translator deploy", "generator": f"qdq-translator {__version__}"}
        write_json(work / MANIFEST, {**about, "steps": self.made, "files": dict(sorted(files.items()))})
        read_manifest(work)


def _digest(path: Path) -> str:
    """'' for a link: what it leads to is not of the bundle."""
    return "" if path.is_symlink() else file_digest(path)


def _files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
