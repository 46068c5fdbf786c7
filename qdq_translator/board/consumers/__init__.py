"""Programs that run a network on a board, one module each, which writes the files that the program reads.

A consumer is a module with `TITLE`, `SOURCES` (its public pages) and `write(bundle)`, which writes its files into
`bundle.folder` and returns the steps for the page. If they apply: `refuse(bundle)`, why it cannot run the network or
'', and `OWN_MODEL = True`: it builds from the user's own ONNX file. A new one is a module, a name in `NAMES` and a
test.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from pathlib import Path
from typing import Any, Mapping, Optional

from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.translation.files.buffers import End
from qdq_translator.translation.targets.platforms import Platform

NAMES = ("trtexec", "python", "cudla", "deepstream", "ultralytics", "onnxruntime", "triton")


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A consumer's inputs. folder: of the bundle. files: the translation in it. loadable: the same for the part that a
    DLA runs alone. image_std, image_mean: for pixels in [0, 1]. resize,
    colors: as `ImageOptions`."""

    name: str
    folder: Path
    platform: Platform
    target: str
    dla_core: int
    files: TranslationFiles
    loadable: Optional[Bundle]
    gpu_layers: frozenset[str]
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    image_mean: tuple[float, ...] = (0.0,)
    image_std: tuple[float, ...] = (1.0,)
    resize: str = "stretch"
    colors: str = "rgb"
    board_inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Input -> file with one sample in raw float32."""

    @property
    def on_dla(self) -> bool:
        return self.target != "gpu"

    def relative(self, path: Path, start: str = "") -> str:
        """The path relative to the bundle, or to a folder in it."""
        return os.path.relpath(path, self.folder / start)

    def write(self, path: str, text: str, mode: int = 0o666) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / path, text.encode("utf-8", "surrogateescape"), mode)


def find(name: str) -> Any:
    """The module of a consumer. Raises UsageError for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise UsageError(f"There is no consumer '{name}'.", f"Consumers are {', '.join(NAMES)}.")
    return importlib.import_module(f"{__name__}.{name}")
