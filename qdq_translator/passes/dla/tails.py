"""Rule D16: with `--dla_output 4d`, a graph output ends at its four-dimensional tensor.

1. `[N, C, H, W] -> Reshape, Flatten, Squeeze, Unsqueeze (one or several) -> graph output`: they go. The output keeps its
   name and has four dimensions now; its values and their order are the same, and message `I-D16` contains both shapes.

One such Reshape is what rule D5 leaves behind a classifier. It does not run on the DLA (limit H1), so that the network is no standalone
loadable. The tensor that takes the output's name keeps its scale, or gets the output's own.
Not: without the option; where another layer reads the output; where the tensor is another graph output, or a graph input;
between two different scales of the model's own; in front of an output of four dimensions; behind a tensor of other than
four.
"""

from __future__ import annotations

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import VIEWS
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D16"


def apply(rewriter: Rewriter) -> None:
    if not rewriter.settings.image_outputs:
        return
    for output in list(rewriter.graph.outputs):
        chain = _views(rewriter, output)
        if chain and all(rewriter.allows(node) for node in chain):
            _end_at(rewriter, chain, output)


def _views(rewriter: Rewriter, output: str) -> list[Node]:
    """The views before an output, the last one first, back to a four-dimensional tensor; [] if they have to stay."""
    graph = rewriter.graph
    chain: list[Node] = []
    name = output
    while rewriter.channels(name) is None or not chain:
        node = graph.producer.get(name)
        if node is None or not node.is_op(*VIEWS) or not rewriter.is_float(name):
            break
        chain.append(node)
        if graph.consumer_count(name) + (name in graph.outputs) != 1:
            rewriter.leave(chain[0], f"another layer or graph output reads '{name}'")
            return []
        name = node.inputs[0]
    if not chain or rewriter.channels(name) is None or rewriter.rank(output) == 4:
        return []
    if name in graph.outputs or name not in graph.producer:
        rewriter.leave(chain[0], f"'{name}' is an end of the network itself")
        return []
    scales = {rewriter.scales.value(n) for n in (name, *(node.outputs[0] for node in chain))} - {None}
    if len(scales) > 1:
        rewriter.leave(chain[0], "it is between two different scales")
        return []
    return chain


def _end_at(rewriter: Rewriter, chain: list[Node], output: str) -> None:
    graph, network = rewriter.graph, rewriter.network
    source = chain[-1].inputs[0]
    maker = graph.producer[source]
    shapes = [rewriter.types.shape(name) or () for name in (output, source)]
    for node in chain:
        graph.remove(node)
        if node.outputs[0] != output:
            network.merge_tensor(node.outputs[0], source)
    network.rename_tensor(source, output)
    dims = graph.outputs[output].type.tensor_type.shape
    dims.ClearField("dim")
    for size in shapes[1]:
        dim = dims.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = str(size)
    gone = {name: [output] for name in (source, *(node.outputs[0] for node in chain)) if name != output}
    rewriter.note(RULE, chain, [maker], gone)
    before, now = ("x".join(str(size) if size is not None else "?" for size in shape) for shape in shapes)
    network.diagnostics.info(
        RULE,
        f"Graph output '{output}' has the shape {now} instead of {before}, the same values in the same order.",
        tensor=output,
        hint="Code that reads it must accept this shape or restore the old one.",
    )
