"""The denoiser and its training."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, HIDDEN, BLOCKS = 16, 32, 4
STEPS, BATCH, RATE = 3000, 16, 3e-3


class Block(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 projection without activation, and the input added."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(CHANNELS, HIDDEN, 1, bias=False),
            nn.BatchNorm2d(HIDDEN),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1, groups=HIDDEN, bias=False),
            nn.BatchNorm2d(HIDDEN),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, CHANNELS, 1, bias=False),
            nn.BatchNorm2d(CHANNELS),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Denoiser(nn.Module):
    """(N, 3, 32, 32) to the same shape: the picture and what the network adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU())
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.last = nn.Conv2d(CHANNELS, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(self.blocks(self.stem(x)))


def train(network: nn.Module, noisy: torch.Tensor, clean: torch.Tensor, steps: int) -> None:
    """AdamW with a one-cycle learning rate; mirrored pictures; mean absolute error."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=max(2, steps))
    network.train()
    for step in range(steps):
        chosen = torch.randint(0, len(noisy), (BATCH,))
        axes = [axis for axis in (2, 3) if step >> (axis - 2) & 1]
        loss = F.l1_loss(network(noisy[chosen].flip(axes)), clean[chosen].flip(axes))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    network.eval()
