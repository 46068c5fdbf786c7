"""Rules F8 and F10: the inputs of a node in the form that the parser reads directly."""

from __future__ import annotations

import functools

import numpy as np
from onnx import TensorProto

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.passes.editor import Editor


def trailing_inputs(editor: Editor) -> None:
    """Rule F8: `Conv(x, w, '')` -> `Conv(x, w)`. Every parser refuses an empty third input (fact 4.12)."""
    for node in editor.graph.nodes:
        count = len(node.inputs)
        while count and not node.inputs[count - 1]:
            count -= 1
        if count < len(node.inputs):
            editor.graph.set_inputs(node, node.inputs[:count])
            editor.note("F8", [node], [node])


def clip_limits(editor: Editor) -> None:
    """Rule F8: a Clip has both limits.

    `Clip(x)`, `Clip(x, min)` and `Clip(x, , max)` get the lowest and the largest finite number of x's type if a limit
    is missing. With both the parser adds one layer; without a minimum it adds five tensors without a scale.
    Not: limits that are computed; types other than float and float16; below opset 11, whose limits are attributes.
    """
    graph = editor.graph
    if graph.opset() < 11:
        return
    limits: dict[str, str] = {}
    for node in editor.nodes("Clip"):
        given = [name for name in node.inputs[1:] if name]
        if len(given) == 2 or any(name not in graph.initializers for name in given):
            continue
        dtype = editor.dtype(given[0] if given else node.inputs[0])
        if dtype not in (np.float32, np.float16):
            continue
        for index, key in ((1, "min"), (2, "max")):
            if not node.input(index):
                name = f"clip_{key}_{np.dtype(dtype).name}"
                if name not in limits:
                    limits[name] = editor.constant(name, np.array(getattr(np.finfo(dtype), key), dtype))
                graph.set_input(node, index, limits[name])
        editor.note("F8", [node], [node])


_OPS = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu")


def operand_ranks(editor: Editor) -> None:
    """Rule F8: constant operands of Add, Sub, Mul, Div, Pow, Max, Min and PRelu have the rank of the result.

    For a constant of lower rank the parser adds a broadcast with a numbered name. Leading dimensions of 1 change
    nothing. Not: below opset 7, which broadcasts otherwise; operands of unknown rank; integers.
    """
    graph = editor.graph
    if graph.opset() < 7:
        return
    wanted: dict[tuple[str, int], list[tuple[Node, int]]] = {}
    for node in editor.nodes(*_OPS):
        rank = _rank_of_result(editor, node)
        for index, name in enumerate(node.inputs):
            constant = graph.initializers.get(name)
            if constant is not None and len(constant.dims) < rank and editor.dtype(name) is not None:
                wanted.setdefault((name, rank), []).append((node, index))
    for (name, rank), uses in wanted.items():
        readers = list(dict.fromkeys(node for node, _ in uses))
        alone = graph.consumer_count(name) == len(readers) and name not in graph.outputs
        new = name if alone else editor.tensor(f"{name}_{rank}d")
        editor.remade(name, new, functools.partial(np.array, ndmin=rank))
        for node, index in uses:
            if node.inputs[index] != new:
                graph.set_input(node, index, new)
        for node in readers:
            editor.note("F8", [node], [node])


def _rank_of_result(editor: Editor, node: Node) -> int:
    """Rank of the result; 0 for a node whose operands are all constant, or one of unknown rank."""
    ranks = [rank for rank in map(editor.rank, node.inputs) if rank is not None]
    constant = all(name in editor.graph.initializers for name in node.inputs)
    return 0 if constant or len(ranks) < len(node.inputs) else max(ranks)


def slice_indices(editor: Editor) -> None:
    """Rule F10: a Slice has starts, ends, axes and steps, all in INT32, for TensorRT 10 and later.

    With INT64 its parser computes start and size in 26 integer layers, and the Slice is not static. A limit beyond
    INT32 ("to the end") becomes the last INT32. TensorRT-RTX's parser refuses INT32 indices without axes or steps, and
    INT64 ones without axes.
    Not: TensorRT 8; indices that are computed, or INT32 already.
    """
    graph = editor.graph
    if editor.parser is None or editor.parser[0] < 10:
        return
    limits = np.iinfo(np.int32)
    made: dict[tuple[int, ...], str] = {}
    for node in editor.nodes("Slice"):
        given = operators.slices(node, graph.array) if graph.opset() >= 10 else None
        if given is None or all(_is_int32(graph, node.input(index)) for index in (1, 2, 3, 4)):
            continue
        names = []
        for key in ("starts", "ends", "axes", "steps"):
            values = tuple(min(max(value, limits.min), limits.max) for value in getattr(given, key))
            if values not in made:
                made[values] = editor.constant(f"{node.name}.{key}", np.array(values, np.int32))
            names.append(made[values])
        graph.set_inputs(node, [node.inputs[0], *names])
        editor.note("F10", [node], [node])


def _is_int32(graph: Graph, name: str) -> bool:
    tensor = graph.initializers.get(name)
    return tensor is not None and tensor.data_type == TensorProto.INT32
