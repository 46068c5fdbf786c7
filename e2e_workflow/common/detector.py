"""A tiny YOLO-style detector: CSP and C2f blocks, SiLU, SPPF, Concat, nearest upsampling, three heads.

Input (N, 3, 96, 96). Each head gives (N, 4 + classes, 96 / stride, 96 / stride) for stride 8, 16 and 32: offset of the
box centre from the cell's centre (x, y) in strides, log of width and height in strides, one logit per class.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .average_precision import STRIDES
from .fake_quant import InputQuantizer, QuantConv2d
from .shapes import CLASS_NAMES, Objects
from .training import BATCH

SIZE_LIMITS = (0.0, 20.0, 38.0, float("inf"))  # which objects a head learns: sqrt(width * height) in pixels
OUTPUT_NAMES = ["stride8", "stride16", "stride32"]


def conv(inputs: int, outputs: int, size: int = 1, stride: int = 1) -> nn.Sequential:
    """Conv-BN-SiLU that keeps the image size, up to the stride."""
    return nn.Sequential(
        QuantConv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class Bottleneck(nn.Module):
    """Two 3x3 convolutions; the residual branch is quantized."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = conv(channels, channels, 3)
        self.conv2 = conv(channels, channels, 3)
        self.residual_quantizer = InputQuantizer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2(self.conv1(x)) + self.residual_quantizer(x)


class CSP(nn.Module):
    """YOLOv5's block: two 1x1 branches, one through a bottleneck, concatenated."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.left = conv(inputs, outputs // 2)
        self.right = conv(inputs, outputs // 2)
        self.bottleneck = Bottleneck(outputs // 2)
        self.merge = conv(outputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.merge(torch.cat([self.bottleneck(self.left(x)), self.right(x)], 1))


class C2f(nn.Module):
    """YOLOv8's block: split in halves, one half through a bottleneck, all three parts concatenated."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.enter = conv(inputs, outputs)
        self.bottleneck = Bottleneck(outputs // 2)
        self.merge = conv(outputs * 3 // 2, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.enter(x).chunk(2, 1)
        return self.merge(torch.cat([first, second, self.bottleneck(second)], 1))


class SPPF(nn.Module):
    """Spatial pyramid pooling: two max pools in a row, concatenated with their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = conv(channels, channels // 2)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.merge = conv(channels * 3 // 2, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        once = self.pool(x)
        return self.merge(torch.cat([x, once, self.pool(once)], 1))


class Detector(nn.Module):
    """Backbone, top-down neck, three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16, 3, 2)
        self.stage4 = nn.Sequential(conv(16, 16, 3, 2), CSP(16, 16))
        self.stage8 = nn.Sequential(conv(16, 32, 3, 2), C2f(32, 32))
        self.stage16 = nn.Sequential(conv(32, 48, 3, 2), CSP(48, 48))
        self.stage32 = nn.Sequential(conv(48, 64, 3, 2), SPPF(64))
        self.reduce32 = conv(64, 48)
        self.neck16 = C2f(96, 48)
        self.reduce16 = conv(48, 32)
        self.neck8 = CSP(64, 32)
        self.heads = nn.ModuleList([_head(32), _head(48), _head(64)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x8 = self.stage8(self.stage4(self.stem(x)))
        x16 = self.stage16(x8)
        x32 = self.stage32(x16)
        n16 = self.neck16(torch.cat([_upsample(self.reduce32(x32)), x16], 1))
        n8 = self.neck8(torch.cat([_upsample(self.reduce16(n16)), x8], 1))
        return tuple(head(level) for head, level in zip(self.heads, (n8, n16, x32)))


def train(network: nn.Module, images: np.ndarray, objects: list[Objects], epochs: int, rate: float) -> None:
    """AdamW with a one-cycle learning rate; mirrored images. The quantizers stay as they are."""
    pictures = torch.from_numpy(images)
    straight = [_targets(found) for found in objects]
    mirrored = [_targets(_mirror(found, images.shape[3])) for found in objects]
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-3)
    batch = BATCH // 2
    steps = epochs * (len(pictures) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=0.2)
    network.train()
    for epoch in range(epochs):
        targets = mirrored if epoch % 2 else straight
        order = torch.randperm(len(pictures))
        for start in range(0, len(pictures) - batch + 1, batch):
            chosen = order[start : start + batch]
            view = pictures[chosen].flip(3) if epoch % 2 else pictures[chosen]
            wanted = torch.stack([targets[i] for i in chosen.tolist()])
            loss = _loss(network(view), wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            schedule.step()
    network.eval()


def _head(channels: int) -> nn.Sequential:
    last = QuantConv2d(32, 4 + len(CLASS_NAMES), 1)
    nn.init.constant_(last.bias[4:], -3.0)  # type: ignore[index]  # most cells hold nothing
    return nn.Sequential(conv(channels, 32, 3), last)


def _upsample(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


def _mirror(found: Objects, width: int) -> Objects:
    boxes = found.boxes.copy()
    boxes[:, [0, 2]] = width - found.boxes[:, [2, 0]]
    return Objects(boxes, found.labels)


def _targets(found: Objects, size: int = 96) -> torch.Tensor:
    """Per cell of all heads: class (or -1), box x1, y1, x2, y2: (cells, 5). Cells near the centre learn an object."""
    levels = []
    for level, stride in enumerate(STRIDES):
        cells = size // stride
        centres = (np.arange(cells) + 0.5) * stride
        target = np.full((cells, cells, 5), -1, np.float32)
        for box, label in zip(found.boxes, found.labels):
            extent = float(np.sqrt((box[2] - box[0]) * (box[3] - box[1])))
            if not SIZE_LIMITS[level] <= extent < SIZE_LIMITS[level + 1]:
                continue
            near_x = np.abs(centres - (box[0] + box[2]) / 2) <= stride
            near_y = np.abs(centres - (box[1] + box[3]) / 2) <= stride
            target[np.ix_(near_y, near_x)] = [label, *box]
        levels.append(target.reshape(-1, 5))
    return torch.from_numpy(np.concatenate(levels))


def _loss(outputs: tuple[torch.Tensor, ...], targets: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy of every class logit (target: the IoU reached) plus 1 - IoU of the boxes, per object cell."""
    boxes, logits = [], []
    for output, stride in zip(outputs, STRIDES):
        rows, columns = output.shape[2:]
        y, x = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
        centre = (torch.stack([x, y]) + output[:, :2]) * stride
        half = output[:, 2:4].clamp(-4, 4).exp() * (stride / 2)
        boxes.append(torch.cat([centre - half, centre + half], 1).flatten(2))
        logits.append(output[:, 4:].flatten(2))
    box = torch.cat(boxes, 2).transpose(1, 2)
    logit = torch.cat(logits, 2).transpose(1, 2)
    holds = targets[..., 0] >= 0
    count = holds.sum().clamp_min(1)
    reached = _paired_iou(box[holds], targets[holds][:, 1:])
    wanted = torch.zeros_like(logit)
    wanted[holds] = (
        F.one_hot(targets[holds][:, 0].long(), logit.shape[2]).float() * reached.detach().clamp_min(0.05)[:, None]
    )
    error = F.binary_cross_entropy_with_logits(logit, wanted, reduction="none")
    weight = (logit.detach().sigmoid() - wanted).abs()  # quality focal loss, exponent 1
    return (error * weight).sum() / count * 2 + 2 * (1 - reached).sum() / count


def _paired_iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sides = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp_min(0)
    common = sides.prod(1)
    return common / ((a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - common)
