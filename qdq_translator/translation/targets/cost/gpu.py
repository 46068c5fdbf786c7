"""Time of a kernel on Orin's GPU, from published times of whole networks (orin_gpu.json, docs/cost.md).

    time = max(arithmetic, memory) + start
    arithmetic = multiply-accumulates with padded channels / rate
    memory = bytes of inputs, outputs and weights / bandwidth

A whole network on the GPU has a constant more. A power mode scales rate, start and bandwidth with the GPU's clock and
its number of multiprocessors. Transitions between DLA and GPU have two prices (hypothesis `transitions`): published
reformats are short, published times of networks with several regions are long, and no published figure decides.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Sequence

from qdq_translator.translation.targets.cost.model import Surface, Work, round_up

if TYPE_CHECKING:
    from qdq_translator.translation.targets.cost.fusing import FusedLayer

GPU_FILE = Path(__file__).with_name("orin_gpu.json")
START = 0.017
"""Milliseconds of a transition in addition to its bytes, at the low end: two published reformats at the ends of a DLA
region (GoogLeNet on Orin: 0.041 for 3x224x224, 0.017 for 1000 values)."""
HIGH = 0.29
"""Milliseconds to begin or to end a DLA region next to GPU layers, at the high end: half of the 0.58 that each further
DLA region adds by the published rates of one network with 2 and with 5 regions (NVIDIA-AI-IOT/jetson_dla_tutorial),
which include its GPU layers."""


@dataclasses.dataclass(frozen=True)
class Rates:
    """Fitted parameters in one precision. macs_per_second, bytes_per_second: achieved rates. seconds_per_kernel: start.
    seconds_per_inference: constant of a whole network. silu: a SiLU is a kernel of its own."""

    macs_per_second: float
    bytes_per_second: float
    seconds_per_kernel: float
    seconds_per_inference: float
    silu: bool


@dataclasses.dataclass(frozen=True)
class GpuModel:
    """Parameters of one module in one power mode. name: for display."""

    name: str
    int8: Rates
    fp16: Rates

    def kernel(self, layer: FusedLayer, fp16: bool) -> float:
        """Milliseconds of the layer; 0 for a layer without work or of unknown size."""
        works = list(layer.works or ())
        rates = self.fp16 if fp16 else self.int8
        if layer.silu and rates.silu and works:
            works.append(Work(works[-1].writes, works[-1].writes))
        return sum(_seconds(work, rates, fp16) for work in works) * 1e3

    def network(self, layers: Sequence[FusedLayer], fp16: bool) -> float:
        """Milliseconds of the whole network on the GPU. fp16: all of it; else layers with weights compute in INT8."""
        rates = self.fp16 if fp16 else self.int8
        kernels = sum(self.kernel(layer, fp16 or not is_product(layer)) for layer in layers)
        return kernels + rates.seconds_per_inference * 1e3

    def transition(self, surface: Optional[Surface]) -> float:
        """Milliseconds to convert a tensor between the formats of GPU and DLA, at the low end: read, then written with
        padded channels, in FP16."""
        size = 0 if surface is None else surface.channels * surface.positions * 2 + surface.size(2)
        return START + size / self.fp16.bytes_per_second * 1e3


def is_product(layer: FusedLayer) -> bool:
    """Whether the layer multiplies with weights."""
    return any(work.products and work.weights for work in layer.works or ())


def _seconds(work: Work, rates: Rates, fp16: bool) -> float:
    size = 2 if fp16 else 1
    values = work.weights + sum(s.channels * s.positions for s in (*work.reads, *work.writes))
    return (
        max(_macs(work, fp16) / rates.macs_per_second, values * size / rates.bytes_per_second)
        + rates.seconds_per_kernel
    )


_DEPTHWISE = 8
"""Multiply-accumulates that one of a depthwise convolution costs."""


def _macs(work: Work, fp16: bool) -> float:
    into, out = work.channels
    if not work.products or not into or not out:
        return 0.0
    if work.groups > 1 and work.groups == into:
        return work.macs * _DEPTHWISE
    return work.products * round_up(into, 8 if fp16 else 32) * round_up(out, 32) / work.groups


@functools.lru_cache(maxsize=None)
def _data() -> dict[str, Any]:
    return dict(json.loads(GPU_FILE.read_text(encoding="utf-8")))


def gpu_model(mode: str = "MAXN", module: str = "agx-orin", fp32: bool = False) -> GpuModel:
    """The GPU of a module in a power mode; an unknown mode counts as MAXN. fp32: layers above INT8 take FP32, at half
    the rates of FP16 (inferred: twice the bytes, and half the rate of its tensor cores in TF32; not published)."""
    data = _data()
    row, scale = data["modules"][module], data["modes"].get(mode.upper(), {"rate": 1.0, "clock": 1.0})
    rates = (
        Rates(
            one["macs_per_second"] * scale["rate"],
            one["bytes_per_second"] * scale["clock"],
            one["seconds_per_kernel"] / scale["clock"],
            one["seconds_per_inference"] / scale["clock"],
            one["silu"],
        )
        for one in (row.get("int8", row["fp16"]), row["fp16"])  # without INT8 points FP16 is its upper bound
    )
    int8, half = rates
    if fp32:
        macs, size = half.macs_per_second / 2, half.bytes_per_second / 2
        half = dataclasses.replace(half, macs_per_second=macs, bytes_per_second=size)
    return GpuModel(f"{row['name']}, {mode}", int8, half)
