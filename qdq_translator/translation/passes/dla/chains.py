"""Rule D17: chains of Reshapes and Transposes become their shortest equivalent.

1. nothing, if all values keep their positions
2. one Reshape, if they keep their order
3. one Transpose, if the axes change their order
4. a Conv that copies, if channels change their order (ShuffleNet: `Reshape -> Transpose -> Reshape` with five
   dimensions), or blocks or windows of H and W become channels (SpaceToDepth, unfold): W[k, c, i, j] = 1 where output
   channel k begins at position (i, j) of input channel c; the stride is the size of a block or the step of the windows
5. a ConvTranspose that copies, if channels become blocks of H and W (PixelShuffle): W[k, c, i, j] = 1 where input
   channel k holds position (i, j) of output channel c

6. Slice, Reshape and Transpose of four dimensions, of the last two in either order and at most one each, if they yield
   a box of channels, rows and columns (the heads of an attention: `Reshape -> Transpose -> Gather` with five
   dimensions)
7. a Reshape and a Transpose, if a longer chain starts or ends with other than four dimensions; a Slice and a Reshape,
   if it takes a box of four dimensions apart (the last step of a sequence, `x[:, :, -1]`)
8. the layers of rule D23, if the chain only selects channels, rows and columns by their indices (flips, Gather)

Flatten, Squeeze and Unsqueeze count as Reshapes; Slice, and Gather with constant indices, are links too, and a Split
counts as the Slices of its parts. A Gather alone becomes a Slice, or as in case 8, as does a Slice with a negative step
(limit S5). If chains branch, each branch becomes one of these separately, or none does. The effect of a chain is
computed on the numbers 0, 1, 2, ...; a weight of 1 is quantized as 127: exact in INT8. Input and output keep their
common scale (rule S3). In cases 4 and 5 the layer multiplies with C * C' * b * b weights, which the report counts; rule
D3 then makes one Conv per part if a Split or Slices follow.

Not: cases 4 to 8 where the DLA supports every one of them; tensors in between that others read; graph outputs in
between; between different scales of the model's own; sizes that are not known (the batch size may be); case 1 to a
graph output from a graph input or from a tensor that others read; blocks or steps of more than 8 (22 in case 5);
channels above 8192; other orders.
"""

from __future__ import annotations

import itertools
import math
from typing import List, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.shape_arithmetic import MOVES
from qdq_translator.translation.passes.dla import axis_forms
from qdq_translator.translation.passes.dla.reshapes import target_sizes
from qdq_translator.translation.passes.dla.rewriter import LARGEST_BLOCK, LARGEST_KERNEL, MOST_CHANNELS, Rewriter
from qdq_translator.translation.passes.editor import Stays, known, stay_if

RULE = "D17"
_OPS = (*operators.VIEWS, "Transpose", "Gather", "Slice")
_Chains = Sequence[List[Node]]
_Sizes = Tuple[int, ...]
_Step = Tuple[str, List[int]]
"""Reshape and its sizes, Transpose and its axes, or Slice with the begins and the ends of C, H and W."""
_NO_SIZES = "sizes along its chain are not known"
_OTHER = "its chain moves values from or to other than four dimensions"
_FINE = "the DLA supports its chain as it is"
_MOST_DIMENSIONS = 8
"""Limit of TensorRT."""
_BATCH = 2
"""Used for an unknown batch size."""


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Split"):
        _apart_as_slices(rewriter, node)
    for node in rewriter.nodes(*_OPS):
        before = rewriter.graph.producer.get(node.inputs[0])
        if rewriter.graph.producer.get(node.outputs[0]) is not node:
            continue  # removed with another chain
        if not _moves(rewriter, node) or (before is not None and node in _readers(rewriter, before)):
            continue  # inside a chain
        tree = _branches(rewriter, node)
        if len(tree) == 1 or not _rewrite_all(rewriter, tree):
            for chain in _apart(rewriter, tree):
                _rewrite_all(rewriter, [chain])


def _apart_as_slices(rewriter: Rewriter, node: Node) -> None:
    """Replace a Split that the DLA does not support by Slices, as TensorRT does, if data movement follows each part."""
    graph = rewriter.graph
    axis, size = operators.axis_and_size(node, graph.opset(), rewriter.types.shape(node.inputs[0]))
    sizes = operators.split_sizes(node, size, graph.array) if size is not None else None
    if sizes is None or not rewriter.is_float(node.inputs[0]) or not rewriter.rejected(node):
        return
    ends = itertools.accumulate(sizes)
    parts = [(name, end - size, end) for name, size, end in zip(node.outputs, sizes, ends) if name]
    if any(not _all_moved(rewriter, name) for name, _, _ in parts):
        return
    new = []
    for number, (name, begin, end) in enumerate(parts):
        part = rewriter.node(f"{node.name}_{number}")
        new.append(rewriter.slice(node.inputs[0], name, [begin], [end], [axis], part))
    rewriter.replace(RULE, node, new)


def _all_moved(rewriter: Rewriter, name: str) -> bool:
    readers = rewriter.graph.consumers(name)
    return bool(readers) and name not in rewriter.graph.outputs and all(_moves(rewriter, r) for r in readers)


def _moves(rewriter: Rewriter, node: Node) -> bool:
    """True if it only moves values, with constant parameters."""
    if not node.is_op(*_OPS) or rewriter.graph.is_constant(node.inputs[0]):
        return False
    if node.is_op("Slice"):
        return operators.slices(node, rewriter.graph.array) is not None
    return not node.is_op("Gather") or rewriter.graph.array(node.inputs[1]) is not None


def _readers(rewriter: Rewriter, node: Node) -> list[Node]:
    """The links that follow this one; [] if its output has other readers, or none."""
    graph = rewriter.graph
    if not _moves(rewriter, node) or node.outputs[0] in graph.outputs:
        return []
    readers = graph.consumers(node.outputs[0])
    fine = all(_moves(rewriter, reader) and reader.inputs[0] == node.outputs[0] for reader in readers)
    return readers if fine else []


def _branches(rewriter: Rewriter, root: Node) -> list[list[Node]]:
    """Every path from `root` to a reader of its values."""
    found, pending = [], [[root]]
    while pending:
        way = pending.pop(0)
        readers = _readers(rewriter, way[-1])
        pending += [[*way, reader] for reader in readers]
        if not readers:
            found.append(way)
    return found


def _apart(rewriter: Rewriter, tree: _Chains) -> list[list[Node]]:
    """The sections of the paths in which each tensor has one reader."""
    chains: dict[int, list[Node]] = {}
    for way in tree:
        begin = 0
        for index, node in enumerate(way):
            if index + 1 == len(way) or len(_readers(rewriter, node)) > 1:
                chains.setdefault(id(node), way[begin : index + 1])
                begin = index + 1
    return list(chains.values())


def _rewrite_all(rewriter: Rewriter, chains: _Chains) -> bool:
    """Rewrite all chains or, with the reason noted, none; they may begin with the same links."""
    links = list({id(node): node for chain in chains for node in chain}.values())
    rejected = any(rewriter.rejected(link) for link in links)
    # a single link is a chain only if it is a Gather, which the DLA lacks, or a Slice with a negative step (limit S5)
    if len(links) < 2:
        alone = links[0].is_op("Gather") or "S5" in rewriter.rejected_by(links[0])
        if not (rejected and alone):
            return False
    made = []
    for chain in chains:
        try:
            made.append(_shorter(rewriter, chain, rejected, len(chains) > 1))
        except Stays as why:
            for link in chain:
                rewriter.leave(link, str(why))
            return False
    _replace(rewriter, chains, links, made)
    return True


def _shorter(rewriter: Rewriter, chain: Sequence[Node], rejected: bool, branches: bool) -> list[Node]:
    """The simplified chain. branches: whether other chains begin with the same links. Raises Stays."""
    graph = rewriter.graph
    source, target = chain[0].inputs[0], chain[-1].outputs[0]
    stay_if(rewriter.dtype(source) is None, "it moves integers")
    differ = rewriter.scales_differ(source, *(node.outputs[0] for node in chain))
    stay_if(differ, "there are different scales along its chain")
    _refuse_early(rewriter, chain, _OTHER if rejected else _FINE)
    (start, moved), shape = effect(rewriter, chain, source), known(rewriter.types.shape(target), _NO_SIZES)
    stay_if(not start.size or not moved.size, _NO_SIZES)
    same_order = _same(start, moved)
    if same_order and start.shape == moved.shape:
        # the source gets the name of the graph output, which must be possible
        renamed = source in graph.producer and graph.only_consumer(source) is chain[0] and not branches
        stay_if(target in graph.outputs and not renamed, "its chain makes a graph output and changes nothing")
        return []
    axes = _axes(start, moved)
    if axes is not None:
        return _layers(rewriter, chain, [("Transpose", axes)])
    if same_order:
        sizes = known(target_sizes(rewriter.types.shape(source), shape), _NO_SIZES)
        return _layers(rewriter, chain, [("Reshape", sizes)])
    stay_if(not rejected, _FINE)
    if start.ndim != 4 or moved.ndim != 4 or start.shape[0] != moved.shape[0]:
        return _two(rewriter, start, moved, chain)
    return _in_layers(rewriter, chain, start, moved)


def _refuse_early(rewriter: Rewriter, chain: Sequence[Node], why: str) -> None:
    """Before values are moved, raises Stays for a chain of other dimensions that changes the number of values, and for
    a Reshape to or from other dimensions next to a Transpose that changes their order."""
    given, made = (rewriter.types.static_shape(name) for name in (chain[0].inputs[0], chain[-1].outputs[0]))
    if not given or not made or not all(given):
        return
    stay_if(len(given) != 4 and math.prod(given) != math.prod(made), why)
    if len(chain) == 2 and len(given) != len(made) and any(node.is_op(*operators.VIEWS) for node in chain):
        stay_if(any(_turns(rewriter, node) for node in chain), why)


def _turns(rewriter: Rewriter, node: Node) -> bool:
    """Whether it is a Transpose that changes the order of values."""
    sizes = (rewriter.types.static_shape(node.inputs[0]) or ()) if node.is_op("Transpose") else ()
    order = operators.permutation(node) or range(len(sizes))[::-1]
    kept = [axis for axis in order if sizes and sizes[axis] != 1]
    return kept != sorted(kept)


def _in_layers(rewriter: Rewriter, chain: Sequence[Node], start: np.ndarray, moved: np.ndarray) -> list[Node]:
    """Cases 4 to 6 and 8. Raises Stays."""
    source, last = chain[0].inputs[0], chain[-1]
    stay_if(_mixes(start, moved), "its chain moves values between samples")
    steps = _boxed(start, moved)
    if steps is not None:
        return _layers(rewriter, chain, steps)
    if max(*start.shape[1:], *moved.shape[1:]) <= MOST_CHANNELS:
        taken, image = axis_forms.selection(start, moved), rewriter.image(source)
        if taken is not None and image is not None:
            return axis_forms.layers(rewriter, Node("Gather", [source], last.outputs, last.name), image, taken)
    why = "its chain moves values in a way that no Conv of the DLA can"
    stay_if(max(start.shape[1], moved.shape[1]) > MOST_CHANNELS, why)
    return [known(_copying(rewriter, start, moved, source, last), why)]


def _mixes(start: np.ndarray, moved: np.ndarray) -> bool:
    """Whether values move between samples."""
    size = start[0].size
    if len(start) == len(moved) == 1:
        return False
    offsets = np.arange(len(moved)).reshape(-1, *[1] * (moved.ndim - 1)) * size
    return len(start) != len(moved) or moved[0].max() >= size or bool(np.any(moved - moved[0] != offsets))


def effect(rewriter: Rewriter, chain: Sequence[Node], source: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers 0, 1, 2, ... in the shape of `source`, which the chain reads, and the result of the chain for them.
    Raises Stays if sizes or parameters are unknown."""
    shape = known(rewriter.types.shape(source), _NO_SIZES)
    stay_if(not all(isinstance(size, int) for size in shape[1:]), _NO_SIZES)
    sizes = [size if isinstance(size, int) else _BATCH for size in shape]
    rewriter.afford(source, *sizes)
    values = start = rewriter.numbers(sizes)
    for node in chain:
        try:
            values = _moved(rewriter, node, values)
        except (TypeError, ValueError, IndexError):  # a parameter is unknown, or does not fit
            raise Stays(_NO_SIZES) from None
    return start, values


def _moved(rewriter: Rewriter, node: Node, values: np.ndarray) -> np.ndarray:
    """The output of a link for these values."""
    if node.is_op(*operators.VIEWS):
        sizes = known(rewriter.types.shape(node.outputs[0]), _NO_SIZES)
        return values.reshape([size if isinstance(size, int) else -1 for size in sizes])
    given = [known(rewriter.graph.array(name), _NO_SIZES) for name in node.inputs[1:] if name]
    stay_if(any(parameter.dtype.kind not in "iu" for parameter in given), _NO_SIZES)
    return known(MOVES[node.op_type](node, [values, *given]), _NO_SIZES)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether both have the same values in the same order; most cases need no copy."""
    few = slice(1, 9)
    if not np.array_equal(one.flat[few], other.flat[few]):
        return False
    return _equal(one.reshape(-1), other.reshape(-1))


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """As `np.array_equal`; two views of the same numbers are not compared."""
    where, there = ((array.__array_interface__["data"], array.shape, array.strides) for array in (one, other))
    return where == there or np.array_equal(one, other)


def _turned(start: np.ndarray, moved: np.ndarray) -> Optional[list[_Step]]:
    """A Reshape and a Transpose of four dimensions, the batch first, in the order that converts `start` to `moved`."""
    for order in itertools.permutations((1, 2, 3)):
        axes = [0, *order]
        if moved.ndim == 4:
            plain = moved.transpose(np.argsort(axes))
            if _same(plain, start):
                return [("Reshape", [*plain.shape]), ("Transpose", axes)]
        if start.ndim == 4 and _same(start.transpose(axes), moved):
            return [("Transpose", axes), ("Reshape", [*moved.shape])]
    return None


def _two(rewriter: Rewriter, start: np.ndarray, moved: np.ndarray, chain: Sequence[Node]) -> list[Node]:
    """Case 7, if only one end has four dimensions. Raises Stays."""
    if start.ndim == 4 and moved.size < start.size and not _mixes(start, moved):
        return _layers(rewriter, chain, known(_boxed(start, moved), _OTHER))
    stay_if(len(chain) < 3 or start.size != moved.size or start.ndim == moved.ndim, _OTHER)
    steps = known(_turned(start, moved), _OTHER)
    before, after = (rewriter.types.shape(name) or () for name in (chain[0].inputs[0], chain[-1].outputs[0]))
    axes = dict(steps)["Transpose"]
    if moved.ndim == 4:
        after = tuple(after[axis] for axis in np.argsort(axes))
    else:
        before = tuple(before[axis] for axis in axes)
    sizes = known(target_sizes(before, after), _OTHER)
    return _layers(rewriter, chain, [(op, sizes if op == "Reshape" else axes) for op, _ in steps], "between")


def _boxed(start: np.ndarray, moved: np.ndarray) -> Optional[list[_Step]]:
    """Case 6: a Slice to a box of channels, rows and columns, then Reshape and Transpose, or Transpose and Reshape."""
    low, high = (np.unravel_index(int(end), start.shape[1:]) for end in (moved[0].min(), moved[0].max()))
    begins, ends = [int(at) for at in low], [int(at) + 1 for at in high]
    cut = (slice(None), *map(slice, begins, ends))
    box = start[cut]
    found = _turned(box, moved) if box.size == moved.size else None
    if found is None:
        return None
    steps: list[_Step] = [("Slice", [*begins, *ends])] if box.size != start.size else []
    shape: list[int] = [*box.shape]
    for op, value in found:
        after = value if op == "Reshape" else [shape[axis] for axis in value]
        if op == "Reshape" and after != shape:
            steps.append((op, [0, *value[1:]]))
        elif op == "Transpose" and value != [0, 1, 2, 3]:
            steps.append((op, value))
        shape = after
    return steps


def _layers(rewriter: Rewriter, chain: Sequence[Node], steps: Sequence[_Step], what: str = "") -> list[Node]:
    """The layers that replace the chain. what: part of the names of tensors between them, in place of the operator."""
    nodes: list[Node] = []
    source, last = chain[0].inputs[0], chain[-1]
    for op, value in steps:
        final, part = len(nodes) == len(steps) - 1, what or op.lower()
        target = last.outputs[0] if final else rewriter.tensor(f"{last.outputs[0]}_{part}")
        name = last.name if final else rewriter.node(f"{last.name}_{part}")
        if op == "Slice":
            nodes.append(rewriter.slice(source, target, value[:3], value[3:], [1, 2, 3], name))
        elif op == "Reshape":
            nodes.append(rewriter.reshape(source, target, value, name))
        else:
            nodes.append(Node("Transpose", [source], [target], name, perm=value))
        source = target
    return nodes


def _axes(start: np.ndarray, moved: np.ndarray) -> Optional[list[int]]:
    """The axis order that converts `start`, the numbers 0, 1, 2, ..., to `moved`; axes of size 1 keep their position if
    possible."""
    if start.size != moved.size or start.ndim != moved.ndim or start.ndim > _MOST_DIMENSIONS:
        return None
    steps = {step // start.itemsize: axis for axis, step in enumerate(start.strides) if start.shape[axis] > 1}
    ones, unit = (axis for axis, size in enumerate(start.shape) if size == 1), np.eye(start.ndim, dtype=int)
    order = [
        next(ones, -1) if size == 1 else steps.get(int(moved[tuple(unit[axis])]), -1)
        for axis, size in enumerate(moved.shape)
    ]
    fits = sorted(order) == list(range(start.ndim)) and _equal(start.transpose(order), moved)
    return order if fits else None


def _copying(rewriter: Rewriter, start: np.ndarray, moved: np.ndarray, source: str, last: Node) -> Optional[Node]:
    """Cases 4 and 5: each channel of one array is part of a channel of the other, with an offset and equal steps."""
    index = moved[0]
    forms = [("Conv", index, start)]
    if index.size == start[0].size and all(np.less_equal(start.shape[2:], moved.shape[2:])):
        places: np.ndarray = np.full(index.size, -1)
        places[index.reshape(-1)] = np.arange(index.size)
        forms += [("ConvTranspose", places.reshape(start.shape[1:]), moved)] if places.min() >= 0 else []  # each once
    for op, coarse, fine in forms:
        c, i, j = np.unravel_index(coarse[:, 0, 0], fine.shape[1:])
        (_, rows, columns), (height, width) = coarse.shape, fine.shape[2:]
        kernel = [int(i.max()) + 1, int(j.max()) + 1]
        down = int(coarse[0, 1, 0] - coarse[0, 0, 0]) // width if rows > 1 else kernel[0]
        right = int(coarse[0, 0, 1] - coarse[0, 0, 0]) if columns > 1 else kernel[1]
        ends = [height - kernel[0] - (rows - 1) * down, width - kernel[1] - (columns - 1) * right]
        inside = 0 <= ends[0] < down <= LARGEST_BLOCK[op] and 0 <= ends[1] < right <= LARGEST_BLOCK[op]
        if not inside or max(kernel) > LARGEST_KERNEL or (op == "ConvTranspose" and max(ends)):
            continue
        grid = down * width * np.arange(rows)[:, None] + right * np.arange(columns)
        if not np.array_equal(coarse, coarse[:, :1, :1] + grid):
            continue
        shape = (len(coarse), fine.shape[1], *kernel)
        rewriter.afford(last.name, *shape)
        weight: np.ndarray = np.zeros(shape, rewriter.dtype(source))
        weight[np.arange(len(coarse)), c, i, j] = 1
        inputs = [source, rewriter.constant(f"{last.name}.weight", weight)]
        return Node(op, inputs, last.outputs, last.name, kernel_shape=kernel, strides=[down, right])
    return None


def _replace(rewriter: Rewriter, chains: _Chains, links: Sequence[Node], made: _Chains) -> None:
    """Replace the chains; readers of an empty one read the source."""
    graph, anchor, source = rewriter.graph, links[0].prev, links[0].inputs[0]
    became = _became(rewriter, chains, made, source)
    for node in links:
        graph.remove(node)
    for name, kept in became.items():
        rewriter.network.merge_tensor(name, kept[0])
    target = chains[0][-1].outputs[0]
    if not made[0] and target in graph.outputs:
        rewriter.network.rename_tensor(source, target)
        became = {name: [target] for name in (source, *became)}
    nodes = list(itertools.chain(*made))
    rewriter.insert(nodes, anchor)
    rewriter.note(RULE, links, nodes, became, [node.outputs[0] for new in made for node in new[:-1]])
    for node in nodes:
        if node.is_op("Conv", "ConvTranspose"):
            rewriter.same_scale(RULE, node.outputs[0], source, node)


def _became(rewriter: Rewriter, chains: _Chains, made: _Chains, source: str) -> dict[str, list[str]]:
    """Removed tensors -> those that get their scale: the last one read, which has the same values, or the source (by
    rule S2, if the last one is a graph output)."""
    became: dict[str, dict[str, None]] = {}
    for chain, new in zip(chains, made):
        *names, end = (node.outputs[0] for node in chain)
        inside = end not in rewriter.graph.outputs
        for name in names if new or not inside else (*names, end):
            became.setdefault(name, {})[end if new and inside else source] = None
    return {name: list(kept) for name, kept in became.items()}
