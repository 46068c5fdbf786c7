"""Rule D2: what hands its input on unchanged goes, because TensorRT's identity layer does not run on the DLA.

1. `Identity`, `Dropout` at inference, and `Sum`, `Mean`, `Max`, `Min`, `Concat` of one input: readers read the input.
2. The same in front of a graph output: the node before it makes the graph output itself.

The input takes the output's scale if it had none (rule S3 would give it the same).
Not: where both have different scales of their own; a graph input or a constant that is a graph output; case 2 where
something else reads the input, which then would be a graph output (rule S2); Dropout in training mode, or with its mask
in use.
"""

from __future__ import annotations

from qdq_translator.graph import Node
from qdq_translator.operators import in_training
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D2"
_OF_ONE = ("Sum", "Mean", "Max", "Min", "Concat")


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Identity", "Dropout", *_OF_ONE):
        if node.is_op(*_OF_ONE) and len(node.inputs) != 1:
            continue
        if rewriter.types.is_float(node.inputs[0]):
            _remove(rewriter, node)


def _remove(rewriter: Rewriter, node: Node) -> None:
    graph, scales = rewriter.graph, rewriter.scales
    source, target = node.inputs[0], node.outputs[0]
    if any(name and (graph.consumer_count(name) or name in graph.outputs) for name in node.outputs[1:]):
        rewriter.leave(node, "its mask is in use")
        return
    if node.is_op("Dropout") and in_training(node, graph.array):
        rewriter.leave(node, "training mode")
        return
    own, before = scales.value(target), scales.value(source)
    if own is not None and before is not None and own != before:
        rewriter.leave(node, "its input and its output have different scales of their own")
        return
    if target not in graph.outputs:
        if own is not None and before is None and source in graph.outputs:
            rewriter.leave(node, "its input is a graph output without scale, its output has one")
            return
        graph.replace_uses(target, source)
        graph.remove(node)
        if before is None and not graph.is_constant(source):
            reader = next(iter(graph.consumers(source)), None)
            if reader is not None:
                rewriter.inherit(RULE, source, target, reader, f"scale of '{target}', which was the same tensor")
        scales.drop(target)
        rewriter.note(RULE, [node], [], {target: [source]})
        return
    producer = graph.producer.get(source)
    if producer is None or graph.only_consumer(source) is not node or (own is None and before is not None):
        rewriter.leave(node, "it makes a graph output from a tensor that others read, or that is no node's")
        return
    graph.remove(node)
    graph.value_info.pop(source, None)
    rewriter.network.rename_tensor(source, target)
    rewriter.note(RULE, [node], [], {source: [target]})
