"""Right answers over pictures, counted by whoever is there: this process, several, or a Dask cluster; what was counted stays
counted when the run is ended."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Tuple

import numpy as np
import onnx

from e2e_workflow.imagenet.preprocessing import Network
from qdq_translator.core.errors import UserError
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.inputs import InputSpec
from qdq_translator.lab.simulate.metrics import class_scores
from qdq_translator.lab.simulate.run import Session

STAGES = ("Q/DQ", "simulated")
Images = List[Tuple[Path, int]]


def batch(images: Images, network: Network, spec: InputSpec, size: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Batch `number` of pictures in the model's layout (the last one filled up), and the labels of the real ones."""
    part = images[number * size : (number + 1) * size]
    values = np.stack([network.preprocessing.load(path) for path, _ in part])
    values = np.concatenate([values, np.repeat(values[-1:], size - len(part), 0)])
    if spec.shape[1] == 3:
        values = values.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(values, spec.dtype), np.array([label for _, label in part])


@dataclass
class Counting(Work):
    """Of every batch: right answers of each stage, equal answers, pictures (integers)."""

    models: dict[str, onnx.ModelProto]
    network: Network
    spec: InputSpec
    images: Images
    size: int
    provider: str

    def open(self) -> Callable[[int], np.ndarray]:
        sessions = {
            stage: Session(model, stage, one_thread=True, provider=self.provider)
            for stage, model in self.models.items()
        }

        def counted(number: int) -> np.ndarray:
            values, labels = batch(self.images, self.network, self.spec, self.size, number)
            best = []
            for stage in STAGES:
                session = sessions[stage]
                scores = class_scores(session.run({self.spec.name: values})[session.outputs[0]])
                if scores is None:
                    raise UserError("The first output of the model holds no class scores.", "Give a classifier.")
                best.append(scores[: len(labels)].argmax(1))
            right = [int(np.count_nonzero(answers == labels)) for answers in best]
            return np.array([*right, np.count_nonzero(best[0] == best[1]), len(labels)], np.int64)

        return counted

    def merge(self, total: np.ndarray, part: np.ndarray) -> np.ndarray:
        return total + part


def count(
    work: Counting, where: Evaluation, kept: MutableMapping[str, np.ndarray], report: Callable[[int], None]
) -> np.ndarray:
    """The four counts over all pictures. kept: shards that were counted before, and now these."""
    ranges = shards(-(-len(work.images) // work.size))
    key = hashlib.sha256(pickle.dumps((work.models, work.network, work.images, work.size))).hexdigest()
    left = [shard for shard in ranges if f"{key} {shard.start}" not in kept]
    parts: Any = where.engine.parts(work, left) if left else ()
    for shard, part in zip(left, parts):
        kept[f"{key} {shard.start}"] = part
        report(min(shard.stop * work.size, len(work.images)))
    found = [kept[f"{key} {shard.start}"] for shard in ranges]
    return np.sum(found, axis=0)
