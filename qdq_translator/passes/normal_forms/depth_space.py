"""Rule F8: DepthToSpace and SpaceToDepth as Reshape, Transpose, Reshape.

1. `DepthToSpace(b)`: [N, b, b, C', H, W] (CRD: [N, C', b, b, H, W]) -> [N, C', H, b, W, b] -> [N, C', H*b, W*b]
2. `SpaceToDepth(b)`: [N, C, H', b, W', b] -> [N, b, b, C, H', W'] -> [N, b*b*C, H', W']

The values only move, so rule S3 gives the new tensors their scales.
Not: on a DLA, which has no six dimensions (rule D11 is for it); unknown C, H or W; blocks that do not divide them.
"""

from __future__ import annotations

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.editor import Editor

WHAT = "DepthToSpace and SpaceToDepth as Reshape, Transpose, Reshape"


def apply(editor: Editor) -> None:
    if editor.settings.hardware.generation:
        return
    for node in editor.nodes("DepthToSpace", "SpaceToDepth"):
        image = editor.image(node.inputs[0])
        if image is None:
            continue
        _, channels, height, width = image
        block = operators.block_size(node)
        if block < 1 or (channels % block**2 if node.is_op("DepthToSpace") else height % block or width % block):
            continue
        if node.is_op("DepthToSpace"):
            rest = channels // (block * block)
            if operators.mode(node) == "CRD":
                split, order = [0, rest, block, block, height, width], [0, 1, 4, 2, 5, 3]
            else:
                split, order = [0, block, block, rest, height, width], [0, 3, 4, 1, 5, 2]
            joined = [0, rest, height * block, width * block]
        else:
            height, width = height // block, width // block
            split, order = [0, channels, height, block, width, block], [0, 3, 5, 1, 2, 4]
            joined = [0, channels * block * block, height, width]
        parts = [editor.tensor(f"{node.outputs[0]}_{part}") for part in ("split", "moved")]
        names = [editor.node(f"{node.name}_{part}") for part in ("split", "move")]
        nodes = [
            editor.reshape(node.inputs[0], parts[0], split, names[0]),
            Node("Transpose", [parts[0]], [parts[1]], names[1], perm=order),
            editor.reshape(parts[1], node.outputs[0], joined, node.name),
        ]
        editor.replace("F8", node, nodes)
