"""`--annotate`: write the findings of the translation into the stripped model, for viewers like Netron.

ONNX has had `metadata_props` on nodes and on value infos since IR version 10 (onnx 1.16). Some readers accept only the
version of the model, so for models of an earlier version the annotated model is a separate file (A1). No computation is
changed. Netron shows the metadata of nodes and of the graph's inputs and outputs, with a narrow column of keys: a node
therefore has the scales of its outputs, and keys are short.
"""

from __future__ import annotations

from typing import Optional

import onnx

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.table import ScaleTable
from qdq_translator.translation.targets.precision import LayerPlan

FIRST_IR_VERSION = 10
PREFIX = "qdq."


def annotate(graph: Graph, types: TensorTypes, scales: ScaleTable, plan: list[LayerPlan]) -> None:
    """Write into the graph's metadata, with keys prefixed by `PREFIX`.

    Nodes: `precision` ('int8', 'fp16' or 'none'), `device` ('dla', 'gpu' or 'none'), `scale` and `origin` of their
    outputs (one line per output that has one, with its name if there are several), `reason`, and `cure` if there is
    one. Float tensors with a scale: `scale` and `origin`. A scale is written with nine digits, which reproduce the
    float32, and with the hex digits of the calibration cache. `plan`: one row per node, in graph order.
    """
    said = {name: _said(scales, name) for name in graph.tensors() if name in scales and types.is_float(name)}
    for node, layer in zip(graph.nodes, plan):
        made = [name for name in node.outputs if name in said]
        several = sum(map(bool, node.outputs)) > 1
        texts: dict[str, str] = {"precision": layer.precision, "device": layer.device}
        for key in ("scale", "origin"):
            texts[key] = "\n".join(f"{name}: {said[name][key]}" if several else said[name][key] for name in made)
        texts.update(reason=layer.reason, cure=layer.cure)
        node.metadata = {**node.metadata, **_prefixed(texts)}
    for name, texts in said.items():
        if not graph.is_graph_tensor(name) and name not in graph.value_info:
            graph.value_info[name] = onnx.helper.make_tensor_value_info(name, types.elem_type(name), types.shape(name))
        graph.tensor_metadata.setdefault(name, {}).update(_prefixed(texts))


def _prefixed(texts: dict[str, str]) -> dict[str, str]:
    return {PREFIX + key: text for key, text in texts.items() if text}


def has_place(graph: Graph, diagnostics: Diagnostics) -> bool:
    """Whether the model itself can be annotated; if not, a note names the alternative."""
    if graph.ir_version < FIRST_IR_VERSION:
        diagnostics.info(
            "A1",
            f"The model is of IR version {graph.ir_version}, and nodes and tensors have metadata from version "
            f"{FIRST_IR_VERSION} on: the annotated model is written as a file of its own, of IR version "
            f"{FIRST_IR_VERSION}.",
            hint="Open NAME_annotated.onnx in Netron; give NAME_noqdq.onnx to TensorRT.",
        )
        return False
    return True


def annotated_copy(graph: Graph, types: TensorTypes, scales: ScaleTable, plan: list[LayerPlan]) -> Optional[Graph]:
    """An annotated copy, of `FIRST_IR_VERSION`, of a model without a place for metadata; None if the model itself is
    annotated, or nothing can be. Weights are shared with `graph`, not copied."""
    if graph.ir_version >= FIRST_IR_VERSION:
        return None
    names = (onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[0]) for name in graph.initializers)
    copy = Graph.from_model(graph.to_model(initializers=names))
    copy.initializers, copy.ir_version = graph.initializers, FIRST_IR_VERSION
    annotate(copy, types, scales, plan)
    return copy


def _said(scales: ScaleTable, name: str) -> dict[str, str]:
    scale = scales[name]
    origin = scale.origin
    said = origin.rule
    said += f" at '{origin.node}'" if origin.node else ""
    said += f" from '{origin.source}'" if origin.source and origin.source != name else ""
    return {"scale": f"{scale.value:.9g} ({scale_to_hex(scale.value)})", "origin": said}
