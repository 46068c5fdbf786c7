"""`python -m tests.fuzz.crash_points [COMMAND ...]`: a command that writes B over A is killed before every call of the
operating system that changes something, and each call fails, once or with all later ones as on a full disk.

What the folder shows then is `old` (all files of A), `new` (all of B), `lost` (a file of A is missing, and it is not B) or
`mixed`; of a mixture every reader that accepts it is named. `stuck`: the next run does not tidy up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Callable

import onnx

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.switch import clear_leftovers
from tests.dla.check import graph, ints, pair, weights
from tests.fuzz.faults import KILLED, injected

SCRATCH = ".qdq_unfinished-"
PLATFORMS = ("jetpack-6.0", "jetpack-6.2")
SHORT_SEARCH = ("--passes", "2")
HOWS = ("killed", "fails", "disk full")


@dataclasses.dataclass(frozen=True)
class Case:
    """Functions of the folder `above` that of the output: its preparation, the command that writes A (0) or B (1) into
    the output, and the commands that read it."""

    prepare: Callable[[Path], object]
    write: Callable[[Path, int], list[str]]
    readers: Callable[[Path], list[list[str]]]


def quietly(arguments: list[str]) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return main(arguments)
        except SystemExit as error:
            return int(error.code or 0)


def well(arguments: list[str]) -> None:
    assert quietly(arguments) == 0, arguments


# ---------------------------------------------------------------- the commands


def _example(above: Path) -> None:
    shutil.copy(EXAMPLE_MODEL, above / "m.onnx")


def _with_tail(above: Path) -> None:
    """A network whose last layers are cut off for a DLA."""
    body = pair("x", "q") + "c = Conv (q, w)\n" + pair("c", "p") + "f = Reshape (p, to)\nt = Exp (f)\ny = Div (t, w0)"
    arrays = {"w": weights(1, 6, 3, 1, 1), "to": ints(0, 6, -1), "w0": weights(2, 1) + 9}
    onnx.save(graph("float[1,3,10,12] x", "float[b,h,k] y", body, **arrays), str(above / "m.onnx"))


def _two_translations(above: Path) -> None:
    _example(above)
    for which in (0, 1):
        well([*_translate(above, which), "-o", str(above / f"t{which}")])


def _bundle_and_answers(above: Path) -> None:
    """A bundle, and what two runs of a board sent back."""
    _example(above)
    deploy = ["deploy", str(above / "m.onnx"), "--board", PLATFORMS[1], "--skip", "verify", "-o", str(above / "out")]
    well([*deploy, "--target", "gpu"])
    import hashlib

    keys = {"model": "m_noqdq.onnx", "cache": "m_precision_config_calib.cache"}
    digests = {key: hashlib.sha256((above / "out" / name).read_bytes()).hexdigest() for key, name in keys.items()}
    for which in (0, 1):
        info = {"schema_version": 1, "status": 0, **digests, "board": f"board {which}"}
        members = {
            "board_info.txt": "".join(f"{key}={value}\n" for key, value in info.items()),
            "build.log": "[I] [TRT] x\n",
        }
        with tarfile.open(above / f"answers{which}.tar.gz", "w:gz") as archive:
            for name, text in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))


def _translate(above: Path, which: int, *more: str) -> list[str]:
    return ["translate", str(above / "m.onnx"), "-o", str(above / "out"), "--platform", PLATFORMS[which], *more]


def _parts(above: Path, which: int) -> list[str]:
    return _translate(above, which, "--on", "dla")


def _with_cache(above: Path, command: str, to: str) -> list[str]:
    out = above / "out"
    files = ["-i", str(out / "m_noqdq.onnx"), "-c", str(out / "m_precision_config_calib.cache")]
    return [*command.split(), *files, "-o", str(above / to)]


def _of_a_set(above: Path) -> list[list[str]]:
    verify = ["verify", "-i", str(above / "m.onnx"), "-t", str(above / "out"), "--samples", "1"]
    alone = [_with_cache(above, "explicit --for onnxruntime", "r.onnx"), _with_cache(above, "explicit", "r")]
    return [["report", "-t", str(above / "out")], ["build", "--print", "-t", str(above / "out")], verify, *alone]


def _restore(above: Path, which: int) -> list[str]:
    t, out = above / f"t{which}", above / "out" / "r.onnx"
    cache = str(t / "m_precision_config_calib.cache")
    return ["explicit", str(t / "m_noqdq.onnx"), "-c", cache, "--for", "onnxruntime", "-o", str(out)]


def _tune(above: Path, which: int) -> list[str]:
    """A translation, then a search that replaces it."""
    if not which:
        return _translate(above, 0)
    data = ["--data", str(EXAMPLE_SAMPLES), "--calibrate", str(EXAMPLE_SAMPLES), "--samples", "16"]
    goal = ["--max_drop", "100", *SHORT_SEARCH, "--platform", PLATFORMS[which]]
    return ["tune", "-i", str(above / "m.onnx"), *data, *goal, "-o", str(above / "out")]


def _readers(*words: str) -> Callable[[Path], list[list[str]]]:
    return lambda above: [[word.replace("OUT", str(above / "out")) for word in words]] if words else []


CASES = {
    "translate": Case(_example, _translate, _of_a_set),
    "translate --annotate": Case(_example, lambda above, w: _translate(above, w, *["--annotate"] * w), _of_a_set),
    "translate with parts": Case(_with_tail, _parts, _of_a_set),
    "explicit": Case(
        _example,
        lambda a, w: ["explicit", "-i", str(a / "m.onnx"), "-o", str(a / "out"), "--float_type", ("fp16", "fp32")[w]],
        _readers("report", "-t", "OUT/m_explicit.onnx"),
    ),
    "restore": Case(_two_translations, _restore, _readers()),
    "deploy": Case(
        _example,
        lambda a, w: ["deploy", str(a / "m.onnx"), "--board", PLATFORMS[w], "--skip", "verify", "-o", str(a / "out")],
        _of_a_set,
    ),
    "report": Case(
        _two_translations,
        lambda a, w: ["report", "-t", str(a / f"t{w}"), "--html", str(a / "out" / "page.html")],
        _readers(),
    ),
    "ingest": Case(
        _bundle_and_answers,
        lambda a, w: ["report", str(a / f"answers{w}.tar.gz"), "-t", str(a / "out")],
        _readers("report", "-t", "OUT", "--layer_info", "OUT/m_board.json"),
    ),
    "tune": Case(_example, _tune, _of_a_set),
}


# ---------------------------------------------------------------- the points


def shown(folder: Path) -> dict[str, bytes]:
    """What a program sees there; the journal of `tune`, which is of its next run only, aside."""
    found = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    kept = {n: p.read_bytes() for n, p in found.items() if SCRATCH not in n and ".sqlite" not in n}
    return {
        n: re.sub(rb'"seconds": [0-9.e-]+', b"", data) if n.endswith("_tune.json") else data for n, data in kept.items()
    }


def states(case: Case, above: Path, how: str, every: int) -> list[tuple[int, Path]]:
    """Copies of `above`, which holds A, after B was interrupted `how` at each `every`th call."""
    found: list[tuple[int, Path]] = []
    if how == "killed":
        begun = Path(shutil.copytree(above, f"{above}-run", symlinks=True))
        os.rename(above, f"{above}-kept")  # the command names its paths
        os.rename(begun, above)
        calls, busy = [0], [False]

        def tick() -> None:
            if not busy[0]:
                busy[0] = True
                if calls[0] % every == 0:
                    found.append((calls[0], Path(shutil.copytree(above, f"{above}-{calls[0]}", symlinks=True))))
                calls[0] += 1
                busy[0] = False

        with injected(tick):
            well(case.write(above, 1))
        shutil.rmtree(above)
        os.rename(f"{above}-kept", above)
        return found
    number = 0
    kept = Path(shutil.copytree(above, f"{above}-kept", symlinks=True))
    while _interrupted(case.write(above, 1), how, number):
        found.append((number, above.rename(f"{above}-{number}")))
        shutil.copytree(kept, above, symlinks=True)
        number += every
    shutil.rmtree(kept)
    return found


def _interrupted(arguments: list[str], how: str, number: int) -> bool:
    """Runs a command in a process of its own whose call `number` fails; False if it makes fewer calls."""
    child = os.fork()
    if not child:
        left = [number]

        def tick() -> None:
            left[0] -= 1
            if left[0] == -1 or (left[0] < 0 and how == "disk full"):
                code = errno.EIO if how == "fails" else errno.ENOSPC
                raise OSError(code, os.strerror(code))

        with contextlib.suppress(BaseException), injected(tick):
            quietly(arguments)
        os._exit(0 if left[0] >= 0 else KILLED)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def points(name: str, how: str, every: int = 1, again: int = 1) -> Counter[str]:
    """How many points of a command show what. again: the command runs again at each `again`th point that leaves something
    behind; at the others only the function that tidies up does."""
    case, counted = CASES[name], Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        above = Path(scratch) / "a"
        above.mkdir()
        case.prepare(above)
        well(case.write(above, 0))
        (above / "out" / "mine.txt").write_text("mine")
        old = shown(above / "out")
        done = Path(shutil.copytree(above, f"{above}-done", symlinks=True))
        os.rename(above, f"{above}-first")
        os.rename(done, above)
        well(case.write(above, 1))
        new = shown(above / "out")
        assert old != new, name
        shutil.rmtree(above)
        os.rename(f"{above}-first", above)
        for number, place in states(case, above, how, every):
            os.rename(above, f"{above}-aside")
            os.rename(place, above)
            counted[_outcome(case, above, old, new, number // every % again == 0)] += 1
            shutil.rmtree(above)
            os.rename(f"{above}-aside", above)
    return counted


def _outcome(case: Case, above: Path, old: dict[str, bytes], new: dict[str, bytes], again: bool) -> str:
    now = shown(above / "out")
    result = "old" if now == old else "new" if now == new else "lost" if old.keys() - now.keys() else "mixed"
    if result == "mixed":
        accepts = [reader[0] for reader in case.readers(above) if quietly(reader) == 0]
        result += f", accepted by {' and '.join(accepts)}" if accepts else ""
    if result in ("old", "new") and not any(p.name.startswith(SCRATCH) for p in above.rglob("*")):
        return result
    if again:
        well(case.write(above, 1))
    else:
        clear_leftovers(above)
        clear_leftovers(above / "out")
    left = [p for p in above.rglob("*") if SCRATCH in p.name or p.is_symlink()]
    return result if shown(above / "out") == (new if again else now) and not left else f"{result}, stuck"


def main_() -> None:
    for name in sys.argv[1:] or CASES:
        for how in HOWS:
            counted = points(name, how, again=10)
            told = "; ".join(f"{count} {what}" for what, count in counted.most_common())
            print(f"| {name} | {how} | {counted.total()} | {told} |", flush=True)


if __name__ == "__main__":
    main_()
