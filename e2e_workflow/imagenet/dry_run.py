"""What `--dry_run` runs on: classifiers by colour for all seven networks, and noisy pictures of three colours.

They are right only if the preprocessing is, so the table says whether everything works before days of a cluster depend on it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from e2e_workflow.imagenet.preprocessing import NETWORKS

COLOURS = ((200, 40, 40), (40, 200, 40), (40, 40, 200))
"""Class 0 is red, 1 green, 2 blue."""
SIZES = ((500, 375), (375, 500), (256, 256), (80, 60))


def pictures(folder: Path, each: int = 4) -> Path:
    """`each` pictures of every colour, of several sizes, in one folder per class."""
    from PIL import Image

    random = np.random.default_rng(0)
    for label, colour in enumerate(COLOURS):
        for index in range(each):
            width, height = SIZES[index % len(SIZES)]
            pixels = np.clip(random.normal(colour, 12, (height, width, 3)), 0, 255).astype(np.uint8)
            place = folder / f"n{label:08}"
            place.mkdir(parents=True, exist_ok=True)
            suffix = ".JPEG" if index % 2 else ".png"
            Image.fromarray(pixels).save(place / f"val_{label}_{index}{suffix}")
    return folder


def classifier(path: Path, name: str, channels_first: bool = True, batch: object = "N") -> None:
    """A Q/DQ network: 1x1 Conv, average pool; class k has the weight of colour k in the order the network takes it."""
    preprocessing = NETWORKS[name].preprocessing
    weight = np.eye(3, dtype=np.float32)
    if preprocessing.pixels == "caffe":
        weight = weight[:, ::-1]
    scale = {"caffe": 160.0, "tf": 1.0, "raw": 255.0}[preprocessing.pixels] / 127
    shape = [3, preprocessing.crop, preprocessing.crop]
    constants = {
        "s": np.float32(scale),
        "z": np.int8(0),
        "w": np.ascontiguousarray(weight).reshape(3, 3, 1, 1),
        "ws": np.full(3, 1 / 127, np.float32),
        "wz": np.zeros(3, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "q"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "dq"),
        helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], "wq", axis=0),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], "wdq", axis=0),
        helper.make_node("Conv", ["xd", "wd"], ["c"], "conv"),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["scores"], "flatten"),
    ]
    if not channels_first:
        shape = [*shape[1:], shape[0]]
        nodes[0].input[0] = "nchw"
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["nchw"], "t", perm=[0, 3, 1, 2]))
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 3])],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def models(folder: Path) -> Path:
    """All seven, alternately in both layouts."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(NETWORKS):
        classifier(folder / f"{name}.onnx", name, channels_first=index % 2 == 0)
    return folder
