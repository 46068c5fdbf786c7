"""Translations made by hand, as `translate` would write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.layer_precisions import format_layer_precisions

SCALES = {"images": 0.0078125, "c1_out": 0.25, "r1_out": 0.125, "c2_out": 0.5, "ghost": 1.0}
LAYERS = {"pool": "fp16", "shape": "fp16", "nowhere": "fp16"}


def network(batch: int | str = 1, channels: int = 3, first: str = "images") -> onnx.ModelProto:
    """images -> Conv c1 -> Relu r1 -> Conv c2 -> Add (residual) -> mean -> Flatten -> Gemm fc -> logits, and a Shape."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", [first, "w1"], ["c1_out"], "c1", kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c1_out"], ["r1_out"], "r1"),
        helper.make_node("Conv", ["r1_out", "w2"], ["c2_out"], "c2", kernel_shape=[1, 1]),
        helper.make_node("Add", ["c2_out", "r1_out"], ["sum"], "add"),
        helper.make_node("GlobalAveragePool", ["sum"], ["mean"], "pool"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], "fc"),
        helper.make_node("Shape", [first], ["size"], "shape"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(first, TensorProto.FLOAT, [batch, channels, 4, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 5])],
        [weights("w1", 8, channels, 1, 1), weights("w2", 8, 8, 1, 1), weights("w3", 8, 5), weights("b3", 5)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def quantized() -> onnx.ModelProto:
    """images -> Q -> DQ -> Relu -> out: a model that still has its quantizers."""
    scale = numpy_helper.from_array(np.float32(0.1), "s")
    zero = numpy_helper.from_array(np.int8(0), "z")
    nodes = [
        helper.make_node("QuantizeLinear", ["images", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"], "dequantize"),
        helper.make_node("Relu", ["dq"], ["out"], "relu"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("images", "out")]
    graph = helper.make_graph(nodes, "q", ends[:1], ends[1:], [scale, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def translation(
    folder: Path,
    model: onnx.ModelProto,
    scales: dict[str, float] = SCALES,
    header: str = "8600",
    tail: Sequence[str] = (),
) -> TranslationFiles:
    """Writes the files of a translation called `net`; `tail`: further lines of the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    files = TranslationFiles(folder, "net")
    onnx.save(model, str(files.model))
    text = CalibrationCache(header, dict(scales)).to_text() + "".join(f"{line}\n" for line in tail)
    files.cache.write_text(text)
    files.layer_arg.write_text(format_layer_precisions(LAYERS))
    files.config.write_text(json.dumps({"int8_tensor_scales": scales, "fp16_nodes": list(LAYERS)}))
    return files
