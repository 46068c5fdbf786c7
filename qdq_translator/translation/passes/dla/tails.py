"""Rule D16: with `--dla_output 4d`, graph inputs and outputs have four dimensions.

1. `[N, C, H, W] -> Reshape, Flatten, Squeeze, Unsqueeze (one or several) -> graph output` -> the graph output is [N, C,
   H, W].
2. `graph input -> Reshape, Unsqueeze, ... -> [N, C, H, W]`, as rule D26 writes it -> the graph input is [N, C, H, W].

Names, values and their order stay the same, and message `I-D16` contains both shapes. Such Reshapes do not run on the
DLA (limit H1), so that the network is no standalone loadable. A tensor that gets the name of another one keeps its
scale; without one it gets that tensor's scale.
Not: without the option; if another layer reads the graph input or output; if the tensor is another graph output, or a
graph input; between two different scales of the model; if the graph input or output has four dimensions; if the next
tensor has another number of dimensions.
"""

from __future__ import annotations

from typing import Sequence

from onnx import helper

from qdq_translator.core import words
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import VIEWS
from qdq_translator.translation.ir.types import Dim
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.passes.editor import stay_if

RULE = "D16"


def apply(rewriter: Rewriter) -> None:
    graph = rewriter.graph
    for name in (*graph.outputs, *graph.inputs) if rewriter.settings.image_outputs else ():
        chain = _views(rewriter, name)
        if chain and all(map(rewriter.allows, chain)):
            rewriter.attempt(_end_at, chain[0], chain, name)


def _views(rewriter: Rewriter, end: str) -> list[Node]:
    """The views between a graph input or output and the next four-dimensional tensor, outermost first; [] if there are
    none."""
    graph, name, is_input = rewriter.graph, end, end in rewriter.graph.inputs
    chain: list[Node] = []
    while rewriter.channels(name) is None or not chain:
        node = graph.only_consumer(name) if is_input else graph.producer.get(name)
        if node is None or not node.is_op(*VIEWS) or not rewriter.is_float(name):
            break
        chain.append(node)
        name = _inner(node, is_input)
    return chain if rewriter.channels(name) is not None and rewriter.rank(end) != 4 else []


def _inner(view: Node, is_input: bool) -> str:
    """The tensor of a view that is farther from the graph input or output."""
    return view.outputs[0] if is_input else view.inputs[0]


def _end_at(rewriter: Rewriter, _: Node, chain: Sequence[Node], end: str) -> None:
    graph, network, is_input = rewriter.graph, rewriter.network, end in rewriter.graph.inputs
    between = [_inner(node, is_input) for node in chain]
    inner = between[-1]
    for name in () if is_input else (end, *between[:-1]):
        read = graph.consumer_count(name) + (name in graph.outputs)
        stay_if(read != 1, f"another layer or graph output reads '{name}'")
    stay_if(inner in graph.outputs or inner not in graph.producer, f"'{inner}' is an end of the network itself")
    stay_if(rewriter.scales_differ(end, *between), "it is between two different scales")
    maker = [] if is_input else [graph.producer[inner]]
    shapes = [rewriter.types.shape(name) or () for name in (end, inner)]
    gone = {name: [end] for name in (inner, *between)}
    for node in chain:
        graph.remove(node)
        if is_input:
            network.merge_tensor(node.outputs[0], end)
        elif node.outputs[0] != end:
            network.merge_tensor(node.outputs[0], inner)
    if not is_input:
        network.rename_tensor(inner, end)
    rewriter.note(RULE, chain, maker, gone)
    _change_shape(rewriter, end, *shapes)


def _change_shape(rewriter: Rewriter, end: str, before: Sequence[Dim], now: Sequence[Dim]) -> None:
    """Shape of a graph input or output."""
    graph, network = rewriter.graph, rewriter.network
    if end in network.input_shapes:
        network.input_shapes[end] = [size for size in now if isinstance(size, int)]
    kind = (graph.inputs if end in graph.inputs else graph.outputs)[end].type
    sizes = [size if size is None or isinstance(size, int) else str(size) for size in now]
    kind.CopyFrom(helper.make_tensor_type_proto(kind.tensor_type.elem_type, sizes))
    what, who = ("input", "writes") if end in graph.inputs else ("output", "reads")
    network.diagnostics.info(
        RULE,
        f"Graph {what} '{end}' has the shape {words.shape(now)} instead of {words.shape(before)}, the same values in "
        "the same order.",
        tensor=end,
        hint=f"Code that {who} it must accept this shape or restore the old one.",
    )
