"""Rule D12: Resize by sizes becomes Resize by integer scale factors.

1. `Resize(sizes)`, or with factors that are no constant, where both shapes are known and H and W grow by whole numbers ->
   the same with constant scales [1, 1, h, w]. ONNX computes with output size / input size, so nothing changes.

The names stay; there are no new tensors.

Not: factors that are not whole; sizes that are not known; tf_crop_and_resize; keep_aspect_ratio_policy other than stretch;
named axes; opset below 11 (which has no sizes). Interpolations and coordinate modes that the DLA does not have stay what they are (limit R3).
"""

from __future__ import annotations

import numpy as np

from qdq_translator import operators
from qdq_translator.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D12"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Resize"):
        if rewriter.graph.opset() < 11 or not rewriter.rejected_by(node) & {"R1", "R2"}:
            continue
        scales = rewriter.graph.array(node.input(2))
        if scales is not None and scales.size:
            rewriter.leave(node, "its factors are not whole, too large, or not of H and W only")
            continue
        source, target = node.inputs[0], node.outputs[0]
        before, after = rewriter.image(source), rewriter.image(target)
        if before is None or after is None:
            rewriter.leave(node, "its sizes are not known")
            continue
        if before[0] != after[0] or before[1] != after[1] or after[2] % before[2] or after[3] % before[3]:
            sizes = f"{before[2]}x{before[3]} to {after[2]}x{after[3]}"
            rewriter.leave(node, f"from {sizes} is not a whole factor")
            continue
        if operators.crops(node):
            rewriter.leave(node, "it crops")
            continue
        if node.get("keep_aspect_ratio_policy", "stretch") != "stretch" or node.get("axes") is not None:
            rewriter.leave(node, "it keeps the aspect ratio, or names axes")
            continue
        factors = np.array([1, 1, after[2] // before[2], after[3] // before[3]], np.float32)
        new = Node("Resize", [source, "", rewriter.constant(f"{node.name}.scales", factors)], [target], node.name)
        new.attributes = {k: v for k, v in node.attributes.items() if k != "keep_aspect_ratio_policy"}
        if rewriter.graph.opset() < 13:  # the region of interest was not optional yet
            empty = rewriter.constant(f"{node.name}.roi", np.zeros(0, np.float32))
            new.inputs[1] = empty
        rewriter.replace(RULE, node, [new])
