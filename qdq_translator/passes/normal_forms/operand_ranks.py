"""Rule F8: constant operands of Add, Sub, Mul, Div, Pow, Max, Min and PRelu have the rank of the result.

A constant of lower rank makes a broadcast of its own in the parser, with a numbered name. Leading dimensions of 1 change
nothing.
Not: below opset 7, which broadcasts otherwise; operands of unknown rank; integers.
"""

from __future__ import annotations

import functools

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.passes.editor import Editor

WHAT = "Constant operands of full rank"
_OPS = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu")


def apply(editor: Editor) -> None:
    graph = editor.graph
    if graph.opset() < 7:
        return
    wanted: dict[tuple[str, int], list[tuple[Node, int]]] = {}
    for node in editor.nodes(*_OPS):
        constants = [i for i, name in enumerate(node.inputs) if name in graph.initializers]
        if not constants or len(constants) == len(node.inputs):
            continue
        ranks = [editor.rank(name) for name in node.inputs]
        highest = max((rank for rank in ranks if rank is not None), default=0)
        if None in ranks:
            continue
        for index in constants:
            rank = ranks[index]
            if rank is not None and rank < highest and editor.dtype(node.inputs[index]) is not None:
                wanted.setdefault((node.inputs[index], highest), []).append((node, index))
    for (name, rank), uses in wanted.items():
        node, index = uses[0]
        alone = graph.consumer_count(name) == len({id(reader) for reader, _ in uses}) and name not in graph.outputs
        new = name if alone else editor.tensor(f"{name}_{rank}d")
        editor.remade(name, new, functools.partial(_with_rank, rank=rank))
        for node, index in uses:
            if node.inputs[index] == name and new != name:
                graph.set_input(node, index, new)
        for node in dict.fromkeys(reader for reader, _ in uses):
            editor.note("F8", [node], [node])


def _with_rank(values: np.ndarray, rank: int) -> np.ndarray:
    return values.reshape((1,) * (rank - values.ndim) + values.shape)
