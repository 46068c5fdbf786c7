"""Fake quantization where NVIDIA pytorch-quantization puts it.

One quantizer in front of every input of Conv2d, Linear and AvgPool2d and in front of the residual branch of an Add,
per tensor; one on every weight of Conv2d and Linear, per output channel. BatchNormalization stays unfolded.
All codes are symmetric int8; `amax` is the largest absolute value, `scale = amax / 127`.

Activations: `amax` is collected during calibration (the largest absolute value, or a percentile of a histogram) and then
stays as it is, as in pytorch-quantization.
Weights: `amax` follows the weights, so what is exported has `scale = max|w| / 127` of the exported weights.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

INT8 = (-128, 127)
SMALLEST_AMAX = 1e-6
BINS = 2048


class Mode(enum.Enum):
    """What every quantizer of a network does at the moment."""

    FLOAT = "float"
    CALIBRATE = "calibrate"
    COUNT = "count"
    QUANTIZE = "quantize"


class InputQuantizer(nn.Module):
    """Fake quantization of an activation, per tensor; straight-through gradient inside the range."""

    amax: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.mode = Mode.FLOAT
        self.register_buffer("amax", torch.tensor(0.0))
        self.counts = torch.zeros(BINS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mode is Mode.CALIBRATE:
            self.amax = torch.maximum(self.amax, x.detach().abs().max())
        if self.mode is Mode.COUNT:
            self.counts += torch.histc(x.detach().abs(), BINS, 0.0, max(float(self.amax), SMALLEST_AMAX))
        if self.mode is not Mode.QUANTIZE:
            return x
        scale = max(float(self.amax), SMALLEST_AMAX) / 127.0
        return torch.fake_quantize_per_tensor_affine(x, scale, 0, *INT8)

    def cut(self, percentile: float) -> None:
        """`amax` becomes the end of the first bin below which `percentile` of the counted values lie."""
        below = self.counts.double().cumsum(0) / self.counts.double().sum()
        self.amax = self.amax * (1 + int((below < percentile / 100).sum())) / BINS
        self.counts.zero_()


class WeightQuantizer(nn.Module):
    """Fake quantization of a weight, per output channel (axis 0 of Conv2d and Linear)."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = Mode.FLOAT

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        if self.mode is not Mode.QUANTIZE:
            return weight
        amax = weight.detach().abs().flatten(1).amax(1).clamp_min(SMALLEST_AMAX)
        scales = torch.from_numpy((amax / 127.0).numpy())  # by way of NumPy: a constant to the exporter
        zero_points = torch.zeros(weight.shape[0], dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(weight, scales, zero_points, 0, *INT8)


class QuantConv2d(nn.Conv2d):
    """Conv2d with quantized input and weight."""

    def __init__(self, *args: int, **kwargs: int) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.input_quantizer = InputQuantizer()
        self.weight_quantizer = WeightQuantizer()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._conv_forward(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)


class QuantLinear(nn.Linear):
    """Linear with quantized input and weight."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.input_quantizer = InputQuantizer()
        self.weight_quantizer = WeightQuantizer()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.linear(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)


class QuantAvgPool2d(nn.AvgPool2d):
    """AvgPool2d with quantized input."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__(kernel_size)
        self.input_quantizer = InputQuantizer()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(self.input_quantizer(input))


def set_mode(network: nn.Module, mode: Mode) -> None:
    """Switch every quantizer of the network."""
    for module in _quantizers(network):
        module.mode = mode


@contextmanager
def mode(network: nn.Module, wanted: Mode) -> Iterator[None]:
    """Switch every quantizer of the network, and back at the end."""
    before = [module.mode for module in _quantizers(network)]
    set_mode(network, wanted)
    try:
        yield
    finally:
        for module, old in zip(_quantizers(network), before):
            module.mode = old


@torch.no_grad()
def calibrate(network: nn.Module, batches: Sequence[torch.Tensor], percentile: float | None = None) -> None:
    """Collect `amax` of every activation on the float network in evaluation mode; leaves quantization switched on.

    percentile: cut each range there, by a histogram made in a second pass; None keeps the largest absolute value.
    """
    network.eval()
    for step in (Mode.CALIBRATE,) if percentile is None else (Mode.CALIBRATE, Mode.COUNT):
        set_mode(network, step)
        for batch in batches:
            network(batch)
    for module in _quantizers(network):
        if percentile is not None and isinstance(module, InputQuantizer):
            module.cut(percentile)
    set_mode(network, Mode.QUANTIZE)


def _quantizers(network: nn.Module) -> list[InputQuantizer | WeightQuantizer]:
    return [m for m in network.modules() if isinstance(m, (InputQuantizer, WeightQuantizer))]
