"""The tasks of all workflows: a network, its data and its score; and the float networks they all start from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import torch
from torch import nn

from . import (
    average_precision,
    detector,
    digits,
    evaluate,
    fake_quant,
    glyph_network,
    glyphs,
    networks,
    shapes,
    training,
)

WORK = Path(__file__).resolve().parents[1] / "work"
SEED = 0
CALIBRATION_IMAGES = 512


class Task(ABC):
    """Images are float32 (N, C, H, W); scores are percentages."""

    name: str
    metric: str
    output_names: list[str]
    calibration_images: np.ndarray
    test_images: np.ndarray
    float_epochs: int
    float_rate: float
    qat_epochs: int
    qat_rate: float
    wanted_score: float  # the float network must reach it, in smoke mode too
    tolerated_loss: float  # what Q/DQ may lose against float, in smoke mode too

    @abstractmethod
    def build(self) -> nn.Module:
        """The untrained network."""

    @abstractmethod
    def train(self, network: nn.Module, epochs: int, rate: float) -> None:
        """Train on the training images."""

    @abstractmethod
    def score(self, outputs: list[np.ndarray]) -> float:
        """The score of the graph outputs for all test images."""

    def score_of_model(self, model: evaluate.Model) -> float:
        """The score of an ONNX model in ONNX Runtime."""
        return self.score(evaluate.outputs(model, self.test_images))

    def export(self, network: nn.Module, path: Path, quantized: bool) -> Path:
        """Write the ONNX model and return its path."""
        sample = torch.from_numpy(self.test_images[:1])
        training.export(network, path, sample, self.output_names, quantized)
        return path


class DigitsTask(Task):
    """One of the classifiers on scikit-learn's digits."""

    metric = "Top-1 %"
    output_names = ["logits"]  # noqa: RUF012

    def __init__(self, name: str, smoke: bool) -> None:
        self.name = name
        self.data = digits.load()
        self.calibration_images = self.data.train_images[:CALIBRATION_IMAGES]
        self.test_images = self.data.test_images
        self.float_epochs, self.float_rate = (4 if smoke else 25), 0.05
        self.qat_epochs, self.qat_rate = (1 if smoke else 5), 0.005
        self.wanted_score, self.tolerated_loss = (85.0, 5.0) if smoke else (97.0, 2.0)

    def build(self) -> nn.Module:
        return {**networks.CLASSIFIERS, **networks.RELU_NETWORKS}[self.name]()

    def train(self, network: nn.Module, epochs: int, rate: float) -> None:
        images, labels = torch.from_numpy(self.data.train_images), torch.from_numpy(self.data.train_labels)
        training.train(network, images, labels, epochs, rate, training.shifted)

    def score(self, outputs: list[np.ndarray]) -> float:
        return evaluate.top1_of(outputs[0], self.data.test_labels)


class DetectorTask(Task):
    """The detector on synthetic shapes."""

    name = "detector"
    metric = "mAP 50-95 %"
    output_names = detector.OUTPUT_NAMES

    def __init__(self, smoke: bool) -> None:
        self.train_images, self.train_objects = shapes.generate(600 if smoke else 2000, seed=1)
        self.test_images, self.test_objects = shapes.generate(100 if smoke else 400, seed=2)
        self.calibration_images = self.train_images[:CALIBRATION_IMAGES]
        self.float_epochs, self.float_rate = (12, 5e-3) if smoke else (40, 3e-3)
        self.qat_epochs, self.qat_rate = (1 if smoke else 4), 1e-4
        self.wanted_score, self.tolerated_loss = (10.0, 3.0) if smoke else (50.0, 8.0)

    def build(self) -> nn.Module:
        return detector.Detector()

    def train(self, network: nn.Module, epochs: int, rate: float) -> None:
        detector.train(network, self.train_images, self.train_objects, epochs, rate)

    def score(self, outputs: list[np.ndarray]) -> float:
        return average_precision.mean_average_precision(outputs, self.test_objects)[1]


class GlyphTask(Task):
    """1,000 characters (60 in smoke mode) in font families that training has not seen."""

    name = "glyphs"
    metric = "Top-1 %"
    output_names = ["logits"]  # noqa: RUF012

    def __init__(self, smoke: bool) -> None:
        self.data = glyphs.load(smoke)
        self.random = np.random.default_rng(3)
        self.test_images = self.data.test_images
        families, classes = self.data.train.shape[:2]
        self.labels = torch.arange(classes).repeat(families)
        self.clean = torch.from_numpy(self.data.train).flatten(0, 1)
        chosen = np.random.default_rng(4).permutation(len(self.clean))[:CALIBRATION_IMAGES]
        self.calibration_images = glyphs.spoil(self.clean.numpy()[chosen], np.random.default_rng(4))
        self.float_epochs, self.float_rate = (12 if smoke else 9), 0.1
        self.qat_epochs, self.qat_rate = 1, 0.002
        self.wanted_score, self.tolerated_loss = (60.0, 15.0) if smoke else (85.0, 10.0)

    def build(self) -> nn.Module:
        return glyph_network.GlyphNet(len(self.data.characters))

    def train(self, network: nn.Module, epochs: int, rate: float) -> None:
        training.train(network, self.clean, self.labels, epochs, rate, self._spoiled)

    def score(self, outputs: list[np.ndarray]) -> float:
        return evaluate.top1_of(outputs[0], self.data.test_labels)

    def _spoiled(self, clean: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(glyphs.spoil(clean.numpy(), self.random, hard=True))


NAMES = (*networks.CLASSIFIERS, DetectorTask.name)


def make(name: str, smoke: bool) -> Task:
    """The task of that name."""
    if name == GlyphTask.name:
        return GlyphTask(smoke)
    return DetectorTask(smoke) if name == DetectorTask.name else DigitsTask(name, smoke)


def float_network(task: Task, smoke: bool) -> nn.Module:
    """The trained float network in evaluation mode. Full trainings are kept in e2e_workflow/work and reused."""
    kept = WORK / f"{task.name}_float.pt"
    training.seed_everything(SEED)
    network = task.build()
    if kept.exists() and not smoke:
        network.load_state_dict(torch.load(kept, weights_only=True))
    else:
        task.train(network, task.float_epochs, task.float_rate)
        if not smoke:
            WORK.mkdir(exist_ok=True)
            torch.save(network.state_dict(), kept)
    training.seed_everything(SEED + 1)
    return network.eval()


def calibrate(task: Task, network: nn.Module, percentile: float | None = None) -> None:
    """Ranges of all activations from the calibration images; leaves fake quantization switched on."""
    fake_quant.calibrate(network, torch.from_numpy(task.calibration_images).split(training.BATCH), percentile)


def quantize_aware(task: Task, network: nn.Module) -> None:
    """Calibrate, then fine-tune with fake quantization switched on (and leave it on)."""
    calibrate(task, network)
    task.train(network, task.qat_epochs, task.qat_rate)
