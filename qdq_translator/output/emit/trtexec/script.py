"""A POSIX script that builds a translation with trtexec; its text is `build.sh`, with @WORDS@ filled in."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Sequence

from qdq_translator.output.emit.trtexec.checks import Settings
from qdq_translator.output.emit.trtexec.command import Argument
from qdq_translator.output.emit.trtexec.request import dotted

_TEMPLATE = Path(__file__).with_name("build.sh")
_WILDCARD_CHECK = """    if [ "$major" -lt 10 ]; then
        fail "The layer list contains wildcards, which TensorRT $major ignores. Write the script with --trt_version 8.6."
    fi
"""


def shell_script(settings: Settings, arguments: Sequence[Argument], folder: Path) -> str:
    """A POSIX script that lies in `folder`: checks files and version, corrects the cache header in a copy, runs trtexec.

    Paths are relative to the script, so that script and files can be copied to a board together; absolute ones stay
    where they are neither in the script's folder nor in the translation's.
    """

    def path(value: str) -> str:
        if os.path.isabs(value) and not any(_lies_in(value, place) for place in (settings.files.folder, folder)):
            return shlex.quote(value)
        return '"$here"/' + shlex.quote(os.path.relpath(os.path.abspath(value), os.path.abspath(folder)))

    layers = next((a for a in arguments if a.flag == "--layerPrecisions"), None)
    by_file = layers is not None and (layers.kind == "content" or "*" not in layers.value)
    words = []
    for argument in arguments:
        if argument.flag == "--onnx":
            words.append('--onnx="$model"')
        elif argument.flag == "--calib":
            words.append('--calib="$cache"')
        elif argument is layers and by_file:
            words.append('--layerPrecisions="$(cat -- "$layers")"')
        elif argument.kind == "path":
            words.append(f"{argument.flag}={path(argument.value)}")
        else:
            words.append(shlex.quote(argument.plain()))
    fields = {
        "@NAME@": re.sub(r"[^ -~]", "?", settings.files.name),
        "@VERSION@": dotted(settings.version),
        "@MODEL@": path(str(settings.files.model)),
        "@CACHE@": path(str(settings.files.cache)),
        "@LAYERS@": path(str(settings.files.layer_arg)) if by_file else "''",
        "@WILDCARDS@": _WILDCARD_CHECK if layers is not None and not by_file else "",
        "@ARGUMENTS@": " \\\n    ".join(words),
    }
    return re.sub("|".join(fields), lambda match: fields[match[0]], _TEMPLATE.read_text(encoding="utf-8"))


def _lies_in(path: str, folder: Path) -> bool:
    return os.path.commonpath([os.path.abspath(path), os.path.abspath(folder)]) == os.path.abspath(folder)
