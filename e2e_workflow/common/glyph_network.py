"""A small classifier for images of shape (N, 1, 32, 32) that has what makes ranges hard to find: SiLU and HardSwish, gates, residual
Adds, Concat, depthwise convolutions. BatchNormalization and quantizers as in `networks`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .fake_quant import InputQuantizer, QuantAvgPool2d, QuantConv2d, QuantLinear


def conv(
    inputs: int, outputs: int, size: int, stride: int = 1, act: Callable[[], nn.Module] = nn.SiLU
) -> nn.Sequential:
    """Conv-BN-activation that keeps the image size, up to the stride."""
    convolution = QuantConv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), act())


class Gate(nn.Module):
    """Squeeze and excitation: every channel times a sigmoid of the means of all channels."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.pool = QuantAvgPool2d(size)
        self.squeeze = QuantConv2d(channels, channels // 4, 1)
        self.act = nn.SiLU()
        self.excite = QuantConv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.excite(self.act(self.squeeze(self.pool(x)))).sigmoid()


class GatedResidual(nn.Module):
    """EfficientNet's block: 1x1 expansion, 3x3 depthwise, gate, 1x1 projection, residual branch where shapes allow.

    size: height and width of the output.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, stride: int, size: int, act: Callable[[], nn.Module]):
        super().__init__()
        self.expand = conv(inputs, hidden, 1, act=act)
        self.depthwise = nn.Sequential(
            QuantConv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            act(),
        )
        self.gate = Gate(hidden, size)
        self.project = conv(hidden, outputs, 1, act=nn.Identity)
        self.residual_quantizer = InputQuantizer() if stride == 1 and inputs == outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.gate(self.depthwise(self.expand(x))))
        return y if self.residual_quantizer is None else y + self.residual_quantizer(x)


class TwoPaths(nn.Module):
    """YOLO's block: one 1x1 branch, one through a residual bottleneck, concatenated."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.left, self.right = conv(channels, half, 1), conv(channels, half, 1)
        self.bottleneck = nn.Sequential(conv(half, half, 3), conv(half, half, 3))
        self.residual_quantizer = InputQuantizer()
        self.merge = conv(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = self.left(x)
        deep = self.bottleneck(left) + self.residual_quantizer(left)
        return self.merge(torch.cat([deep, self.right(x)], 1))


class GlyphNet(nn.Module):
    """About 5 million multiply-adds; 240 thousand parameters with 1,000 classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = conv(1, 24, 3, 2)
        self.block16 = GatedResidual(24, 48, 24, 1, 16, nn.SiLU)
        self.down8 = conv(24, 48, 3, 2)
        self.block8 = TwoPaths(48)
        self.down4 = GatedResidual(48, 144, 96, 2, 4, nn.Hardswish)
        self.block4 = GatedResidual(96, 192, 96, 1, 4, nn.Hardswish)
        self.pool = QuantAvgPool2d(4)
        self.fc = QuantLinear(96, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block8(self.down8(self.block16(self.stem(x))))
        return self.fc(self.pool(self.block4(self.down4(x))).flatten(1))
