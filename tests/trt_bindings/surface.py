"""What the Python bindings of each TensorRT version have, recorded from the real modules: classes, signatures, enums.

`module(version)` stands for `import tensorrt` where the bindings are not: the doubles (doubles.py) refuse what the version
lacks, and a build can be watched in the process of a test. tests/test_build_bindings.py compares the record with the real modules.
"""

from __future__ import annotations

import enum
import functools
import gzip
import json
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

from tests.trt_bindings.doubles import SIGNATURE

FILE = Path(__file__).resolve().parents[1] / "data" / "trt_surface.json.gz"
_CLASSES = (
    "Builder", "EngineInspector", "IBuilderConfig", "ICudaEngine", "IExecutionContext", "IHostMemory", "IInt8Calibrator",
    "IInt8EntropyCalibrator2", "ILayer", "ILogger", "INetworkDefinition", "IOptimizationProfile", "IProgressMonitor", "ITensor",
    "ITimingCache", "OnnxParser", "ParserError", "Runtime",
)  # fmt: skip
_ENUMS = (
    "BuilderFlag", "CalibrationAlgoType", "DataType", "DeviceType", "EngineCapability", "ILogger.Severity", "LayerInformationFormat",
    "LayerType", "MemoryPoolType", "NetworkDefinitionCreationFlag", "OnnxParserFlag", "ProfilingVerbosity", "TensorFormat", "TensorIOMode",
)  # fmt: skip
_CALLBACKS = ("ILogger", "IInt8EntropyCalibrator2", "IProgressMonitor")


def of(trt: Any) -> dict[str, Any]:
    """What is recorded of a module: class -> member -> its signatures, or for a property the setter's in a list."""
    found: dict[str, Any] = {"__version__": trt.__version__}
    for name in _CLASSES:
        kind = getattr(trt, name, None)
        members = [m for m in dir(kind) if m[0] != "_" or m == "__init__"] if kind is not None else []
        found[name] = {member: _signatures(getattr(kind, member)) for member in members}
    for name in _ENUMS:
        kind = functools.reduce(lambda space, part: getattr(space, part, None), name.split("."), trt)
        found[name] = {member: int(value) for member, value in getattr(kind, "__members__", {}).items()}
    return found


def _signatures(member: Any) -> Any:
    if isinstance(member, property):
        return [member.fset and member.fset.__doc__.strip()]
    return [line.strip() for line in (member.__doc__ or "").splitlines() if SIGNATURE.match(line.strip())] or ""


@functools.lru_cache(maxsize=None)
def recorded() -> dict[str, Any]:
    """Version -> its record."""
    return dict(json.loads(gzip.decompress(FILE.read_bytes())))


def module(version: str) -> Any:
    """The recorded classes of a version; a builder cannot start, as without a GPU."""
    made, record = ModuleType("tensorrt"), recorded()[version]
    made.__version__, made.RECORDED = record["__version__"], True  # type: ignore[attr-defined]
    for name in _CLASSES:
        if record[name]:
            members = {member: _member(name, member, given) for member, given in record[name].items()}
            bases = (made.IInt8Calibrator,) if name == "IInt8EntropyCalibrator2" else ()
            setattr(made, name, type(name, bases, members))
    for name in _ENUMS:
        owner, _, short = name.rpartition(".")
        if record[name]:
            setattr(getattr(made, owner) if owner else made, short, enum.IntEnum(short, record[name]))
    return made


def _member(kind: str, name: str, given: Any) -> Any:
    """given: see `of`. Methods of what our classes derive from call the derived class, as those of C++ do."""
    if isinstance(given, list) and len(given) == 1 and (given[0] is None or given[0].startswith("(")):

        def setter(self: Any, value: Any) -> None: ...

        setter.__doc__ = given[0]
        return property(lambda self: None, setter if given[0] else None)

    def method(self: Any, *arguments: Any) -> Any:
        if kind == "Builder":
            raise TypeError("pybind11::init(): factory function returned nullptr")
        derived: Callable[..., Any] = getattr(type(self), name)
        return derived(self, *arguments) if kind in _CALLBACKS and name != "__init__" else None

    method.__doc__ = "\n".join(given)
    return method


class Calibrator:
    """What virtual_calls.Calibrator does with a real one."""

    def __init__(self, calibrator: Any) -> None:
        self.of = calibrator

    def algorithm(self) -> int:
        return 2  # of IInt8EntropyCalibrator2

    def batch_size(self) -> int:
        return int(self.of.get_batch_size())

    def cache(self) -> bytes:
        return bytes(self.of.read_calibration_cache())

    def batch(self, name: bytes) -> bool:
        return self.of.get_batch([name.decode()]) is not None

    def write(self, data: bytes) -> None:
        self.of.write_calibration_cache(data)


if __name__ == "__main__":  # python -m tests.trt_bindings.surface FOLDER_OF_BINDINGS: records them anew
    import sys
    import tempfile

    from tests.trt_bindings.wheels import WHEELS, prepare, run_scenarios

    with tempfile.TemporaryDirectory() as work:
        places = {version: prepare(version, Path(sys.argv[1])) for version in WHEELS}
        made = {version: run_scenarios(place, Path(work))["surface"] for version, place in places.items()}
    FILE.write_bytes(gzip.compress(json.dumps(made).encode(), 9, mtime=0))
