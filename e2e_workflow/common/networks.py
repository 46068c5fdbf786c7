"""Small classifiers for images of shape (N, 1, 16, 16): a residual CNN and a MobileNet with depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .fake_quant import InputQuantizer, QuantAvgPool2d, QuantConv2d, QuantLinear

CLASSES = 10


class ResidualBlock(nn.Module):
    """Conv-BN-ReLU-Conv-BN plus a quantized residual branch, as ResNet's basic block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = QuantConv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = QuantConv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                QuantConv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.residual_quantizer = InputQuantizer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + self.residual_quantizer(self.downsample(x)))


class ResNet(nn.Module):
    """Stem, three residual blocks (16, 24, 48 channels), average pooling, classifier: about 47 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(QuantConv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.layer1 = ResidualBlock(16, 16, 1)
        self.layer2 = ResidualBlock(16, 24, 2)
        self.layer3 = ResidualBlock(24, 48, 2)
        self.pool = QuantAvgPool2d(4)
        self.fc = QuantLinear(48, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(self.pool(x).flatten(1))


class InvertedResidual(nn.Module):
    """MobileNet-v2's block: 1x1 expansion, 3x3 depthwise, 1x1 projection; residual branch where shapes allow."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, expansion: int, activation: Callable[[], nn.Module], size: int = 3
    ):
        super().__init__()
        hidden = inputs * expansion
        self.expand = nn.Sequential(QuantConv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), activation())
        self.depthwise = nn.Sequential(
            QuantConv2d(hidden, hidden, size, stride=stride, padding=size // 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            activation(),
        )
        self.project = nn.Sequential(QuantConv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.residual_quantizer = InputQuantizer() if stride == 1 and inputs == outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        if self.residual_quantizer is not None:
            y = y + self.residual_quantizer(x)
        return y


class MobileNet(nn.Module):
    """Four inverted residual blocks with the given activation (SiLU or Hardswish)."""

    def __init__(self, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Sequential(QuantConv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), activation())
        self.blocks = nn.Sequential(
            InvertedResidual(16, 16, 1, 3, activation),
            InvertedResidual(16, 24, 2, 3, activation),
            InvertedResidual(24, 24, 1, 3, activation),
            InvertedResidual(24, 32, 2, 3, activation),
        )
        self.head = nn.Sequential(QuantConv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64), activation())
        self.pool = QuantAvgPool2d(4)
        self.fc = QuantLinear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(self.blocks(self.stem(x)))
        return self.fc(self.pool(x).flatten(1))


CLASSIFIERS: dict[str, Callable[[], nn.Module]] = {
    "resnet": ResNet,
    "mobilenet_silu": lambda: MobileNet(nn.SiLU),
    "mobilenet_hardswish": lambda: MobileNet(nn.Hardswish),
}


class RegNetBlock(nn.Module):
    """RegNet's block: 1x1, grouped 3x3 and 1x1 Conv, residual branch, Relu."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            QuantConv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            QuantConv2d(outputs, outputs, 3, stride=stride, padding=1, groups=outputs // 8, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            QuantConv2d(outputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.branch = nn.Sequential(QuantConv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
        self.residual_quantizer = InputQuantizer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x) + self.residual_quantizer(self.branch(x))).relu()


def staged(*blocks: nn.Module, channels: int) -> nn.Module:
    """A network of a stem of 16 channels, the blocks (to 4x4 pixels), pooling and a classifier."""
    stem = (QuantConv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(*stem, *blocks, QuantAvgPool2d(4), nn.Flatten(), QuantLinear(channels, CLASSES))


RELU_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet_relu": lambda: MobileNet(nn.ReLU),
    "mnasnet_relu": lambda: staged(
        InvertedResidual(16, 16, 1, 3, nn.ReLU),
        InvertedResidual(16, 24, 2, 3, nn.ReLU, 5),
        InvertedResidual(24, 24, 1, 6, nn.ReLU, 5),
        InvertedResidual(24, 40, 2, 6, nn.ReLU),
        channels=40,
    ),
    "regnet_relu": lambda: staged(RegNetBlock(16, 24, 1), RegNetBlock(24, 40, 2), RegNetBlock(40, 64, 2), channels=64),
}
"""For benchmarks/decibels.py."""
