"""TensorRT's Python package, and all differences between its versions: nothing else of the project imports it.

| topic | 8.5, 8.6 | 10.x | 11 and later |
| --- | --- | --- | --- |
| networks with a batch dimension | need EXPLICIT_BATCH | only kind (flag ignored, fact 2.4) | no flag |
| size of the workspace | `max_workspace_size`, and memory pools | memory pools | memory pools |
| progress monitor | none | yes | yes |
| node of a parser error | number | number, name, operator | as 10.x |
| types, formats, pools | fewer | more, by name (2.5: never by number) | |
| parser flags for DLA | none | from 10.15 | yes |
| INT8, FP16, calibrators, ranges, layer precisions | yes | yes, deprecated (fact 2.11) | removed (fact 0.1) |

Features of both 8.6 and 10.x (memory pools, `build_serialized_network`, tensor names instead of bindings) are used
directly.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
from typing import Any, Iterable

from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.translation.files.trtexec.request import POOLS, TYPES_10
from qdq_translator.translation.targets.platforms import cache_version

OLDEST = (8, 5)
"""JetPack 5.1 and DRIVE OS 6.0.6 have 8.5; the binding modules used by the tests begin with 8.6."""

MIB = 1 << 20


def how_to_install(explicit: bool) -> str:
    """One sentence on how to install TensorRT on this machine. explicit: for a Q/DQ network, which 11 builds too."""
    if platform.machine() in ("aarch64", "arm64"):
        return (
            "On a Jetson it is part of JetPack (do not pip install it there: "
            "'sudo apt install python3-libnvinfer', and a virtual environment with --system-site-packages)."
        )
    wanted = "10" if explicit else "8.6,<11"
    return (
        f"On a PC with an NVIDIA GPU: pip install 'tensorrt>={wanted}'; on a Jetson it is part of JetPack, "
        "do not pip install it there."
    )


def load(engine: str = "tensorrt", explicit: bool = False) -> Api:
    """The installed TensorRT, or TensorRT-RTX (engine 'rtx': a GPU, no DLA). explicit: implicit INT8 is not needed.

    Raises MissingDependency if it is missing or does not load, UserError for versions without implicit INT8.
    """
    name, remedy = "tensorrt", how_to_install(explicit)
    if engine == "rtx":
        name = "tensorrt_rtx_bindings.tensorrt_rtx"
        remedy = "python -m pip install --no-deps tensorrt-rtx-cu12-libs tensorrt-rtx-cu12-bindings (Linux on x86-64)."
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:
        if getattr(error, "name", "") == "tensorrt" and isinstance(error, ModuleNotFoundError):
            raise MissingDependency("TensorRT's Python package is not installed here.", remedy) from error
        raise MissingDependency(f"TensorRT{'-RTX' * (engine == 'rtx')} does not load: {error}.", remedy) from error
    return Api(module, explicit)


class Api:
    """One version of TensorRT: `trt` is its module, the methods hide version differences.

    explicit: Q/DQ networks are built, strongly typed if this version requires it. Raises UserError for versions without
    implicit INT8 if it is needed.
    """

    def __init__(self, trt: Any, explicit: bool = False) -> None:
        self.trt = trt
        self.is_rtx = "rtx" in str(getattr(trt, "__name__", ""))
        words = str(getattr(trt, "__version__", "")) or importlib.metadata.version("tensorrt-rtx-cu12-bindings")
        numbers = [int(n) for n in re.findall(r"\d+", words)[:3]] + [0, 0]
        self.version: tuple[int, int, int] = (numbers[0], numbers[1], numbers[2])
        self.has_implicit = self.version[0] < 11 and not self.is_rtx and hasattr(trt.BuilderFlag, "INT8")
        if not self.has_implicit and explicit:
            return
        if not self.has_implicit:
            raise UserError(
                f"TensorRT {self.dotted} has no implicit INT8: version 11 removed calibration, ranges and layer "
                "precisions.",
                "Write a Q/DQ network with 'qdq-translator explicit' and build it strongly typed: build "
                "NAME_explicit.onnx. Or build with TensorRT 8.6 to 10.x.",
            )
        if self.version[:2] < OLDEST:
            raise UserError(
                f"TensorRT {self.dotted} is too old for this builder.",
                "Use 8.6 to 10.x, or 'qdq-translator build --print'.",
            )

    @property
    def dotted(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def cache_number(self) -> str:
        """The version number in the header of a calibration cache (fact 1.2)."""
        return cache_version(self.version)

    @property
    def product(self) -> str:
        """'TensorRT 10.3.0' or 'TensorRT-RTX 1.7.1'."""
        return f"TensorRT{'-RTX' if self.is_rtx else ''} {self.dotted}"

    def network_flags(self, strongly_typed: bool) -> int:
        """The bit mask for `Builder.create_network`, which differs from version to version."""
        if strongly_typed:
            return 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)  # by name: 1 in 10.x, 0 in 11
        if self.version[0] >= 10 or self.is_rtx:
            return 0
        return 1 << int(self.trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)

    @property
    def has_progress_monitor(self) -> bool:
        return hasattr(self.trt, "IProgressMonitor")

    def flag(self, name: str) -> Any:
        """A BuilderFlag."""
        return self._member("BuilderFlag", name, f"builder flag {name}")

    def parser_flags(self, names: Iterable[str]) -> list[Any]:
        """OnnxParserFlags by name, in any case. Raises UserError for flags that this version lacks."""
        return [self._member("OnnxParserFlag", name.upper(), f"parser flag {name}") for name in names]

    def data_type(self, key: str) -> Any:
        """trtexec's name of a type ('fp16') -> DataType."""
        return self._member("DataType", TYPES_10.get(key, key.upper()), f"type {key}")

    def format_mask(self, keys: Iterable[str]) -> int:
        """trtexec's names of formats ('chw', 'dla_hwc4') -> the value for `ITensor.allowed_formats`."""
        mask = 0
        for key in keys:
            name = "LINEAR" if key == "chw" else key.upper()
            mask |= 1 << int(self._member("TensorFormat", name, f"tensor format {key}"))
        return mask

    def pool(self, key: str) -> Any:
        """trtexec's name of a memory pool -> MemoryPoolType."""
        return self._member("MemoryPoolType", POOLS.get(key, key).upper(), f"memory pool {key}")

    def is_float(self, data_type: Any) -> bool:
        """True for the types that can have a range and a precision (fact 1.13)."""
        return data_type in (self.trt.DataType.FLOAT, self.trt.DataType.HALF)

    def describe_parser_error(self, error: Any) -> str:
        """TensorRT's message, with the node that it concerns."""
        text = str(error.desc()).strip()
        if hasattr(error, "node_name") and error.node_name():
            return f"{text} (node '{error.node_name()}', {error.node_operator()})"
        return f"{text} (node {error.node()})" if error.node() >= 0 else text

    def _member(self, enum: str, name: str, what: str) -> Any:
        """An enum member. Raises UserError that lists all members."""
        known = getattr(self.trt, enum).__members__
        if name not in known:
            raise UserError(
                f"TensorRT {self.dotted} has no {what}.",
                f"It has {', '.join(known)}." if len(known) < 20 else "Leave it out.",
            )
        return known[name]
