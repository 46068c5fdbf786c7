"""Boards that people own: a name selects the DLA, the platforms and the power modes."""

from __future__ import annotations

import dataclasses
import re
from typing import Optional

from qdq_translator.core.errors import UsageError

_ORIN = (
    "jetpack-6.2",
    "jetpack-6.2.1",
    "jetpack-6.1",
    "jetpack-6.0",
    "jetpack-5.1.3",
    "jetpack-5.1.2",
    "jetpack-5.1.1",
    "jetpack-5.1",
)
_MODES = ("MAXN", "50W", "30W", "15W")


@dataclasses.dataclass(frozen=True)
class Board:
    """A board that one can own. dla: 'orin', 'xavier' or ''. cores: of the DLA. platforms: those that exist for it, the
    default first; () for any. modes: power modes; the first is the default. gpu: the module with a time model, '' for
    none."""

    name: str
    dla: str
    cores: int
    platforms: tuple[str, ...]
    modes: tuple[str, ...]
    gpu: str
    source: str

    @property
    def platform(self) -> Optional[str]:
        """The default."""
        return self.platforms[0] if self.platforms else None


_DLA_SW = "DLA-SW FAQ [documented]"
BOARDS = {
    row.name: row
    for row in (
        Board("orin-nano", "", 0, (*_ORIN, "jetpack-7.2"), ("MAXN", "25W", "15W", "7W"), "orin-nano", _DLA_SW),
        Board("orin-nx", "orin", 2, (*_ORIN, "jetpack-7.2"), ("MAXN", "25W", "15W", "10W"), "orin-nx", _DLA_SW),
        Board("agx-orin", "orin", 2, (*_ORIN, "jetpack-7.2", "jetpack-7.2.2"), _MODES, "agx-orin", _DLA_SW),
        Board(
            "xavier",
            "xavier",
            2,
            ("jetpack-5.1.3", "jetpack-5.1.2", "jetpack-5.1.1", "jetpack-5.1", "jetpack-4.6.1", "jetpack-4.6"),
            ("MAXN",),
            "",
            _DLA_SW,
        ),
        Board(
            "thor", "", 0, ("jetpack-7.2", "drive-os-7"), ("MAXN",), "", "TensorRT 10.16: no DLA in its public packages"
        ),
        Board(
            "drive-orin",
            "orin",
            2,
            ("drive-os-6.0.9", "drive-os-6.0.8", "drive-os-6.0.7", "drive-os-6.0.6", "drive-os-trt-10.15"),
            ("DRIVE",),
            "agx-orin",
            _DLA_SW,
        ),
        Board("gpu", "", 0, (), ("MAXN",), "", "any other NVIDIA GPU"),
    )
}


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A board with a platform on it. dla: '' also where the platform's TensorRT has none."""

    board: Board
    platform: Optional[str]

    @property
    def dla(self) -> str:
        return "" if no_dla_in(self.platform or "") else self.board.dla

    def target(self, on: Optional[str]) -> str:
        """'orin-dla', 'xavier-dla' or 'gpu'. on: 'dla', 'gpu' or None for the DLA if there is one. Raises UsageError
        for a DLA that is not there."""
        if on == "dla" and not self.dla:
            where = self.board.name if not self.board.dla else f"{self.board.name} with {self.platform}"
            raise UsageError(f"{where} has no DLA.", "Leave --on out, or give --on gpu.")
        return f"{self.dla}-dla" if self.dla and on != "gpu" else "gpu"


def no_dla_in(platform: str) -> bool:
    """Whether the public TensorRT of this platform has no DLA: 10.8 to 11.4.0 (facts 0.2 and 7)."""
    version = re.fullmatch(r"(?:[\w.-]+\+)?tensorrt-(\d+)\.(\d+)(?:\.(\d+))*", platform)
    if version:
        return (10, 8) <= (int(version[1]), int(version[2])) <= (11, 3)
    return platform == "jetpack-7.2"


def find_board(text: str) -> Chosen:
    """The board of `NAME` or `NAME@PLATFORM`; a platform alone means a board with it (jetpack-6.2: an AGX Orin). Raises
    UsageError for an unknown name."""
    from qdq_translator.core.parsing import did_you_mean

    name, _, platform = text.strip().lower().replace("_", "-").replace(" ", "-").partition("@")
    if name in BOARDS:
        return Chosen(BOARDS[name], platform or BOARDS[name].platform)
    if not platform and re.match(r"(jetpack|drive-os|tensorrt|windows)-", name):
        owner = next(
            (row for row in (BOARDS["agx-orin"], *BOARDS.values()) if name.partition("+")[0] in row.platforms),
            BOARDS["gpu"],
        )
        return Chosen(owner, name)
    hint = (
        did_you_mean(name, BOARDS)
        or f"Known are {', '.join(BOARDS)}, each also with a platform (agx-orin@jetpack-6.2)."
    )
    raise UsageError(f"--board: there is no board '{text}'.", hint)
