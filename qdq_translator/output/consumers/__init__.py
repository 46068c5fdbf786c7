"""Programs that run a network on a board, one module each: which files each of them reads, under the keys of its public documentation.

A consumer is a module with `TITLE`, `SOURCES` (its public pages), `OWN_MODEL` (it builds from the user's own ONNX file), and two functions:
`refuse(bundle)`, the reason why it cannot run the network or '', and `write(bundle)`, its files in `bundle.folder` and the steps for the
page. A new one is a module, a name in `NAMES` and a test.
"""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any, Mapping, Optional, Protocol, Sequence

from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.targets.platforms import Platform

NAMES = ("trtexec", "python", "cudla", "deepstream", "ultralytics", "onnxruntime", "triton")


@dataclasses.dataclass(frozen=True)
class End:
    """An input or output of the network as the application sees it. scale: of INT8 values, None for floats only."""

    name: str
    shape: tuple[int, ...]
    scale: Optional[float]


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A consumer's inputs. folder: of the bundle. files: the translation in it; loadable: the same for the part that a
    DLA runs alone. model: the ONNX file that a consumer builds from, with `cache` for it and `layers` in FP16;
    image_std, image_mean: of [0, 1]."""

    name: str
    folder: Path
    platform: Platform
    target: str
    dla_core: int
    files: TranslationFiles
    loadable: Optional[Bundle]
    model: Path
    cache: Path
    fp16_layers: Sequence[str]
    gpu_layers: frozenset[str]
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    image_mean: tuple[float, ...] = (0.0,)
    image_std: tuple[float, ...] = (1.0,)
    board_inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Input -> file of one sample, raw float32."""

    @property
    def on_dla(self) -> bool:
        return self.target != "gpu"

    def relative(self, path: Path, start: str = "") -> str:
        """As seen from the bundle, or from a folder in it."""
        import os

        return os.path.relpath(path, self.folder / start)

    def write(self, path: str, text: str, mode: int = 0o666) -> None:
        from qdq_translator.core.disk import write_file

        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / path, text.encode("utf-8", "surrogateescape"), mode)


class Consumer(Protocol):
    TITLE: str
    SOURCES: tuple[str, ...]
    OWN_MODEL: bool

    def refuse(self, bundle: Bundle) -> str: ...

    def write(self, bundle: Bundle) -> list[str]: ...


def find(name: str) -> Consumer:
    """Raises UsageError for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise UsageError(f"There is no consumer '{name}'.", f"Consumers are {', '.join(NAMES)}.")
    module: Any = importlib.import_module(f"{__name__}.{name}")
    return module  # type: ignore[no-any-return]
