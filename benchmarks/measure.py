"""Whole processes, timed from outside: wall time, CPU time and peak memory as the operating system accounts them."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Callable

ROOT = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Run:
    """seconds: wall time; peak: largest resident memory in bytes; cpu: seconds of user and system."""

    seconds: float
    peak: int
    cpu: float


def least(commands: list[list[str]], repeats: int) -> list[Run]:
    """The least that each command took: other work on the machine adds, and adds to all alike."""
    return _in_turns(commands, repeats, min, lambda: None)


def middle(commands: list[list[str]], repeats: int, before: Callable[[], None]) -> list[Run]:
    """The median of what each command took, where what disturbs comes and goes for minutes. before: called before each run."""
    return _in_turns(commands, repeats, median, before)


def once(commands: list[list[str]]) -> list[Run]:
    """One run of each, where memory counts and time only roughly."""
    return [_once(argv) for argv in commands]


def _in_turns(
    commands: list[list[str]], repeats: int, of: Callable[[list[float]], float], before: Callable[[], None]
) -> list[Run]:
    """What `of` makes of the runs of each command, all commands in turns after a warm-up; of the peaks the largest."""

    def run(argv: list[str]) -> Run:
        before()
        return _once(argv)

    rounds = [[run(argv) for argv in commands] for _ in range(repeats + 1)][1:]
    return [
        Run(of([r.seconds for r in runs]), max(r.peak for r in runs), of([r.cpu for r in runs]))
        for runs in zip(*rounds)
    ]


def _once(argv: list[str]) -> Run:
    # modules are compiled once for all runs, as they are where somebody installs the program
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, env=environment)
    assert process.stderr is not None
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{argv} failed: {error.decode(errors='replace')}")
    return Run(time.perf_counter() - start, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)


def load() -> str:
    """How much else there is to do: processes that run or wait for the processor, over the last minute."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""


def machine() -> str:
    """One line: processor, cores, memory, system, Python."""
    model = platform.processor() or platform.machine()
    memory = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores{memory}, {platform.system()}, Python {platform.python_version()}"


LOAD_SAVE = "import onnx, sys; onnx.save(onnx.load(sys.argv[1]), sys.argv[2])"


def load_and_save(model: Path, target: Path) -> list[str]:
    """The yardstick: `onnx.load` and `onnx.save` of the same file in a process of its own."""
    return [sys.executable, "-c", LOAD_SAVE, str(model), str(target)]


def translate(model: Path, folder: Path, *flags: str) -> list[str]:
    return [sys.executable, str(ROOT / "qdq_translator.py"), "-i", str(model), "-o", str(folder), *flags]
