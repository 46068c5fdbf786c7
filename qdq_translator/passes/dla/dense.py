"""Rule D5: fully connected layers, and the two-dimensional layers around them, work on [N, C, 1, 1] instead of [N, C].

1. `Gemm` (transA 0) and `MatMul` of an [N, C] tensor with a constant weight -> Conv with a 1x1 kernel. W[k, c, 0, 0] is
   the weight from input c to output k, times alpha; the bias is C times beta. Output channels stay output channels, so
   every weight keeps its code.
2. Layers between and around them that work value by value (Relu, Add, ...), Softmax and Concat over C, and
   BatchNormalization keep their operator.
3. In front, a Flatten, Reshape or Squeeze from a four-dimensional tensor becomes a Reshape to [N, C, 1, 1], or goes where
   H and W are 1 already (the tensor before it takes its scale, if it had none of the model's); anything else gets a
   Reshape behind it. Behind, a Reshape makes the [N, C] tensor that a graph output or another layer needs; that one does
   not run on the DLA (limit H1).

Tensors inside keep their names and scales and are four-dimensional now. The tensor in front of a last Reshape is new
(`NAME_4d`) and has the scale of the Reshape's output, no other (rule S2 where that is a graph output).
Not: where the DLA gains nothing (more such Reshapes come than layers for the GPU go); weights that are not constant;
a bias that is not one value a channel; transA 1; C unknown; C above 8192; tensors of other ranks.
"""

from __future__ import annotations

import math
from typing import Iterable, Optional

import numpy as np

from qdq_translator.graph import Node
from qdq_translator.operators import DENSE, ELEMENTWISE, Unions, axis, coefficients, transposed
from qdq_translator.passes.dla.rewriter import MOST_CHANNELS, Rewriter

RULE = "D5"
UNARY = (
    *("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Neg", "Abs", "Identity"),
    *("Dropout", "Softplus", "Erf", "Exp", "Sqrt"),
)
_NARY = (*ELEMENTWISE, "Mean")
_FLATTEN = ("Flatten", "Reshape", "Squeeze")


def apply(rewriter: Rewriter) -> None:
    for region in _regions(rewriter):
        if any(node.is_op(*DENSE) for node in region) and _wanted(rewriter, region):
            _lift(rewriter, region)


# ---------------------------------------------------------------- matching


def _flat(rewriter: Rewriter, tensor: str) -> Optional[int]:
    """C of an [N, C] float activation; None for anything else."""
    shape = rewriter.types.shape(tensor)
    if shape is None or len(shape) != 2 or rewriter.graph.is_constant(tensor) or rewriter.dtype(tensor) is None:
        return None
    return shape[1] if isinstance(shape[1], int) and 0 < shape[1] <= MOST_CHANNELS else None


def _liftable(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    if not node.is_standard or not node.inputs or not node.outputs or _flat(rewriter, node.outputs[0]) is None:
        return False
    if any(name and (graph.consumer_count(name) or name in graph.outputs) for name in node.outputs[1:]):
        return False
    if node.is_op(*DENSE):
        if _flat(rewriter, node.inputs[0]) is None:
            return False
        why = dense_reason(rewriter, node)
        if why:
            rewriter.leave(node, why)
        return not why
    if node.is_op(*UNARY):
        return _flat(rewriter, node.inputs[0]) is not None and all(
            n in graph.initializers and math.prod(graph.initializers[n].dims) == 1 for n in node.inputs[1:] if n
        )
    if node.is_op("Softmax"):
        last = axis(node, graph.opset()) in (1, -1)
        return last and _flat(rewriter, node.inputs[0]) is not None
    if node.is_op("BatchNormalization"):
        return _flat(rewriter, node.inputs[0]) is not None
    if node.is_op("Concat"):
        return axis(node, graph.opset()) in (1, -1) and all(_flat(rewriter, n) is not None for n in node.inputs)
    if node.is_op(*_NARY):
        width = _flat(rewriter, node.outputs[0])
        activations = [n for n in node.inputs if n not in graph.initializers]
        return bool(activations) and all(
            _per_channel(graph.initializers[n].dims, width) if n in graph.initializers else _flat(rewriter, n) == width
            for n in node.inputs
        )
    return False


def _per_channel(dims: Iterable[int], width: Optional[int]) -> bool:
    sizes = tuple(dims)
    return math.prod(sizes) == 1 or sizes in ((width,), (1, width))


def dense_reason(rewriter: Rewriter, node: Node) -> str:
    graph = rewriter.graph
    weight = graph.initializers.get(node.input(1))
    if weight is None or len(weight.dims) != 2:
        return "its weight is not a constant matrix"
    if node.is_op("Gemm"):
        if transposed(node, 0):
            return "its input is transposed"
        width = weight.dims[0 if transposed(node, 1) else 1]
        if node.input(2):
            bias = graph.initializers.get(node.input(2))
            if bias is None or not _per_channel(bias.dims, width):
                return "its bias is not one constant a channel"
    return ""


def _regions(rewriter: Rewriter) -> list[list[Node]]:
    """Liftable nodes that two-dimensional tensors connect, in graph order."""
    nodes = [node for node in rewriter.graph.nodes if _liftable(rewriter, node) and rewriter.allows(node)]
    unions: Unions[int] = Unions()
    owner: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in (*node.inputs, node.outputs[0]):
            if name in rewriter.graph.initializers or not name:
                continue
            if name in owner:
                unions.join(index, owner[name])
            else:
                owner[name] = index
    regions: dict[int, list[Node]] = {}
    for index, node in enumerate(nodes):
        regions.setdefault(unions.root(index), []).append(node)
    return list(regions.values())


def _wanted(rewriter: Rewriter, region: list[Node]) -> bool:
    """True where the DLA gains layers: those of the region that the table sends to the GPU, and what flattens in front of
    it; and no more Reshapes from and to two dimensions come instead."""
    graph, inside = rewriter.graph, {id(node) for node in region}
    made = {node.outputs[0] for node in region}
    cured = sum(bool(rewriter.rejected(node)) for node in region)
    added = 0
    for name in dict.fromkeys(n for node in region for n in node.inputs if n and n not in graph.initializers):
        if name not in made:
            flattened = _flattening(rewriter, name, inside)
            cured += flattened is not None and bool(rewriter.rejected(flattened))
            added += flattened is None
    for name in made:
        added += name in graph.outputs or any(id(reader) not in inside for reader in graph.consumers(name))
    return 0 < cured >= added


def _flattening(rewriter: Rewriter, name: str, inside: set[int]) -> Optional[Node]:
    """The node that makes `name` for the region alone, from four dimensions and with the same batch size; else None."""
    graph = rewriter.graph
    node = graph.producer.get(name)
    if node is None or not node.is_op(*_FLATTEN) or rewriter.image(node.inputs[0]) is None or name in graph.outputs:
        return None
    before, after = rewriter.types.shape(node.inputs[0]), rewriter.types.shape(name)
    same_batch = before and after and before[0] == after[0] and before[0] is not None
    return node if same_batch and all(id(reader) in inside for reader in graph.consumers(name)) else None


# ---------------------------------------------------------------- lifting


def _lift(rewriter: Rewriter, region: list[Node]) -> None:
    graph = rewriter.graph
    inside = {id(node) for node in region}
    dense = [node for node in region if node.is_op(*DENSE)]
    old = [Node(node.op_type, node.inputs, node.outputs, node.name) for node in dense]
    after, new, gone = [], [], {}  # type: list[Node], list[str], dict[str, list[str]]
    lifted: dict[str, str] = {}
    for node in region:
        for name in dict.fromkeys(node.inputs):
            producer = graph.producer.get(name)
            if name in lifted or not name or name in graph.initializers or (producer and id(producer) in inside):
                continue
            lifted[name] = _entry(rewriter, name, inside, old, after, new, gone)
    for node in region:
        convert(rewriter, node, [lifted.get(n, n) for n in node.inputs])
        output = node.outputs[0]
        graph.value_info.pop(output, None)
        readers = graph.consumers(output)
        if output in graph.outputs or any(id(reader) not in inside for reader in readers):
            lifted[output] = _exit(rewriter, node, output, [r for r in readers if id(r) in inside], after, new)
    rewriter.note(RULE, old, [*dense, *after], gone, new)


def _entry(
    rewriter: Rewriter,
    name: str,
    inside: set[int],
    old: list[Node],
    after: list[Node],
    new: list[str],
    gone: dict[str, list[str]],
) -> str:
    """The [N, C, 1, 1] form of a tensor that comes into the region; its name."""
    graph, scales = rewriter.graph, rewriter.scales
    width = _flat(rewriter, name) or 0
    producer = _flattening(rewriter, name, inside)
    if producer is not None:
        source = producer.inputs[0]
        image = rewriter.image(source)
        own, before = scales.value(name), scales.value(source)
        compatible = own is None or own == before or (before is None and source not in graph.outputs)
        if image is not None and image[2:] == (1, 1) and compatible:
            graph.replace_uses(name, source)
            graph.remove(producer)
            reader = graph.consumers(source)[0]
            rewriter.inherit(RULE, source, name, reader, f"scale of '{name}', which was the same values")
            scales.drop(name)
            old.append(producer)
            gone[name] = [source]
            return source
        anchor = producer.prev
        graph.remove(producer)
        node = rewriter.reshape(source, name, [0, width, 1, 1], producer.name)
        graph.insert_after(node, anchor)
        graph.value_info.pop(name, None)
        old.append(producer)
        after.append(node)
        return name
    lifted = rewriter.tensor(f"{name}_4d")
    node = rewriter.reshape(name, lifted, [0, width, 1, 1], rewriter.node(f"{lifted}_reshape"))
    graph.insert_after(node, graph.producer.get(name))
    after.append(node)
    new.append(lifted)
    return lifted


def _exit(rewriter: Rewriter, node: Node, output: str, readers: list[Node], after: list[Node], new: list[str]) -> str:
    """Gives `node` a four-dimensional output of a new name, and a Reshape that makes `output`; the new name."""
    graph = rewriter.graph
    lifted = rewriter.tensor(f"{output}_4d")
    width = _flat(rewriter, output) or 0
    readers_outside = [r for r in graph.consumers(output) if r not in readers]
    graph.rename_output(node, output, lifted)
    shape = rewriter.reshape(lifted, output, [0, width], rewriter.node(f"{node.name}_2d"))
    graph.insert_after(shape, node)
    for reader in readers_outside:
        graph.replace_use(reader, lifted, output)
    note = "the same values as its Reshape's output"
    if output in graph.outputs:
        rewriter.inherit(RULE, lifted, output, node, note)
        rewriter.network.withheld.add(lifted)
    else:
        rewriter.derive(RULE, lifted, output, node, note=note)
    after.append(shape)
    new.append(lifted)
    return lifted


def convert(rewriter: Rewriter, node: Node, inputs: list[str]) -> None:
    """The node on four-dimensional inputs, in place."""
    graph = rewriter.graph
    if node.is_op(*DENSE):
        (alpha, beta), turned = coefficients(node), transposed(node, 1)
        weight = rewriter.weight(
            node, 1, "", lambda w: (w if turned else w.T)[:, :, None, None], alpha if node.is_op("Gemm") else 1.0
        )
        width = graph.initializers[weight].dims[0]
        converted = [inputs[0], weight]
        if node.is_op("Gemm") and node.input(2):
            converted.append(
                rewriter.weight(node, 2, "", lambda c: np.broadcast_to(c.reshape(-1), (width,)).copy(), beta)
            )
        graph.set_inputs(node, converted)
        node.op_type = "Conv"
        node.attributes = {}
        node.set("kernel_shape", [1, 1])
        return
    if node.is_op(*_NARY):
        for index, name in enumerate(inputs):
            if name in graph.initializers and math.prod(graph.initializers[name].dims) > 1:
                values = graph.array(name)
                assert values is not None
                inputs[index] = rewriter.constant(f"{name}_4d", values.reshape(1, -1, 1, 1))
    if node.is_op("Softmax", "Concat"):
        node.set("axis", 1)
    graph.set_inputs(node, inputs)
