"""Rule D5: fully connected layers, and the two-dimensional layers around them, work on [N, C, 1, 1] instead of [N, C].

1. `Gemm` (transA 0) and `MatMul` of an [N, C] tensor with a constant weight -> Conv with a 1x1 kernel. W[k, c, 0, 0] is
   the weight from input c to output k, times alpha; the bias is C times beta. Output channels stay output channels, so
   every weight keeps its quantized value.
2. Layers between and around them that work value by value (Relu, Add, ...), Softmax and Concat over C, and
   BatchNormalization keep their operator.
3. In front, a Flatten, Reshape or Squeeze from a four-dimensional tensor becomes a Reshape to [N, C, 1, 1]; anything
   else gets a Reshape behind it. Behind, a Reshape makes the [N, C] tensor that a graph output or another layer needs;
   it does not run on the DLA (limit H1). A Reshape to four dimensions with the same batch (the start of a generator)
   reads the [N, C, 1, 1] tensor itself.
4. The Flatten is removed if H and W are already 1, or if only fully connected layers read it: their Conv then has a
   kernel of H x W (W[k, c, y, x] is the weight of input (c * H + y) * W + x), and it may flatten to more than 8192
   values, as in AlexNet and VGG. The tensor before it gets its scale if the model states none; if it states another
   one, the Flatten stays.

Tensors inside keep their names and scales and are four-dimensional now. The tensor in front of a last Reshape is new
(`NAME_4d`) and has the scale of the Reshape's output, no other (rule S2 if that is a graph output).
Not: where the DLA gains nothing (more such Reshapes are added than GPU layers removed); weights that are not constant;
a bias that is not one value a channel; transA 1; C unknown; C above 8192 (but for 4.); H or W above 32; tensors of
other ranks.
"""

from __future__ import annotations

import math
from typing import Container, Iterable, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import DENSE, ELEMENTWISE, VIEWS, axis, coefficients, transposed
from qdq_translator.translation.passes.dla import lifting
from qdq_translator.translation.passes.dla.rewriter import LARGEST_KERNEL, MOST_CHANNELS, Rewriter
from qdq_translator.translation.passes.editor import Stays, stay_if

RULE = "D5"
PRODUCT = "a product of two activations: the DLA multiplies by constant weights only"
_NARY = (*ELEMENTWISE, "Mean")
_FLATTEN = ("Flatten", "Reshape", "Squeeze")

Kernel = Tuple[int, int]


def apply(rewriter: Rewriter) -> None:
    for region in lifting.regions(rewriter, _liftable):
        # else no fewer layers are on the GPU, and more Reshapes
        if _wanted(rewriter, region):
            _lift(rewriter, region)


# ---------------- matching


def _flat(rewriter: Rewriter, tensor: str) -> Optional[int]:
    """C of an [N, C] float activation; None for anything else."""
    shape = rewriter.activation(tensor)
    width = shape[1] if len(shape) == 2 else None
    return width if isinstance(width, int) and 0 < width <= MOST_CHANNELS else None


def _liftable(rewriter: Rewriter, node: Node) -> bool:
    width = _flat(rewriter, node.outputs[0])
    if width is None or not lifting.one_output(rewriter, node):
        return False
    if node.is_op(*DENSE):
        source = node.inputs[0]
        known = _flat(rewriter, source) is not None or _kernel(rewriter, source) is not None
        return known and rewriter.attempt(check, node)
    if node.is_op("Softmax", "Concat", "BatchNormalization"):
        last = node.is_op("BatchNormalization") or axis(node, rewriter.graph.opset()) in (1, -1)
        reads = node.inputs if node.is_op("Concat") else node.inputs[:1]
        return last and all(_flat(rewriter, name) is not None for name in reads)
    return lifting.value_by_value(
        rewriter, node, lambda n: _flat(rewriter, n) == width, lambda dims: _per_channel(dims, width), nary=_NARY
    )


def _per_channel(dims: Iterable[int], width: Optional[int]) -> bool:
    sizes = tuple(dims)
    return math.prod(sizes) == 1 or sizes in ((width,), (1, width))


def check(rewriter: Rewriter, node: Node) -> None:
    """Raises Stays if a fully connected layer cannot become a Conv."""
    weight, bias = (rewriter.graph.initializers.get(node.input(index)) for index in (1, 2))
    if weight is None:
        raise Stays(PRODUCT)
    stay_if(len(weight.dims) != 2, "its weight is not a constant matrix")
    stay_if(transposed(node, 0), "its input is transposed")
    each = bias is not None and _per_channel(bias.dims, weight.dims[0 if transposed(node, 1) else 1])
    stay_if(node.input(2) and not each, "its bias is not one constant a channel")


def _wanted(rewriter: Rewriter, region: Sequence[Node]) -> bool:
    """True if the DLA gains layers (those of the region that the table assigns to the GPU, and the flattening in front
    of it) and no more Reshapes from and to two dimensions are added."""
    views = _unflattening(rewriter, region)
    cured = sum(bool(rewriter.rejected(node)) for node in (*region, *views))
    inside = {id(node) for node in (*region, *views)}
    added = sum(not rewriter.is_closed(node.outputs[:1], inside) for node in region)
    for name in lifting.entering(rewriter, region):
        flattened = _flattening_for(rewriter, name, inside)
        cured += flattened is not None and bool(rewriter.rejected(flattened))
        added += flattened is None
    return 0 < cured >= added


def _flattening(rewriter: Rewriter, name: str) -> Optional[Node]:
    """The node that makes `name`, not a graph output, from four dimensions with the same batch size, or None."""
    node = rewriter.graph.producer.get(name)
    image = rewriter.image(node.inputs[0]) if node is not None and node.is_op(*_FLATTEN) else None
    if image is None or image[0] is None or name in rewriter.graph.outputs:
        return None
    return node if image[:1] == (rewriter.types.shape(name) or ())[:1] else None


def _unflattening(rewriter: Rewriter, region: Sequence[Node]) -> list[Node]:
    """Views that make four dimensions of what the region makes, with the same batch size."""
    found = []
    for view in (reader for node in region for reader in rewriter.graph.consumers(node.outputs[0])):
        image, shape = rewriter.image(view.outputs[0]), rewriter.types.shape(view.inputs[0]) or ()
        if view.is_op(*VIEWS) and image is not None and image[:1] == shape[:1] and rewriter.allows(view):
            found.append(view)
    return found


def _flattening_for(rewriter: Rewriter, name: str, inside: Container[int]) -> Optional[Node]:
    """The flattening in front of a dense layer, if only the region reads it. inside: ids of the region's nodes."""
    return _flattening(rewriter, name) if rewriter.is_closed([name], inside) else None


def _kernel(rewriter: Rewriter, name: str) -> Optional[Kernel]:
    """(H, W) of the tensor flattened into `name`, if the next Convs can read it as is; None if it needs a Reshape."""
    graph, scales = rewriter.graph, rewriter.scales
    node = _flattening(rewriter, name)
    image = rewriter.image(node.inputs[0]) if node else None
    if node is None or image is None or image[1] > MOST_CHANNELS:
        return None
    source, kernel = node.inputs[0], image[2:]
    own, before = scales.value(name), scales.value(source)
    fixed = before is not None or source in graph.outputs  # it cannot get the scale of the removed tensor
    if own not in (None, before) and fixed:
        return None

    def absorbs(reader: Node) -> bool:
        dense = reader.is_op(*DENSE) and reader.inputs[0] == name
        return dense and rewriter.attempt(check, reader) and rewriter.allows(reader)

    absorbed = max(kernel) <= LARGEST_KERNEL and all(map(absorbs, graph.consumers(name)))
    return kernel if absorbed or kernel == (1, 1) else None


# ---------------- lifting


def _lift(rewriter: Rewriter, nodes: list[Node]) -> None:
    views = _unflattening(rewriter, nodes)
    region = lifting.Region(rewriter, RULE, [*nodes, *views], "_4d")
    region.begin(*(node for node in nodes if node.is_op(*DENSE)), *views)
    kernels: dict[str, Kernel] = {}

    def back(lifted: str, output: str) -> list[Node]:
        name = rewriter.node(f"{rewriter.graph.producer[output].name}_2d")
        return [rewriter.reshape(lifted, output, [0, _flat(rewriter, output) or 0], name)]

    for name in region.entries:
        flattening = _flattening_for(rewriter, name, region.inside)
        kernel = None if flattening is None else _kernel(rewriter, name)
        if flattening is None:
            region.enter(name, lambda name, lifted: region.reshape(name, lifted, [0, _flat(rewriter, name) or 0, 1, 1]))
        elif kernel is None:
            _reshape_instead(region, flattening)
        else:
            region.names[name] = _absorb(region, flattening)
            kernels[region.names[name]] = kernel
    for node in nodes:
        inputs = region.inputs(node)
        convert(rewriter, node, inputs, kernels.get(inputs[0], (1, 1)))
        region.exit(node, node.outputs[0], back, lifting.RESHAPED)
    for view in views:
        _, *sizes = rewriter.sized(view.outputs[0])
        rewriter.become(view, "Reshape")
        name = rewriter.constant(f"{view.name}.sizes", np.array([0, *sizes], np.int64))
        rewriter.graph.set_inputs(view, [view.inputs[0], name])
    region.note()


def _absorb(region: lifting.Region, flattening: Node) -> str:
    """Remove the node; return its input."""
    rewriter, graph = region.rewriter, region.rewriter.graph
    source, name = flattening.inputs[0], flattening.outputs[0]
    graph.replace_uses(name, source)
    graph.remove(flattening)
    rewriter.inherit(RULE, source, name, graph.consumers(source)[0], f"scale of '{name}', which was the same values")
    rewriter.scales.drop(name)
    region.before.append(flattening)
    region.gone[name] = [source]
    return source


def _reshape_instead(region: lifting.Region, flattening: Node) -> None:
    """Replace the node by a Reshape to [N, C, 1, 1]."""
    rewriter, graph = region.rewriter, region.rewriter.graph
    source, name, anchor = flattening.inputs[0], flattening.outputs[0], flattening.prev
    graph.remove(flattening)
    region.insert([rewriter.reshape(source, name, [0, _flat(rewriter, name) or 0, 1, 1], flattening.name)], anchor)
    graph.value_info.pop(name, None)
    region.before.append(flattening)


def convert(rewriter: Rewriter, node: Node, inputs: list[str], kernel: Kernel = (1, 1)) -> None:
    """Make the node work on four-dimensional inputs, in place; `kernel` is (H, W) of the first."""
    graph = rewriter.graph
    if node.is_op(*DENSE):
        (alpha, beta), turned = coefficients(node), transposed(node, 1)

        def rows(weight: np.ndarray) -> np.ndarray:
            outputs = weight if turned else weight.T
            return outputs.reshape(len(outputs), -1, *kernel)

        inputs = [inputs[0], rewriter.weight(node, 1, "", rows, alpha)]
        if node.input(2):
            width = graph.initializers[inputs[1]].dims[:1]
            each = rewriter.weight(node, 2, "", lambda c: np.broadcast_to(c.reshape(-1), width).copy(), beta)
            inputs.append(each)
        rewriter.become(node, "Conv", kernel_shape=list(kernel))
    elif node.is_op("Softmax", "Concat"):
        node.set("axis", 1)
    elif node.is_op(*_NARY):
        lifting.lift_constants(rewriter, inputs, "_4d", lambda values: values.reshape(1, -1, 1, 1))
    graph.set_inputs(node, inputs)
