"""Time of a layer on one core of Orin's DLA, from a few published figures (docs/cost.md).

    time = max(arithmetic, memory) + fixed part
    arithmetic = multiply-accumulates that the hardware does / (rate * clock)
    memory = bytes of inputs, outputs and weights / bandwidth

The hardware does more multiply-accumulates than the layer needs: a depthwise convolution fills a block of the array
with one useful value per row, and FP16 convolutions are padded in channels. Activations are stored in units of 32 bytes
of channels.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Optional

from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.schemas import read_json

COST_SCHEMA_VERSION = 1
PUBLISHED = Path(__file__).with_name("orin.json")
ESTIMATE = "estimate from published figures, ±20% INT8, ±35% FP16"
NO_FIGURE = "no published figure"
COMPUTE, MEMORY, OVERHEAD = "compute", "memory", "overhead"
_UNIT = 32
"""Bytes of channels that are stored together: 32 channels in INT8, 16 in FP16 (CHW32, CHW16: fact 2.9)."""


@dataclasses.dataclass(frozen=True)
class Surface:
    """One activation on the DLA: `channels` values at each of `positions` (batch times height times width)."""

    channels: int
    positions: int

    def size(self, value_bytes: int) -> int:
        """Bytes, padded in channels."""
        return self.positions * round_up(self.channels * value_bytes, _UNIT)


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of one DLA layer, independent of its precision. products: output positions times kernel size; times the
    number of channels combined it gives the MACs (0: no convolution). channels: input and output channels of the
    convolution, groups: how they are split. weights: number of values. writes_fp16: in INT8 too, because an FP16
    activation is fused into the layer."""

    reads: tuple[Surface, ...] = ()
    writes: tuple[Surface, ...] = ()
    products: int = 0
    channels: tuple[int, int] = (0, 0)
    groups: int = 1
    weights: int = 0
    writes_fp16: bool = False

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates."""
        return self.products * self.channels[0] * self.channels[1] // self.groups

    def part(self, channels: int) -> Work:
        """The convolution with only `channels` of its output channels."""
        into, out = self.channels
        writes = tuple(dataclasses.replace(surface, channels=channels) for surface in self.writes)
        weights = self.weights * channels // out
        return dataclasses.replace(self, writes=writes, channels=(into, channels), weights=weights)

    def bytes(self, fp16: bool) -> int:
        """Bytes that pass between memory and the DLA."""
        size = 2 if fp16 else 1
        out = 2 if self.writes_fp16 else size
        return (
            size * self.weights
            + sum(surface.size(size) for surface in self.reads)
            + sum(surface.size(out) for surface in self.writes)
        )


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Parameters of the model. Rates: MACs per clock and core. bytes_per_second: to and from memory, one core.
    seconds_per_layer: fixed part. depthwise_block: MACs that one useful MAC of a depthwise convolution costs.
    fp16_input_block, fp16_output_block: units to which channels are padded in FP16."""

    int8_rate: float
    fp16_rate: float
    bytes_per_second: float
    seconds_per_layer: float
    int8_depthwise_block: float
    fp16_depthwise_block: float
    fp16_input_block: int
    fp16_output_block: int


@dataclasses.dataclass(frozen=True)
class Estimate:
    """milliseconds on one core; bound: the largest part ('compute', 'memory' or 'overhead')."""

    milliseconds: float
    bound: str


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Parameters at one clock. name: for display; source: 'published', or the file of `report --fit`."""

    name: str
    parameters: Parameters
    clock_ghz: float
    source: str = "published"

    def estimate(self, work: Work, fp16: bool) -> Estimate:
        """The time of `work` on one DLA core in INT8, or in FP16."""
        p = self.parameters
        rate = (p.fp16_rate if fp16 else p.int8_rate) * self.clock_ghz * 1e9
        arithmetic = self._hardware_macs(work, fp16) / rate
        memory = work.bytes(fp16) / p.bytes_per_second
        longest = max(arithmetic, memory)
        bound = OVERHEAD if p.seconds_per_layer >= longest else COMPUTE if arithmetic >= memory else MEMORY
        return Estimate(1e3 * (longest + p.seconds_per_layer), bound)

    def _hardware_macs(self, work: Work, fp16: bool) -> float:
        p = self.parameters
        if not work.products or not work.macs:
            return 0.0
        if work.groups > 1 and work.groups == work.channels[0]:
            return work.macs * (p.fp16_depthwise_block if fp16 else p.int8_depthwise_block)
        if not fp16:
            return float(work.macs)
        into, out = work.channels[0] // work.groups, work.channels[1] // work.groups
        together = min(work.groups, max(1, p.fp16_output_block // out))  # small groups share a block
        blocks = math.ceil(work.groups / together)
        return float(
            work.products
            * blocks
            * round_up(into * together, p.fp16_input_block)
            * round_up(out * together, p.fp16_output_block)
        )


def round_up(value: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `value`."""
    return -(-value // unit) * unit


# ---------------- the file


@dataclasses.dataclass(frozen=True)
class PowerMode:
    """One row of `modes` in orin.json. figure: whether the published figures cover it."""

    name: str
    clock_ghz: Optional[float]
    figure: bool
    source: str


def published() -> dict[str, Any]:
    """The data file shipped with the package: parameters, modes, the range of clocks, and their sources."""
    return dict(json.loads(PUBLISHED.read_text(encoding="utf-8")))


def _mode(power_mode: Optional[str], dla_clock: Optional[float], platform: str) -> PowerMode:
    """The requested mode; default: DRIVE on a DRIVE platform, else MAXN. Raises UsageError if it is unknown or
    contradictory."""
    if power_mode is not None and dla_clock is not None:
        raise UsageError("--power_mode and --dla_clock both set the clock.", "Give one of them.")
    if dla_clock is not None:
        if not math.isfinite(dla_clock) or dla_clock <= 0:
            raise UsageError(f"--dla_clock {dla_clock:g} is not a clock.", "Give it in GHz, for example 1.331.")
        low, high = published()["clock_range_ghz"]
        return PowerMode(f"DLA clock {dla_clock:g} GHz", dla_clock, low <= dla_clock <= high, "")
    modes = {row["name"]: PowerMode(**row) for row in published()["modes"]}
    name = power_mode or ("DRIVE" if platform.startswith("drive-os") else "MAXN")
    found = next((mode for mode in modes.values() if mode.name.lower() == name.lower()), None)
    if found is None:
        raise UsageError(f"Power mode '{power_mode}' is not known.", "Known are " + ", ".join(modes) + ".")
    return found


def choose_clock(power_mode: Optional[str], dla_clock: Optional[float], platform: str) -> float:
    """The clock in GHz, even if no figures were published for it. Raises UsageError if it is not known."""
    mode = _mode(power_mode, dla_clock, platform)
    if mode.clock_ghz is None:
        raise UsageError(f"The DLA's clock of {mode.name} is not known.", "Give it with --dla_clock.")
    return mode.clock_ghz


def choose_model(
    power_mode: Optional[str] = None,
    dla_clock: Optional[float] = None,
    cost_model: Optional[str] = None,
    platform: str = "",
) -> tuple[Optional[CostModel], str]:
    """(model, its description); None and the reason if no published figure covers the request. power_mode: a name of
    `modes` (default: MAXN, on a DRIVE platform DRIVE). dla_clock: GHz. cost_model: a file of `report --fit`, valid for
    its own board, at its own clock unless another is requested. Raises UsageError for unknown or contradictory values,
    UserError for a file that is not a cost model."""
    mode = _mode(power_mode, dla_clock, platform)
    if cost_model is not None:
        model = load_model_file(cost_model)
        if power_mode is None and dla_clock is None:
            return model, model.name
        clock = choose_clock(power_mode, dla_clock, platform)
        return dataclasses.replace(model, clock_ghz=clock), f"{model.name}, {mode.name}"
    data = published()
    if mode.clock_ghz is None or not mode.figure:
        low, high = data["clock_range_ghz"]
        covered = f"they cover a DLA clock of {low:g} to {high:g} GHz on AGX Orin and DRIVE Orin"
        return None, f"{mode.name}: {NO_FIGURE} ({covered})"
    return CostModel(f"{data['name']}, {mode.name}", Parameters(**data["parameters"]), mode.clock_ghz), mode.name


def load_model_file(path: str) -> CostModel:
    """Load a file that `report --fit` wrote. Raises UserError if it is not one."""
    remedy = "Give the file that 'qdq-translator report --fit' wrote."
    data = read_json(Path(path), {"type": "object"}, remedy)
    try:
        if data["schema_version"] != COST_SCHEMA_VERSION:
            raise UserError(f"{path} has schema version {data['schema_version']}, not {COST_SCHEMA_VERSION}.", remedy)
        parameters = Parameters(**data["parameters"])
        values = [*dataclasses.astuple(parameters), data["clock_ghz"]]
        if not all(isinstance(v, (int, float)) and math.isfinite(v) and v > 0 for v in values):
            raise UserError(f"{path} contains a parameter that is not a positive number.", remedy)
        return CostModel(str(data["name"]), parameters, float(data["clock_ghz"]), Path(path).name)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is not a cost model: {error}.", remedy) from error
