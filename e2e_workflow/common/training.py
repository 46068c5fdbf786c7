"""Training of the classifiers, seeds, and the ONNX export of any network. One thread."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from . import fake_quant
from .fake_quant import Mode

BATCH = 64


def seed_everything(seed: int) -> None:
    """Seeds of Python, NumPy and PyTorch; one thread, so that sums are made in the same order on every run."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)


def train(
    network: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    epochs: int,
    rate: float,
    augment: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """SGD with momentum and a one-cycle learning rate; each batch goes through `augment`. The quantizers stay as they are."""
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4, nesterov=True)
    steps = epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            loss = F.cross_entropy(network(augment(images[chosen])), labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def export(network: nn.Module, path: Path, sample: torch.Tensor, output_names: list[str], quantized: bool) -> None:
    """Write the network with a dynamic batch axis; TorchScript exporter, opset 17, Q/DQ where `quantized`.

    The BatchNormalizations of a Q/DQ export stay nodes, because the weight they would be folded into comes from a DQ;
    those of a float export are folded by the exporter.
    """
    network.eval()
    axes = {name: {0: "batch"} for name in ["input", *output_names]}
    with warnings.catch_warnings(), fake_quant.mode(network, Mode.QUANTIZE if quantized else Mode.FLOAT):
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # the scales are meant to be constants
        warnings.simplefilter("ignore", DeprecationWarning)  # the dynamo exporter's Q/DQ is another dialect
        torch.onnx.export(
            network,
            (sample,),
            str(path),
            input_names=["input"],
            output_names=output_names,
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Each batch moved by up to one pixel in each direction; the border repeats."""
    rows, columns = (int(v) for v in torch.randint(0, 3, (2,)))
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    return padded[:, :, rows : rows + images.shape[2], columns : columns + images.shape[3]]
