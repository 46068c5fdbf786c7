"""Q/DQ pairs and weight scales for `restore` and `explicit`."""

from __future__ import annotations

from typing import Optional, Sequence

import numpy as np

from qdq_translator.core.errors import ModelError
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import OutputChannels
from qdq_translator.translation.ir.qparams import INT8_MAX, row_blocks
from qdq_translator.translation.quantizers.dialects.pairs import linear

SMALLEST_FLOAT16 = 2.0**-14
"""The smallest normal float16 number."""


def pair(
    graph: Graph, source: str, target: str, base: str, parameters: Sequence[str], axis: Optional[int] = None
) -> list[Node]:
    """QuantizeLinear from `source` and DequantizeLinear to `target`, not yet in the graph. base: prefix of their names.
    parameters: names of the initializers with scale and zero point. axis: channel axis, None for per-tensor.
    """
    stored = graph.unique_name(f"{base}_quantized")
    quantize = linear(graph, "QuantizeLinear", [source, *parameters], stored, base, axis)
    return [quantize, linear(graph, "DequantizeLinear", [stored, *parameters], target, base, axis)]


def with_opset(graph: Graph, wanted: int, why: str) -> Graph:
    """A copy of the graph in opset `wanted` or later, sharing the weights. Raises ModelError, which begins with `why`,
    if ONNX has no conversion."""
    from onnx import helper, version_converter

    large = {name for name, tensor in graph.initializers.items() if tensor.ByteSize() > 4096}
    model = graph.to_model(initializers=[tensor for name, tensor in graph.initializers.items() if name not in large])
    for name in large:
        tensor = graph.initializers[name]
        model.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    if graph.opset() < wanted:
        try:
            model = version_converter.convert_version(model, wanted)
        except Exception as error:  # the converter passes on any exception of its adapters
            raise ModelError(
                f"{why} needs opset {wanted}; the model has {graph.opset()} and "
                f"could not be converted ({str(error).splitlines()[0] if str(error) else type(error).__name__}).",
                f"Export it with opset {wanted} or later.",
            ) from error
    model.ir_version = max(graph.ir_version, helper.find_min_ir_version_for(model.opset_import))
    made = Graph.from_model(model)
    for name in list(made.inputs):
        if name in large:
            del made.inputs[name]
    made.initializers = {**{n: made.initializers.get(n, t) for n, t in graph.initializers.items()}, **made.initializers}
    _name_as_before(made, graph)
    return made


def _name_as_before(made: Graph, graph: Graph) -> None:
    """Give tensors and nodes of a converted graph their names in `graph`: ONNX's converter renames what it replaces
    (Upsample by Resize). A tensor is found by its reader, whose own output has its name already."""
    for node in reversed([*graph.nodes]):
        for name in node.outputs:
            for reader in graph.consumers(name)[:1] if name not in made.producer else ():
                twin = made.producer.get(reader.outputs[0])
                new = twin.inputs[reader.inputs.index(name)] if twin is not None else ""
                if new in made.producer:
                    made.rename_output(made.producer[new], new, name)
        twin = made.producer.get(node.outputs[0]) if node.outputs else None
        if twin is not None:
            twin.name = node.name


def weight_scales(values: np.ndarray, axis: int) -> np.ndarray:
    """Scales (C,) along `axis`: `max|w| / 127`, or the neighbouring number that gives the channel's weights back bit
    for bit (rule 2 of `restore`); 1 for channels of zeros. Float32; float16 for float16 weights whose scales are all
    normal float16 numbers."""
    rows = OutputChannels(axis).rows(values)
    amax = np.maximum(rows.max(axis=1, initial=0), -rows.min(axis=1, initial=0)).astype(np.float32)
    dtype: np.dtype = np.dtype(np.float32)
    if values.dtype == np.float16 and np.all((amax == 0) | (amax / INT8_MAX >= SMALLEST_FLOAT16)):
        dtype = np.dtype(np.float16)
    first = (amax / np.float32(INT8_MAX)).astype(dtype)
    first[(amax == 0) | (first < np.finfo(dtype).tiny)] = 1
    tried = (first, np.nextafter(first, dtype.type(0)), np.nextafter(first, dtype.type(np.inf)))
    best = first.copy()
    for block in row_blocks(rows.shape):
        open_ = np.arange(len(rows))[block]
        for scale in tried:
            if not len(open_):
                break
            given = rows[open_] if len(open_) < len(rows[block]) else rows[block]
            step = scale[open_, None].astype(np.float32)
            codes = given.astype(np.float32)
            codes /= step
            np.clip(np.rint(codes, codes), -INT8_MAX, INT8_MAX, codes)
            codes *= step
            same = (codes.astype(values.dtype, copy=False) == given).all(axis=1)
            best[open_[same]] = scale[open_[same]]
            open_ = open_[~same]
    return best
