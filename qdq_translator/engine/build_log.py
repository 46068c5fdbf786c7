"""What a build log of trtexec or of a builder tells of layers (fact 3.8, 3.14, 4.3 to 5.13, 6.3c)."""

from __future__ import annotations

import dataclasses
import re

from qdq_translator.core.records import record


@record
class BuildLog:
    """What a build log tells. `fallbacks`: (layer, TensorRT's sentence); `set_precisions`: layer -> precision (10.x)."""

    dla: list[str] = dataclasses.field(default_factory=list)
    gpu: list[str] = dataclasses.field(default_factory=list)
    set_precisions: dict[str, str] = dataclasses.field(default_factory=dict)
    fallbacks: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    missing_scales: list[str] = dataclasses.field(default_factory=list)
    cache_rejected: bool = False


_PREFIX = re.compile(r"^(?:\[\d\d/\d\d/\d{4}-[\d:]+\]\s*)?(?:\[(?:[VIWEF]|TRT)\]\s*)*")
_SET_PRECISION = re.compile(r"^Set layer (.*) to precision (\w+)$")
_FALLBACKS = (
    re.compile(r"^(?:Default DLA is enabled but )?[Ll]ayer '?(?P<layer>.*?)'? is not supported on DLA"),
    re.compile(r"^(?P<layer>.+?): .*\bDLA (?:only )?(?:supports|requires|does not|cannot)"),
)
_MISSING = (
    re.compile(r"^Missing scale and zero-point for tensor (.*), expect fall back"),
    re.compile(
        r"^Rejecting some int8 implementation of layer .* due to missing int8 scales for tensor (.*) at (?:in|out)put"
    ),
)


def parse_log(text: str) -> BuildLog:
    """Reads the output of trtexec or of a builder, with or without time stamps."""
    log = BuildLog()
    for raw in text.splitlines():
        line = _PREFIX.sub("", raw).strip()
        if line.startswith("[DlaLayer] "):
            log.dla.append(line[len("[DlaLayer] ") :])
        elif line.startswith("[GpuLayer] "):
            log.gpu.append(re.sub(r"^[A-Z][A-Z_]*: ", "", line[len("[GpuLayer] ") :]))
        elif "Calibration table does not match calibrator algorithm type" in line:
            log.cache_rejected = True
        elif found := _SET_PRECISION.match(line):
            log.set_precisions[found[1]] = found[2]
        elif found := next(filter(None, (pattern.match(line) for pattern in _MISSING)), None):
            log.missing_scales.append(found[1])
        elif found := next(filter(None, (pattern.match(line) for pattern in _FALLBACKS)), None):
            log.fallbacks.append((found["layer"], line))
    log.fallbacks = list(dict.fromkeys(log.fallbacks))
    log.missing_scales = list(dict.fromkeys(log.missing_scales))
    return log
