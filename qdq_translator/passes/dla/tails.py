"""Rule D16: with `--dla_output 4d`, graph inputs and outputs have four dimensions.

1. `[N, C, H, W] -> Reshape, Flatten, Squeeze, Unsqueeze (one or several) -> graph output` -> the graph output is [N, C,
   H, W].
2. `graph input -> Reshape, Unsqueeze, ... -> [N, C, H, W]`, as rule D26 writes it -> the graph input is [N, C, H, W].

Names stay. The values and their order are the same, and message `I-D16` contains both shapes.
Such Reshapes do not run on the DLA (limit H1), so that the network is no standalone loadable. A tensor that gets
another one's name keeps its scale, or gets the scale of the other.
Not: without the option; if another layer reads the graph input or output; if the tensor is another graph output, or a
graph input; between two different scales of the model; if the graph input or output has four dimensions; if the next
tensor has another number of dimensions.
"""

from __future__ import annotations

from onnx import helper

from qdq_translator.core import words
from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import VIEWS
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D16"


def apply(rewriter: Rewriter) -> None:
    graph = rewriter.graph
    if not rewriter.settings.image_outputs:
        return
    for name in (*graph.outputs, *graph.inputs):
        chain = _views(rewriter, name)
        if chain and all(rewriter.allows(node) for node in chain):
            _end_at(rewriter, chain, name)


def _views(rewriter: Rewriter, end: str) -> list[Node]:
    """The views between a graph input or output and the next four-dimensional tensor, outermost first; [] if they have
    to stay.
    """
    graph, name, is_input = rewriter.graph, end, end in rewriter.graph.inputs
    chain: list[Node] = []
    while rewriter.channels(name) is None or not chain:
        node = graph.only_consumer(name) if is_input else graph.producer.get(name)
        if node is None or not node.is_op(*VIEWS) or not rewriter.is_float(name):
            break
        chain.append(node)
        if not is_input and graph.consumer_count(name) + (name in graph.outputs) != 1:
            rewriter.leave(chain[0], f"another layer or graph output reads '{name}'")
            return []
        name = node.outputs[0] if is_input else node.inputs[0]
    if not chain or rewriter.channels(name) is None or rewriter.rank(end) == 4:
        return []
    if name in graph.outputs or name not in graph.producer:
        rewriter.leave(chain[0], f"'{name}' is an end of the network itself")
        return []
    scales = {rewriter.scales.value(n) for n in (end, *(_inner(node, is_input) for node in chain))} - {None}
    if len(scales) > 1:
        rewriter.leave(chain[0], "it is between two different scales")
        return []
    return chain


def _inner(view: Node, is_input: bool) -> str:
    """The tensor of a view that is farther away from the end of the network."""
    return view.outputs[0] if is_input else view.inputs[0]


def _end_at(rewriter: Rewriter, chain: list[Node], end: str) -> None:
    graph, network = rewriter.graph, rewriter.network
    is_input = end in graph.inputs
    inner = _inner(chain[-1], is_input)
    maker = [] if is_input else [graph.producer[inner]]
    shapes = [rewriter.types.shape(name) or () for name in (end, inner)]
    gone = {name: [end] for name in (inner, *(_inner(node, is_input) for node in chain)) if name != end}
    for node in chain:
        graph.remove(node)
        if is_input:
            network.merge_tensor(node.outputs[0], end)
        elif node.outputs[0] != end:
            network.merge_tensor(node.outputs[0], inner)
    if not is_input:
        network.rename_tensor(inner, end)
    if end in network.input_shapes:
        network.input_shapes[end] = [size for size in shapes[1] if isinstance(size, int)]
    kind = (graph.inputs if is_input else graph.outputs)[end].type
    sizes = [size if size is None or isinstance(size, int) else str(size) for size in shapes[1]]
    kind.CopyFrom(helper.make_tensor_type_proto(kind.tensor_type.elem_type, sizes))
    rewriter.note(RULE, chain, maker, gone)
    before, now = map(words.shape, shapes)
    what, who = ("input", "writes") if is_input else ("output", "reads")
    network.diagnostics.info(
        RULE,
        f"Graph {what} '{end}' has the shape {now} instead of {before}, the same values in the same order.",
        tensor=end,
        hint=f"Code that {who} it must accept this shape or restore the old one.",
    )
