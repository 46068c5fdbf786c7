"""One visible step from the old files of a set to the new ones, in a folder that may also hold files of others.

New files are written and synced in a scratch folder next to their destination. Then each file that changes is replaced
with a symbolic link that leads through the link `now` of the scratch folder to the old files. Turning `now` to the new
files is the step, for every program. Last, the links are replaced with the new files. A run that ends in between leaves
links that show one set; the next run into the folder replaces them with what they show. Where links are not supported,
files are replaced one by one, and the next run, or the next reader of this program, completes that first.

A scratch folder is locked during its run; only folders of ended runs are cleared. On systems without locks (fcntl), a
run counts as ended after a day. Needs only Python.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import json
import os
import secrets
import shutil
import time
from pathlib import Path, PurePosixPath
from typing import Iterable, Iterator, Sequence

from qdq_translator.core.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SCRATCH = ".qdq_unfinished-"
"""What the names of scratch folders begin with."""
_NEW, _OLD, _NOW, _NEXT, _PLAN, _DONE = "new", "old", "now", "next", "plan", "done"
"""Inside a scratch folder: folders of the new and the replaced files; the link to one of them; the link that replaces
another; the names of the files that change; the same after the change."""
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
_PATIENCE = 10.0
"""Seconds to wait for another run that is just placing its files; then this run continues without the lock."""
_POLLED = 0.002
"""Seconds after which a lock is tried again: placing a set needs less time."""
_DAY = 24 * 3600.0


@contextlib.contextmanager
def appear_together(folder: Path, gone: Iterable[str] = (), unless_equal: bool = False) -> Iterator[Path]:
    """Provide a scratch folder; at the end its files, also those in its folders, appear in `folder` in one step.

    gone: names of files in `folder` that disappear in the same step unless they are written. unless_equal: nothing is
    changed if no file would differ. On any error no new file appears and the existing ones remain. In a nested scratch
    folder, files appear with those of the outer one. Raises UserError if `folder` cannot be written.
    """
    if any(part.startswith(SCRATCH) for part in folder.parts):  # the outer set holds the lock
        fresh = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield folder
        except BaseException:
            if fresh:  # the outer set may go on without these files
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return
    made, entered = _missing(folder), False
    with contextlib.ExitStack() as alive:
        try:
            alive.callback(_remove_empty, made)
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder):
                clear_leftovers(folder)
                scratch = folder / f"{SCRATCH}{secrets.token_hex(4)}"
                scratch.mkdir()
                alive.enter_context(_locked(scratch))
                alive.callback(_remove, scratch)
            (scratch / _NEW).mkdir()
            entered = True
            yield scratch / _NEW
            names = _on_disk(scratch / _NEW)  # while others may place their files
            with _locked(folder):
                old = [name for name in gone if name not in names and os.path.lexists(folder / name)]
                if old or not unless_equal or _differ(scratch / _NEW, folder, names):
                    _place(scratch, folder, names, old)
        except OSError as error:
            reason = error.strerror or error
            if not entered:
                raise UserError(f"The folder {folder} cannot be written: {reason}.", "Choose another.") from error
            remedy = "Nothing was changed there; free space or choose another folder."
            raise UserError(f"Writing to {folder} failed: {reason}.", remedy) from error


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Locks `path`, whose folder must exist, against other runs. Raises UserError if another run has the lock."""
    held = path.parent / f"{SCRATCH}{path.name}"
    with contextlib.ExitStack() as alive:
        try:
            with _locked(path.parent):
                clear_leftovers(path.parent)
                held.mkdir()
                alive.enter_context(_locked(held))
                # before the lock is released: the next run uses the same name
                alive.callback(shutil.rmtree, held, ignore_errors=True)
        except FileExistsError as error:
            raise UserError(
                f"Another run writes to {path} now.",
                f"Wait until it ends, or choose another folder. If no run is active, delete {held}.",
            ) from error
        except OSError as error:
            raise UserError(f"{path.parent} cannot be written: {error.strerror}.", "Choose another folder.") from error
        yield


def clear_leftovers(folder: Path, reader: bool = False) -> None:
    """Completes or undoes what ended runs left in `folder`, and removes their scratch folders. Errors are ignored:
    links stay readable, and the next run tries again. reader: without the lock of `folder`, so that scratch folders in
    which no step has begun may be those of a run that begins just now."""
    for scratch in sorted(folder.glob(f"{SCRATCH}*")):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # also of a damaged plan
            if (not reader or _has_begun(scratch)) and _is_own(scratch) and _is_dead(scratch):
                _settle(scratch, folder)
                _remove(scratch)


def destination(path: Path) -> Path:
    """The file that `path` names, through links of the user's; those that an ended run left are settled before, since
    they lead into its scratch folder."""
    clear_leftovers(path.parent)
    return Path(os.path.realpath(path))


def inside(folder: Path, name: str) -> Path:
    """`folder / name`. Raises ValueError if that is not inside `folder`: an absolute path, `..`, or a linked folder."""
    parts = PurePosixPath(name).parts
    if not parts or "\\" in name or "\0" in name or name[0] == "/" or ".." in parts or Path(name).drive:
        raise ValueError(f"{name!r} is no name of a file in a folder")
    root = os.path.realpath(folder)
    if os.path.commonpath([root, os.path.realpath((folder / name).parent)]) != root:
        raise ValueError(f"{name!r} leads through a link to another folder")
    return folder / name


# ---------------- the step


def _place(scratch: Path, folder: Path, names: Sequence[str], gone: Sequence[str]) -> None:
    """Raises OSError, with every file as it was."""
    for name in (*names, *gone):
        _check_target(folder, name)
    if len(names) == 1 and not gone:  # one file is replaced in one step without links
        target = folder / names[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(scratch / _NEW / names[0], target)
        _sync(target.parent)
        return
    try:
        if not _show_new(scratch, folder, names, gone):  # replaced one by one
            try:
                _settle(scratch, folder)
            except OSError:
                _point(scratch, _OLD)
                raise
    finally:
        with contextlib.suppress(OSError):  # then the links stay, and the next run replaces them
            _settle(scratch, folder)


def _check_target(folder: Path, name: str) -> None:
    """Raises UserError for a link, which the new file would replace, and OSError for a folder."""
    try:
        target = inside(folder, name)
    except ValueError as error:
        raise UserError(f"{folder}: {error}.", "Choose another folder.") from error
    if target.is_symlink():
        what = f"{target} is a link to {os.readlink(target)}, and a new file would replace it."
        raise UserError(what, "Remove the link, or choose another folder.")
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"{target} is a folder")


def _show_new(scratch: Path, folder: Path, names: Sequence[str], gone: Sequence[str]) -> bool:
    """Makes the new set visible through links; False if links are not supported: then the step is only recorded."""
    changed = [*names, *gone]
    folders = sorted({(folder / name).parent for name in changed})
    made = [os.path.relpath(path, folder) for parent in folders for path in _missing(parent)]
    with open(scratch / _PLAN, "wb") as file:
        file.write(json.dumps({"files": [*names], "gone": [*gone], "made": made}).encode("utf-8", "surrogateescape"))
    for name in changed:
        if os.path.lexists(folder / name):
            _keep(folder / name, scratch / _OLD / name)
    linked = _point(scratch, _OLD)
    _on_disk(scratch)
    for path in folders:
        path.mkdir(parents=True, exist_ok=True)
    for name in changed if linked else ():
        os.symlink(_through(scratch, name), scratch / _NEXT)
        os.replace(scratch / _NEXT, folder / name)
    for path in folders:
        _sync(path)
    _point(scratch, _NEW)
    _sync(scratch)
    return linked


def _settle(scratch: Path, folder: Path) -> None:
    """Puts the files that the links show in their place: the new ones after the step, else the old ones. Raises
    OSError."""
    now = scratch / _NOW
    linked = now.is_symlink()
    if not _has_begun(scratch):
        return
    forward = (os.readlink(now) if linked else now.read_text(encoding="utf-8")) == _NEW
    plan = json.loads((scratch / _PLAN).read_text(encoding="utf-8", errors="surrogateescape"))
    changed = [*((name, False) for name in plan["files"]), *((name, True) for name in plan["gone"])]
    for name, goes in changed:
        _put(scratch, folder, name, goes, forward, linked)
    for path in {(folder / name).parent for name, _ in changed}:
        if path.is_dir():
            _sync(path)
    os.replace(scratch / _PLAN, scratch / _DONE)
    left = {str(path) for name, goes in changed if goes and forward for path in PurePosixPath(name).parents} - {"."}
    _remove_empty(inside(folder, str(name)) for name in [*plan["made"], *sorted(left)])


def _put(scratch: Path, folder: Path, name: str, goes: bool, forward: bool, linked: bool) -> None:
    """One file of `_settle`. goes: the new set lacks it."""
    target, new, old = inside(folder, name), inside(scratch / _NEW, name), inside(scratch / _OLD, name)
    shown = target.is_symlink() and os.readlink(target) == _through(scratch, name)
    if linked and not shown:
        return  # it was put there before
    source = new if forward else old
    if os.path.lexists(source):
        os.replace(source, target)
    elif shown or (os.path.lexists(target) and goes == forward and not os.path.lexists(new)):
        os.unlink(target)


def _through(scratch: Path, name: str) -> str:
    """The text of the link that replaces the file `name`."""
    return "/".join([*[".."] * name.count("/"), scratch.name, _NOW, name])


def _point(scratch: Path, word: str) -> bool:
    """Turns `now` to the folder `word`; False where it had to be a file with that word instead of a link."""
    following, linked = scratch / _NEXT, True
    try:
        os.symlink(word, following)
    except (OSError, NotImplementedError) as error:
        if os.name != "nt" and getattr(error, "errno", errno.ENOSYS) not in _NO_LINKS:
            raise
        linked = False
        with open(following, "wb") as file:
            file.write(word.encode())
            file.flush()
            os.fsync(file.fileno())
    os.replace(following, scratch / _NOW)
    return linked


def _keep(path: Path, place: Path) -> None:
    """Hard-link a file, or copy it if the file system has no hard links."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, place, follow_symlinks=False)


# ---------------- folders


def _on_disk(folder: Path) -> list[str]:
    """The names of all files below `folder`, relative to it and sorted, after they and all folders were synced. Raises
    OSError, also for a folder that cannot be listed: its files would be missing."""

    def refuse(error: OSError) -> None:
        raise error

    files: list[Path] = []
    for root, _, names in os.walk(folder, onerror=refuse):
        for path in (Path(root, name) for name in names if not Path(root, name).is_symlink()):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            files.append(path)
        _sync(Path(root))
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _sync(folder: Path) -> None:
    """Writes the entries of a folder to the disk, if the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    finally:
        os.close(descriptor)


def _differ(new: Path, folder: Path, names: Sequence[str]) -> bool:
    return not all((folder / n).is_file() and filecmp.cmp(new / n, folder / n, shallow=False) for n in names)


def _missing(folder: Path) -> list[Path]:
    """`folder` and the folders above it that do not exist, the highest first."""
    found: list[Path] = []
    while not folder.exists() and folder != folder.parent:
        found.insert(0, folder)
        folder = folder.parent
    return found


def _remove_empty(folders: Iterable[Path]) -> None:
    for path in reversed([*folders]):
        with contextlib.suppress(OSError):
            path.rmdir()


def _remove(scratch: Path) -> None:
    """Removes a scratch folder, unless links still lead through it."""
    if _has_begun(scratch):
        return
    for name in (_OLD, _NEW, ""):  # `old` first: a scratch folder with it and without a plan is not known
        shutil.rmtree(scratch / name, ignore_errors=True)


def _has_begun(scratch: Path) -> bool:
    """True between the first change outside the scratch folder and the last."""
    return (scratch / _PLAN).is_file() and os.path.lexists(scratch / _NOW)


def _is_own(scratch: Path) -> bool:
    """True for a scratch folder with the files of this module and no others."""
    if scratch.is_symlink() or not scratch.is_dir():
        return False
    names = {*os.listdir(scratch)}
    if any((scratch / name).is_symlink() for name in (_OLD, _NEW, _PLAN)):
        return False
    return names <= {_NEW, _OLD, _NOW, _NEXT, _PLAN, _DONE} and (_OLD not in names or bool(names & {_PLAN, _DONE}))


def _is_dead(scratch: Path) -> bool:
    """True for a scratch folder whose run has ended: its lock is free."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            descriptor = os.open(scratch, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)
    with contextlib.suppress(OSError):
        return time.time() - scratch.stat().st_mtime > _DAY
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, if locks are supported."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        patient_until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > patient_until:
                    break
                time.sleep(_POLLED)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
