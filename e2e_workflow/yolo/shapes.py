"""A COCO-style folder of generated shapes, and a YOLO trained on them, for those who have neither COCO nor weights at hand.

    python -m e2e_workflow.yolo.shapes FOLDER [--train yolo11n ...] [--epochs 20] [--count 2000]

Writes FOLDER/train and FOLDER/val, PNG files of 96x96 pixels with `instances.json` as COCO has it, and FOLDER/NAME_shapes.pt for each
architecture.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from e2e_workflow.common.shapes import CLASS_NAMES, SIZE, Objects, generate

BATCH = 16


def write(folder: Path, count: int, seed: int) -> None:
    """`count` images with their objects."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    entries, annotations = [], []
    for index, (image, objects) in enumerate(zip(*generate(count, seed))):
        name = f"{index:05d}.png"
        pixels = np.clip(np.rint((image.transpose(1, 2, 0) + 1) * 127.5), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
        entries.append({"id": index + 1, "file_name": name, "width": SIZE, "height": SIZE})
        for box, label in zip(objects.boxes.astype(float).tolist(), objects.labels.tolist()):
            left, top, width, height = box[0], box[1], box[2] - box[0], box[3] - box[1]
            row = {"id": len(annotations) + 1, "image_id": index + 1, "category_id": label + 1, "iscrowd": 0}
            annotations.append({**row, "bbox": [left, top, width, height], "area": width * height})
    categories = [{"id": index + 1, "name": name} for index, name in enumerate(CLASS_NAMES)]
    data = {"images": entries, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(data) + "\n")


def train(folder: Path, name: str, epochs: int, count: int) -> None:
    """An architecture of ultralytics, from its yaml, by its own loss; writes FOLDER/NAME_shapes.pt."""
    import torch
    from ultralytics import YOLO
    from ultralytics.cfg import get_cfg
    from ultralytics.utils import DEFAULT_CFG

    torch.manual_seed(0)
    images, objects = generate(count, 0)
    images = (images + 1) / 2
    network = YOLO(f"{name}.yaml").model
    network = type(network)({**network.yaml, "nc": len(CLASS_NAMES)}, verbose=False)
    network.args = get_cfg(DEFAULT_CFG)
    steps = len(images) // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * steps)
    network.train()
    for epoch in range(epochs):
        order, total = torch.randperm(len(images)).numpy(), 0.0
        for step in range(steps):
            loss, _ = network(_batch(images, objects, order[step * BATCH : (step + 1) * BATCH]))
            optimizer.zero_grad()
            loss.sum().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach().sum())
        print(f"{name}: epoch {epoch + 1} of {epochs}, loss {total / steps / BATCH:.3f}", flush=True)
    torch.save({"model": network.eval()}, str(folder / f"{name}_shapes.pt"))


def _batch(images: np.ndarray, objects: list[Objects], chosen: np.ndarray) -> dict[str, Any]:
    """As ultralytics' loss takes it: boxes as centre and size, of [0, 1]."""
    import torch

    boxes = np.concatenate([objects[i].boxes for i in chosen]) / SIZE
    centres = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)
    counts = [len(objects[i].boxes) for i in chosen]
    return {
        "img": torch.from_numpy(images[chosen]),
        "batch_idx": torch.from_numpy(np.repeat(np.arange(len(chosen)), counts).astype(np.float32)),
        "cls": torch.from_numpy(np.concatenate([objects[i].labels for i in chosen]).astype(np.float32)[:, None]),
        "bboxes": torch.from_numpy(centres.astype(np.float32)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Shapes as a COCO-style folder, and YOLOs trained on them.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", nargs="+", default=[], metavar="NAME", help="architectures of ultralytics")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--count", type=int, default=2000, help="images to train with; a fifth of it to validate with")
    arguments = parser.parse_args()
    write(arguments.folder / "train", arguments.count, 0)
    write(arguments.folder / "val", arguments.count // 5, 1)
    for name in arguments.train:
        train(arguments.folder, name, arguments.epochs, arguments.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
