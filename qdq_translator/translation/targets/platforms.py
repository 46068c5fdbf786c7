"""Platforms and their TensorRT: data, each row with its source (fact 7)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Optional

from qdq_translator.core.errors import UsageError, UserError

DEFAULT_CACHE_VERSION = "8600"
"""The default of NVIDIA's translator."""


TRANSLATED_SINCE = (8, 6, 0)
"""First TensorRT with DLA software 3.13 (DRIVE OS 6.0.7) or 3.14.1 (JetPack 6.0) (fact 6.8, 7)."""


@dataclass(frozen=True)
class Platform:
    """`tensorrt`: (major, minor, patch) as in its cache header; `dla`: DLA generation or ''; `l4t`: the first Jetson
    Linux (L4T) release with this TensorRT."""

    name: str
    tensorrt: tuple[int, int, int]
    dla: str
    source: str
    note: str = ""
    l4t: tuple[int, ...] = ()

    @property
    def cache_version(self) -> str:
        return cache_version(self.tensorrt)

    @property
    def dla_too_old(self) -> str:
        """Why Orin's DLA may not run translated networks there as planned; '' if no reason is known."""
        return dla_too_old(self.name, self.tensorrt) if self.dla == "orin" else ""

    @property
    def has_implicit_int8(self) -> bool:
        """TensorRT 11 removed implicit quantization (fact 0.1)."""
        return self.tensorrt[0] < 11


def dla_too_old(where: str, tensorrt: tuple[int, ...]) -> str:
    """Objection to running translated networks on Orin's DLA with this TensorRT; '' for none."""
    if tensorrt >= TRANSLATED_SINCE:
        return ""
    return (
        f"{where} has a DLA software before 3.13, and NVIDIA requires 3.13 (DRIVE OS 6.0.7) or 3.14.1 (JetPack 6.0) "
        "for networks that were translated from Q/DQ (fact 6.8)"
    )


def cache_version(tensorrt: tuple[int, int, int]) -> str:
    """NV_TENSORRT_VERSION (fact 1.2): 8.x major*1000+minor*100+patch, 10.x major*10000+minor*100+patch."""
    major, minor, patch = tensorrt
    return str(major * (1000 if major < 10 else 10000) + minor * 100 + patch)


def tensorrt_version(number: str) -> tuple[int, int, int]:
    """(8, 6, 12) of '8612', (10, 3, 0) of '100300': the inverse of the cache number (fact 1.2)."""
    value = int(number)
    unit = 10000 if value >= 100000 else 1000
    return value // unit, value % unit // 100, value % 100


@dataclass(frozen=True)
class Hardware:
    """Target hardware of the engine. target: 'gpu', 'orin-dla' or 'xavier-dla'. cache_number: the number in the cache
    header; origin: its source, 'option', 'platform', 'installed' or 'default'. platform: table row that the user named.
    assumed: open facts assumed by the user (`--assume`)."""

    target: str
    cache_number: str
    origin: str
    platform: Optional[Platform] = None
    assumed: tuple[str, ...] = ()

    @property
    def generation(self) -> str:
        """'orin' or 'xavier', '' for a GPU."""
        return "" if self.target == "gpu" else self.target.partition("-")[0]

    @property
    def tensorrt(self) -> tuple[int, int, int]:
        """(major, minor, patch) of the platform, else from the cache number."""
        return self.platform.tensorrt if self.platform is not None else tensorrt_version(self.cache_number)


_DLA_SW = "DLA-SW version table [documented]"
_JP61 = "pytorch.org TensorRT JetPack page [documented]"

_PR_1661 = "Model-Optimizer PR #1661 [user report]"
_NO_DLA = "public TensorRT 10.8 to 10.16 packages have no DLA"
_TYPED = "strongly typed, Q/DQ only"
_ON_ARM = "its DLA computes FP16 alone, one sample at a time and without GPU fallback; Q/DQ only store INT8"
_ROWS: tuple[tuple[Any, ...], ...] = (
    ("jetpack-4.6", (8, 0, 1), "xavier", "public JetPack version list [user report]", "", (32, 6, 1)),
    ("jetpack-4.6.1", (8, 2, 1), "xavier", "public JetPack version list [user report]", "", (32, 7, 1)),
    ("jetpack-5.1", (8, 5, 2), "orin", _DLA_SW, "Xavier and Orin", (35, 2, 1)),
    ("jetpack-5.1.1", (8, 5, 2), "orin", _DLA_SW, "Xavier and Orin", (35, 3, 1)),
    ("jetpack-5.1.2", (8, 5, 2), "orin", _DLA_SW, "Xavier and Orin", (35, 4, 1)),
    ("jetpack-5.1.3", (8, 5, 2), "orin", _DLA_SW, "Xavier and Orin", (35, 5, 0)),
    ("jetpack-6.0", (8, 6, 2), "orin", _DLA_SW, "", (36, 3, 0)),
    ("jetpack-6.1", (10, 3, 0), "orin", _JP61, "", (36, 4, 0)),
    ("jetpack-6.2", (10, 3, 0), "orin", _JP61, "", (36, 4, 3)),
    ("jetpack-6.2.1", (10, 3, 0), "orin", _JP61, "", (36, 4, 4)),
    ("jetpack-7.2", (10, 16, 2), "", "seen on an Orin Nano (L4T R39.2) [user report]", _NO_DLA),
    ("jetpack-7.2.2", (11, 4, 1), "orin", "DOCS11.x dla-strongly-typed-networks [documented]", _TYPED),
    ("windows-on-arm-11.4", (11, 4, 0), "", "DOCS11.x dla-windows-on-arm [documented]", _ON_ARM),
    ("drive-os-6.0.6", (8, 5, 10), "orin", _DLA_SW),
    ("drive-os-6.0.7", (8, 6, 10), "orin", _DLA_SW),
    ("drive-os-6.0.8", (8, 6, 11), "orin", _DLA_SW),
    ("drive-os-6.0.8.1", (8, 6, 11), "orin", _DLA_SW),
    ("drive-os-6.0.9", (8, 6, 12), "orin", _DLA_SW),
    ("drive-os-6.0.9.1", (8, 6, 12), "orin", _DLA_SW),
    ("drive-os-7", (10, 10, 10), "", "autoware_universe PR #13160 [user report]", "DRIVE Thor, which has no DLA"),
    ("drive-os-trt-10.15", (10, 15, 3), "orin", _PR_1661, "DRIVE OS release not named there"),
)
PLATFORMS = tuple(Platform(*row) for row in _ROWS)
_BY_NAME = {p.name: p for p in PLATFORMS}
_TENSORRT = re.compile(r"tensorrt-(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?$")


def find_platform(name: str, explicit: bool = False) -> Platform:
    """The platform of a name: a row of the table, also with another TensorRT installed on it
    (`jetpack-6.2+tensorrt-10.7`), or any machine by its version, like `tensorrt-8.6.1`. explicit:
    implicit quantization is not needed. Raises UsageError for unknown names, UserError for a TensorRT that has no
    implicit quantization."""
    whole = name.strip().lower().replace("_", "-").replace(" ", "-").replace("driveos", "drive-os")
    whole = re.sub(r"(?<=\d)-(?:with-)?(?=tensorrt-)", "+", whole)
    key, plus, other = whole.partition("+")
    platform = _BY_NAME.get(key) or _BY_NAME.get(re.sub(r"\.0$", "", key))
    direct = _TENSORRT.match(other or key)
    if direct and (platform is None) != bool(plus):
        major, minor, patch = int(direct[1]), int(direct[2]), int(direct[3] or 0)
        own = f"; {platform.name} comes with {'.'.join(map(str, platform.tensorrt))}" if platform else ""
        made = Platform(whole, (major, minor, patch), "", f"named by its TensorRT version{own}")
        has_dla = platform is not None and not (10, 8) <= (major, minor) <= (11, 3)
        platform = replace(made, dla=platform.dla, l4t=platform.l4t) if platform is not None and has_dla else made
    elif plus:
        platform = None
    if platform is None:
        raise UsageError(
            f"Platform '{name}' is not known.",
            "Known are " + ", ".join(p.name for p in PLATFORMS) + ", and tensorrt-MAJOR.MINOR.PATCH for any other.",
        )
    if not platform.has_implicit_int8 and not explicit:
        raise UserError(
            f"{platform.name} has TensorRT {'.'.join(map(str, platform.tensorrt))} without implicit quantization.",
            "Use 'qdq-translator explicit' there: it writes a Q/DQ network for strong typing.",
        )
    return platform


def installed_tensorrt() -> Optional[tuple[int, int, int]]:
    """(major, minor, patch) of the installed Python package, from its metadata, not imported; None if absent."""
    from importlib import metadata

    for package in ("tensorrt", "tensorrt-cu12", "tensorrt-cu11", "tensorrt-cu13"):
        try:
            parts = metadata.version(package).split(".")
        except metadata.PackageNotFoundError:
            continue
        numbers = [int(p) for p in parts[:3] if p.isdigit()]
        if len(numbers) == 3:
            return (numbers[0], numbers[1], numbers[2])
    return None
