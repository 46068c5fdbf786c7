"""Environments of their own, in the cache folder, for tools with heavy dependencies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Sequence

from .packages import Unavailable, cache

ROOT = Path(__file__).resolve().parents[2]


def ready(name: str) -> bool:
    """It can be used without an installation."""
    return bool(os.environ.get(f"QDQ_PRETRAINED_{name.upper()}")) or (cache() / name / "installed").is_file()


def python(name: str, *installs: Sequence[str]) -> str:
    """The interpreter that $QDQ_PRETRAINED_<NAME> names, else one in the cache folder, made when it is first asked for.

    installs: the arguments of `pip install`, one call each. Raises Unavailable.
    """
    named = os.environ.get(f"QDQ_PRETRAINED_{name.upper()}")
    if named:
        return named
    folder = cache() / name
    program = str(folder / "bin" / "python")
    if not (folder / "installed").is_file():
        print(f"Installing {name} into {folder}", file=sys.stderr, flush=True)
        run([sys.executable, "-m", "venv", str(folder)])
        for arguments in installs:
            run([program, "-m", "pip", "install", "-q", *arguments])
        (folder / "installed").touch()
    return program


def run(command: list[str]) -> None:
    """One program, from the root of the repository. Raises Unavailable with the last line of what it said."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200, env=clean, cwd=ROOT)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Unavailable(lines[-1] if lines else str(error)) from error
