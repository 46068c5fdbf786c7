"""`--annotate`: the stripped model says of itself what the translation found, where viewers like Netron show it.

ONNX has had `metadata_props` on nodes and on value infos since IR version 10 (onnx 1.16). A model of an earlier version is
left alone, with a note (A1): raising its version could cost readers that know only the earlier one. Nothing that computes is
touched; tensors inside the graph that have no value info get one, with the type and shape that inference gives, to carry theirs.
"""

from __future__ import annotations

from typing import Optional

import onnx

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.formats.calibration_cache import scale_to_hex
from qdq_translator.graph import Graph
from qdq_translator.precision import LayerPlan
from qdq_translator.scales import ScaleTable
from qdq_translator.targets.dla.verdicts import DlaPlan
from qdq_translator.types import TensorTypes

FIRST_IR_VERSION = 10
PREFIX = "qdq_translator."


def annotate(
    graph: Graph,
    types: TensorTypes,
    scales: ScaleTable,
    plan: list[LayerPlan],
    dla: Optional[DlaPlan],
    diagnostics: Diagnostics,
) -> bool:
    """Writes into the graph's metadata. False, with a note, where the model has no place for it.

    Nodes: `qdq_translator.precision` ('int8', 'fp16' or 'none'), `.reason`, `.cure` where there is one, and `.device` (the
    predicted verdict) with a DLA as target. Float tensors with a scale: `.scale` (nine digits give the float32 back), `.scale_hex`
    as in the calibration cache, and `.origin`.
    """
    if graph.ir_version < FIRST_IR_VERSION or not _has_fields():
        diagnostics.info(
            "A1",
            f"The model is of IR version {graph.ir_version} and was not annotated: nodes and tensors have metadata from "
            f"version {FIRST_IR_VERSION} on.",
            hint="Export it with a later ONNX (opset 21 or later) to see precision and scales in Netron.",
        )
        return False
    verdicts = [layer.verdict for layer in dla.layers] if dla is not None else [""] * len(plan)
    for node, layer, verdict in zip(graph.nodes, plan, verdicts):
        texts = {"precision": layer.precision, "reason": layer.reason, "cure": layer.cure, "device": verdict}
        node.metadata.update({PREFIX + key: text for key, text in texts.items() if text})
    for name in [*graph.inputs, *(n for node in graph.nodes for n in node.outputs)]:
        scale = scales.get(name)
        if scale is None or not types.is_float(name):
            continue
        if not graph.is_graph_tensor(name) and name not in graph.value_info:
            if not types.elem_type(name):
                continue
            graph.value_info[name] = onnx.helper.make_tensor_value_info(name, types.elem_type(name), types.shape(name))
        origin = scale.origin
        said = origin.rule
        said += f" at '{origin.node}'" if origin.node else ""
        said += f" from '{origin.source}'" if origin.source and origin.source != name else ""
        graph.tensor_metadata.setdefault(name, {}).update(
            {
                PREFIX + "scale": f"{scale.value:.9g}",
                PREFIX + "scale_hex": scale_to_hex(scale.value),
                PREFIX + "origin": said,
            }
        )
    return True


def _has_fields() -> bool:
    """False with an installed onnx that is older than the fields."""
    return all("metadata_props" in proto.DESCRIPTOR.fields_by_name for proto in (onnx.NodeProto, onnx.ValueInfoProto))
