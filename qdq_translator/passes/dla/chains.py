"""Rule D17: several Reshapes and Transposes in a row become what they come to.

1. nothing, where all values are in their old places
2. one Reshape, where their order is the old one
3. one Transpose, where the axes have another order
4. a Conv that copies, where channels have another order (ShuffleNet: `Reshape -> Transpose -> Reshape` with five dimensions) or
   blocks of H and W become channels (SpaceToDepth): kernel and stride b x b, W[k, c, i, j] = 1 where output channel k holds
   position (i, j) of input channel c
5. a ConvTranspose that copies, where channels become blocks of H and W (PixelShuffle): W[k, c, i, j] = 1 where input channel
   k holds position (i, j) of output channel c

Flatten, Squeeze and Unsqueeze count as Reshapes. What a chain comes to is read off its effect on the numbers 0, 1, 2, ...; a
weight of 1 is a code of 127: exact in INT8. Input and output have one scale, as they had (rule S3). In cases 4 and 5 the
layer multiplies with C * C' * b * b weights, which the report counts; rule D3 then makes one Conv a part where a Split or
Slices follow.

Not: where the DLA takes every one of them; what others read in between; graph outputs in between; between different scales
of the model's own; sizes that are not known (the batch size may be); case 1 for graph outputs; blocks of more than 8 (22 in
case 5); channels above 8192; other orders.
"""

from __future__ import annotations

from typing import Optional, Sequence

import numpy as np

from qdq_translator import operators
from qdq_translator.graph import Node
from qdq_translator.passes.dla.reshapes import target_sizes
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D17"
_OPS = (*operators.VIEWS, "Transpose")
_LARGEST = {"Conv": 8, "ConvTranspose": 22}
_MOST_CHANNELS = 8192
_BATCH = 2
"""Stands for a batch size that is not known."""


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes(*_OPS):
        before = rewriter.graph.producer.get(node.inputs[0])
        if before is not None and _next(rewriter, before) is node:
            continue  # inside a chain
        chain = [node]
        while True:
            reader = _next(rewriter, chain[-1])
            if reader is None:
                break
            chain.append(reader)
        if len(chain) > 1 and any(rewriter.rejected(link) for link in chain):
            why = _rewrite(rewriter, chain)
            if why:
                for link in chain:
                    rewriter.leave(link, why)


def _next(rewriter: Rewriter, node: Node) -> Optional[Node]:
    """The link behind this one, where nothing else reads what it makes."""
    if not node.is_op(*_OPS):
        return None
    reader = rewriter.graph.only_consumer(node.outputs[0])
    return reader if reader is not None and reader.is_op(*_OPS) and reader.inputs[0] == node.outputs[0] else None


def _rewrite(rewriter: Rewriter, chain: Sequence[Node]) -> str:
    """'', or why the chain stays."""
    graph, scales = rewriter.graph, rewriter.scales
    source, target = chain[0].inputs[0], chain[-1].outputs[0]
    names = [source, *(node.outputs[0] for node in chain)]
    if graph.is_constant(source) or rewriter.dtype(source) is None:
        return "it moves integers or a constant"
    if len({scales.value(name) for name in names} - {None}) > 1:
        return "there are different scales along its chain"
    before = _effect(rewriter, chain)
    if before is None:
        return "sizes along its chain are not known"
    start, moved = before
    shape = rewriter.types.shape(target)
    if shape is None or start.size == 0:
        return "sizes along its chain are not known"
    same_order = np.array_equal(start.reshape(-1), moved.reshape(-1))
    if same_order and start.shape == moved.shape:
        return _take_out(rewriter, chain)
    axes = None if start.ndim != moved.ndim else _axes(start, moved)
    last = chain[-1]
    if same_order or axes is not None:
        sizes = target_sizes(rewriter.types.shape(source), shape)
        if axes is None and sizes is None:
            return "sizes along its chain are not known"
        new = Node("Transpose", [source], [target], last.name, perm=axes) if axes else None
        _replace(rewriter, chain, new or rewriter.reshape(source, target, sizes or [], last.name))
        return ""
    if start.ndim != 4 or moved.ndim != 4:
        return "its chain moves values from or to other than four dimensions"
    new = _copying(rewriter, start, moved, last, source)
    if new is None:
        return "its chain moves values in a way that no Conv of the DLA can"
    _replace(rewriter, chain, new)
    rewriter.same_scale(RULE, target, source, new)
    return ""


def _effect(rewriter: Rewriter, chain: Sequence[Node]) -> Optional[tuple[np.ndarray, np.ndarray]]:
    """The numbers 0, 1, 2, ... in the shape of the input, and where the chain puts them."""
    shape = rewriter.types.shape(chain[0].inputs[0])
    if shape is None or not all(isinstance(size, int) for size in shape[1:]):
        return None
    sizes = [size if isinstance(size, int) else _BATCH for size in shape]
    rewriter.afford(chain[0].name, *sizes)
    start: np.ndarray = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    values = start
    for node in chain:
        if node.is_op("Transpose"):
            order = operators.permutation(node)
            if order is not None and sorted(order) != list(range(values.ndim)):
                return None
            values = values.transpose(order)
            continue
        after = [size if isinstance(size, int) else -1 for size in rewriter.types.shape(node.outputs[0]) or ()]
        if after.count(-1) > 1 or (-1 not in after and int(np.prod(after)) != values.size):
            return None
        if -1 in after and values.size % max(1, -int(np.prod(after))):
            return None
        values = values.reshape(after)
    return start, values


def _axes(start: np.ndarray, moved: np.ndarray) -> Optional[list[int]]:
    """The order of axes that makes one from the other; axes of size 1 keep theirs where they can."""
    strides = [s // start.itemsize for s in start.strides]
    wanted = [
        int(np.moveaxis(moved, i, 0).reshape(moved.shape[i], -1)[-1, 0]) - int(moved.reshape(-1)[0])
        for i in range(moved.ndim)
    ]
    left = list(range(start.ndim))
    order: list[int] = []
    for size, distance in zip(moved.shape, wanted):
        fits = [a for a in left if start.shape[a] == size and (size == 1 or strides[a] * (size - 1) == distance)]
        if not fits:
            return None
        order.append(fits[0])
        left.remove(fits[0])
    return order if np.array_equal(start.transpose(order), moved) else None


def _copying(rewriter: Rewriter, start: np.ndarray, moved: np.ndarray, last: Node, source: str) -> Optional[Node]:
    """Cases 4 and 5: one of both arrays, seen as blocks of b x b, has the other's channels in its positions."""
    dtype = rewriter.dtype(source)
    if start.shape[0] != moved.shape[0] or max(start.shape[1], moved.shape[1]) > _MOST_CHANNELS or dtype is None:
        return None
    for op, coarse, fine in (("Conv", moved, start), ("ConvTranspose", start, moved)):
        if fine.shape[2] % coarse.shape[2] or fine.shape[3] % coarse.shape[3]:
            continue
        rows, columns = fine.shape[2] // coarse.shape[2], fine.shape[3] // coarse.shape[3]
        if coarse.shape[1] != fine.shape[1] * rows * columns or max(rows, columns) > _LARGEST[op]:
            continue
        # blocks[c, i, j] and channels[k] of the first place: the same number where they hold the same value
        blocks, channels = fine[0, :, :rows, :columns], coarse[0, :, 0, 0]
        k, c, i, j = np.nonzero(channels[:, None, None, None] == blocks[None])
        if len(k) != coarse.shape[1]:
            continue
        parts = fine.reshape(*fine.shape[:2], coarse.shape[2], rows, coarse.shape[3], columns)
        if not np.array_equal(parts[:, c, :, i, :, j].transpose(1, 0, 2, 3), coarse[:, k]):
            continue
        rewriter.afford(last.name, coarse.shape[1], fine.shape[1], rows, columns)
        weight: np.ndarray = np.zeros((coarse.shape[1], fine.shape[1], rows, columns), dtype)
        weight[k, c, i, j] = 1
        name = rewriter.constant(f"{last.name}.weight", weight)
        size = [rows, columns]
        return Node(op, [source, name], last.outputs, last.name, kernel_shape=size, strides=size)
    return None


def _take_out(rewriter: Rewriter, chain: Sequence[Node]) -> str:
    """Case 1: who read the last tensor reads the first one."""
    graph = rewriter.graph
    source, target = chain[0].inputs[0], chain[-1].outputs[0]
    if target in graph.outputs:
        return "its chain makes a graph output and changes nothing"
    for node in chain:
        graph.remove(node)
        rewriter.network.merge_tensor(node.outputs[0], source)
    rewriter.note(RULE, chain, [], {node.outputs[0]: [source] for node in chain})
    return ""


def _replace(rewriter: Rewriter, chain: Sequence[Node], new: Node) -> None:
    """Tensors between go; their scale goes to the last one, which has the same values (the first, by rule S2, where that is a
    graph output)."""
    anchor = chain[0].prev
    source, target = chain[0].inputs[0], chain[-1].outputs[0]
    kept = source if target in rewriter.graph.outputs else target
    for node in chain:
        rewriter.graph.remove(node)
    for node in chain[:-1]:
        rewriter.network.merge_tensor(node.outputs[0], kept)
    rewriter.graph.insert_after(new, anchor)
    rewriter.note(RULE, chain, [new], {node.outputs[0]: [kept] for node in chain[:-1]})
