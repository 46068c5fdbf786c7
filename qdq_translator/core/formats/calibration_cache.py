"""TensorRT calibration caches: written exactly, read tolerantly.

A cache is text: a header `TRT-<number>-<algorithm>`, then `<tensor>: <hex>` lines. The hex digits are the IEEE-754
binary32 of the SCALE (amax / 127), most significant digit first (fact 1.1). Names may hold ':' and spaces,
so a line is split at its last ':' (fact 1.8).
"""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from typing import Iterable, Mapping

from qdq_translator.core.errors import UserError

ENTROPY_CALIBRATION_2 = "EntropyCalibration2"
"""The algorithm that trtexec's own calibrator and the DLA require (fact 1.5)."""

ALGORITHMS = {
    "entropy2": ENTROPY_CALIBRATION_2,
    "minmax": "MinMaxCalibration",
    "entropy": "EntropyCalibration",
    "legacy": "LegacyCalibration",
}
"""`--cache_algorithm` -> the word of the header, which has to be that of the calibrator that reads the cache. The last
two are inferred from the names of the API; no cache of theirs was seen (fact 1.4)."""

_HEADER = re.compile(r"TRT-(\w+)-(\w+)\s*$")  # some tools write TRT-8XXX
_SMALLEST_NORMAL = struct.unpack(">f", bytes.fromhex("00800000"))[0]


def scale_to_hex(scale: float) -> str:
    """8 hex digits of the float32 nearest to `scale`."""
    return struct.pack(">f", scale).hex()


def hex_to_scale(digits: str) -> float:
    """The float32 behind 1 to 8 hex digits; missing leading digits are zeros (fact 1.7).

    Raises ValueError on anything else.
    """
    if not re.fullmatch(r"[0-9a-fA-F]{1,8}", digits):
        raise ValueError(f"'{digits}' is not a hexadecimal float32")
    value: float = struct.unpack(">f", bytes.fromhex(digits.zfill(8)))[0]
    return value


def is_usable(scale: float) -> bool:
    """True for positive normal float32 numbers, the only ones that may be written (fact 1.12)."""
    return math.isfinite(scale) and scale >= _SMALLEST_NORMAL


@dataclasses.dataclass
class CalibrationCache:
    """`scales`: tensor name -> scale, in file order (float32 values held in Python floats).

    `unreadable` contains the lines that could not be parsed: (line number, line).
    """

    version: str
    scales: dict[str, float]
    algorithm: str = ENTROPY_CALIBRATION_2
    unreadable: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    @property
    def header(self) -> str:
        return f"TRT-{self.version}-{self.algorithm}"

    def to_text(self) -> str:
        """The file's content. Raises ValueError on a scale or a name that no reader would accept."""
        lines = [self.header]
        for name, scale in self.scales.items():
            if not is_usable(scale):
                raise ValueError(f"scale {scale} of '{name}' cannot be written to a calibration cache")
            if "\n" in name or "\r" in name or not name:
                raise ValueError(f"tensor name {name!r} cannot be written to a calibration cache")
            lines.append(f"{name}: {scale_to_hex(scale)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str, origin: str = "calibration cache") -> CalibrationCache:
        """Reads real caches: short hex, CRLF, names with ':' and blanks, inf entries (the last of two equal names
        wins).

        Raises UserError if the text contains no entry at all.
        """
        version, algorithm = "", ENTROPY_CALIBRATION_2
        scales: dict[str, float] = {}
        unreadable: list[tuple[int, str]] = []
        for number, raw in enumerate(text.split("\n"), start=1):
            line = raw.rstrip("\r")
            if not line.strip():
                continue
            header = _HEADER.match(line)
            if header and number == 1:
                version, algorithm = header.group(1), header.group(2)
                continue
            name, colon, digits = line.rpartition(":")
            try:
                if not colon or not name:
                    raise ValueError
                scales[name] = hex_to_scale(digits.strip())
            except ValueError:
                unreadable.append((number, line))
        if not scales and not version:
            raise UserError(
                f"{origin} is not a TensorRT calibration cache.",
                "Its first line should read like TRT-8602-EntropyCalibration2, the others like 'tensor: 3c010204'.",
            )
        return cls(version, scales, algorithm, unreadable)


def make_cache(version: str, scales: Mapping[str, float], names: Iterable[str], algorithm: str) -> CalibrationCache:
    """A cache of `names`, in that order, whose scales are usable."""
    return CalibrationCache(version, {n: scales[n] for n in names if is_usable(scales[n])}, ALGORITHMS[algorithm])
