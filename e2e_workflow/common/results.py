"""The tables the workflows print and write to results.md, with the machine they were made on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first two columns are text, the others are numbers and align right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    left = [i < 2 for i in range(len(header))]
    lines = [
        [cell.ljust(width) if text else cell.rjust(width) for cell, width, text in zip(row, widths, left)]
        for row in [header, *rows]
    ]
    rule = ["-" * width if text else "-" * (width - 1) + ":" for width, text in zip(widths, left)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def machine(packages: list[str]) -> str:
    """One sentence: processor, system and package versions; nothing that names the computer."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"Made on: {_processor()}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}; {versions}. ONNX Runtime's graph optimizations were off."
    )


def write(path: Path, command: str, text: str, packages: list[str]) -> None:
    """results.md: the command that writes it, the machine, the text."""
    path.write_text(f"# Results\n\nWritten by `{command}`.\n\n{machine(packages)}\n\n{text}\n", encoding="utf-8")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
