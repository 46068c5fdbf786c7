"""Formulas of the scale rules for one node: `forward` gives scales to its outputs, `backward` to its inputs.

Every function returns True if it gave a scale; `PHASES` lists them as rows. `Context.give` enforces rules S1 and S2.
Formulas with `reference` in their name are NVIDIA's and apply only with `--inference reference`: their result is a
lower bound of the range, so the values can clip. They cost a trained network with gates 3 points of Top-1
(`e2e_workflow/inference_flags`).
"""

from __future__ import annotations

import math
from typing import Callable, Optional, Sequence

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.scales.inference.context import LOWER_BOUND, Context
from qdq_translator.translation.scales.inference.readers import by_constant, clip_limits, covers, hand_back


def hand_on(
    rule: str, back: bool = False, note: str = "", where: Callable[[Node, Context], object] = lambda node, context: True
) -> Callable[[Node, Context], bool]:
    """A formula that gives the output the scale of the first input (`back`: the input that of the output), for nodes
    for which `where` returns True."""

    def apply(node: Node, context: Context) -> bool:
        source, target = (node.outputs[0], node.inputs[0]) if back else (node.inputs[0], node.outputs[0])
        return bool(where(node, context)) and context.give(target, context.scale(source), rule, node, source, note)

    return apply


WITHIN_ONE = where(scale="one")
"""Operators whose outputs have a magnitude of at most 1."""

# ---------------- S3: Clip


def clip_forward(node: Node, context: Context) -> bool:
    """The output gets the input's range after the clamp."""
    value, limits = context.scale(node.inputs[0]), clip_limits(node, context)
    if value is None or limits is None:
        return False
    ends = (-value * INT8_MAX, value * INT8_MAX)
    clamped = max(abs(min(max(end, limits[0]), limits[1])) for end in ends)
    if clamped != ends[1]:
        value = clamped / INT8_MAX
    return context.give(node.outputs[0], value, "S3", node, node.inputs[0])


# ---------------- B1: bounds by definition


def bound_forward(node: Node, context: Context) -> bool:
    """Largest possible magnitude of the output: 1, or the larger bound of a Clip, unless it is infinite."""
    if not context.lacks(node.outputs[0]):
        return False
    limits = (0.0, 1.0) if node.is_op(*WITHIN_ONE) else clip_limits(node, context)
    amax = None if limits is None else max(map(abs, limits))
    slack = _shares(node, context) if node.is_op("Softmax") else 0.0
    return amax is not None and context.give(
        node.outputs[0], amax / INT8_MAX, "B1", node, "", "the operator's own bound", slack
    )


def _shares(softmax: Node, context: Context) -> float:
    """Slack in bits: the largest of N shares is between 1 / N and 1, probably near 1 / sqrt(N). From 129 values on, the
    mean share is less than one step of 1/127."""
    dims, axis = context.types.shape(softmax.inputs[0]), int(softmax.get("axis", -1))
    count = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
    return math.log2(count) / 2 if isinstance(count, int) and count > 1 else 0.0


# ---------------- S5: Sigmoid


def sigmoid_forward(node: Node, context: Context) -> bool:
    """1/127 (amax 1: its bound, B1) if a Mul reads it."""
    gates = any(reader.is_op("Mul") for reader in context.graph.consumers(node.outputs[0]))
    return gates and context.give(node.outputs[0], 1 / INT8_MAX, "S5", node, "", "a sigmoid's range is [0, 1]")


def sigmoid_reference_backward(node: Node, context: Context) -> bool:
    """`amax_in = log(amax_out / (1 - amax_out))`, the inverse sigmoid, for `0.5 < amax_out < 1`."""
    value = context.scale(node.outputs[0])
    if value is None or not context.lacks(node.inputs[0]):
        return False
    amax = float(np.float32(value * INT8_MAX))  # rounded to float32, so that a scale of 1/127 gives exactly 1
    if not 0.5 < amax < 1:
        return False
    amax_in = math.log(amax / (1 - amax))
    note = f"inputs below {-amax_in:.4g} saturate, which lifts small outputs to {1 - amax:.4g}"
    return context.give(node.inputs[0], amax_in / INT8_MAX, "S5", node, node.outputs[0], note)


# ---------------- S6: means


def is_spatial_mean(node: Node, context: Context) -> bool:
    """Whether the node averages over exactly the spatial axes of a 4-D or 5-D tensor and is not part of a decomposed
    LayerNormalization."""
    if not node.is_op("ReduceMean"):
        return True
    rank = context.types.rank(node.inputs[0])
    axes = operators.non_negative(operators.axes(node, context.graph.array), rank)
    if rank not in (4, 5) or axes is None or sorted(axes) != list(range(2, rank)):
        return False
    return not is_mean_of_normalization(node, context.graph)


def is_mean_of_normalization(node: Node, graph: Graph) -> bool:
    """True for the means of a decomposed normalization: the mean of x, which is subtracted from x, and the mean of a
    square."""
    source = node.inputs[0]
    if any(reader.is_op("Sub") and source in reader.inputs for reader in graph.consumers(node.outputs[0])):
        return True
    producer = graph.producer.get(source)
    if producer is None:
        return False
    squares = producer.is_op("Mul") and len(set(producer.inputs)) == 1
    return squares or (producer.is_op("Pow") and graph.scalar(producer.input(1)) == 2)


def inside_normalizations(graph: Graph) -> set[str]:
    """Means, differences, squares, variances and their roots: all tensors between the input of a decomposed
    normalization and the product or quotient that is normalized. They must not be INT8."""
    inside: set[str] = set()
    for node in graph.nodes:
        if not node.is_op("ReduceMean") or not is_mean_of_normalization(node, graph):
            continue
        inside.add(node.outputs[0])
        producer = graph.producer.get(node.inputs[0])
        if producer is not None and producer.is_op("Pow", "Mul"):  # a mean of squares: their sources too
            inside.update((node.inputs[0], producer.inputs[0]))
        pending = [node.outputs[0]]
        while pending:
            for reader in graph.consumers(pending.pop()):
                shifted = reader.is_op("Add") and any(graph.is_constant(name) for name in reader.inputs)
                if shifted or reader.is_op("Sqrt", "Reciprocal"):
                    inside.add(reader.outputs[0])
                    pending.append(reader.outputs[0])
                elif reader.is_op("Sub"):
                    inside.add(reader.outputs[0])
    return inside


def around_normalizations(graph: Graph) -> dict[str, str]:
    """Rule P1: layer without weights that reads or makes the input of a LayerNormalization (one node, its parts, or the
    parts of rule D29), with only views and Transposes in between -> that input. Left out if a layer with weights reads
    the input too, and thus rounds it."""
    inside = inside_normalizations(graph)
    found: dict[str, str] = {}
    for node in graph.nodes:
        is_mean = node.is_op("ReduceMean") and node.inputs[0] not in inside and is_mean_of_normalization(node, graph)
        whole = is_mean or node.is_op("LayerNormalization")
        read = node.inputs[0] if whole else _read_by_mean_of_channels(node, graph)
        layers = _readers_and_maker(read, graph) if read else {}
        if not any(layer.is_op(*operators.WEIGHTED) and layer is not node for layer in layers.values()):
            found.update(dict.fromkeys(layers, read))
    return found


def _readers_and_maker(tensor: str, graph: Graph) -> dict[str, Node]:
    """Name -> layer that reads or makes the tensor or another view of it, except makers with weights and clamps."""
    layers: dict[str, Node] = {}
    pending = [tensor]
    while pending:
        name = pending.pop()
        makers = [graph.producer[name]] if name in graph.producer else []
        makers = [maker for maker in makers if not maker.is_op(*operators.WEIGHTED, *operators.CLAMPS)]
        for layer in [*graph.consumers(name), *makers]:
            if layer.name not in layers and layer.is_op(*operators.VIEWS, "Transpose"):
                pending += [layer.inputs[0], layer.outputs[0]]
            layers[layer.name] = layer
    return layers


def _read_by_mean_of_channels(node: Node, graph: Graph) -> str:
    """The input of a LayerNormalization over channels, if the node is the Conv of its mean that rule D29 made (in
    FP16), else ''. D29 may scale all channels by one factor before the Conv."""
    stored = graph.initializers.get(node.input(1))
    if not node.is_op("Conv") or (stored is not None and list(stored.dims[:1]) != [1]):  # avoids reading larger weights
        return ""
    values = graph.array(node.input(1))
    if values is None or len(values) != 1 or np.any(values != values.dtype.type(1 / values.size)):
        return ""
    copied = graph.only_consumer(node.outputs[0])
    centred = None if copied is None else graph.only_consumer(copied.outputs[0])
    if centred is None or not centred.is_op("Sub") or centred.inputs[0] != node.inputs[0]:
        return ""
    scaled = graph.producer.get(node.inputs[0])
    if scaled is None or not scaled.is_op("BatchNormalization"):
        return node.inputs[0]
    factors = graph.array(scaled.input(1))
    return scaled.inputs[0] if factors is not None and np.all(factors == factors[0]) else node.inputs[0]


# ---------------- S7: Concat


def concat_forward(node: Node, context: Context) -> bool:
    """Largest input scale, once all inputs have one (the DLA needs one range for all: fact 5.9, `--unify_scales`)."""
    ranges = [context.amax(name) for name in node.inputs]
    largest = max((amax for amax in ranges if amax is not None), default=0.0)
    source = "" if None in ranges else node.inputs[ranges.index(largest)]
    return bool(source) and context.give(node.outputs[0], largest / INT8_MAX, "S7", node, source)


def concat_partly_forward(node: Node, context: Context) -> bool:
    """The largest *known* scale, a lower bound if some inputs have none, and therefore the last rule."""
    source = max(node.inputs, key=lambda name: context.scale(name) or 0.0)
    note = LOWER_BOUND if any(context.scale(name) is None for name in node.inputs) else ""
    return context.give(node.outputs[0], context.scale(source), "S7", node, source, note)


def concat_backward(node: Node, context: Context) -> bool:
    changed = False
    for name in node.inputs if node.outputs[0] in context.scales else ():
        changed |= hand_back("S7", node, name, context)
    return changed


# ---------------- S8: Mul and Div


def constant_forward(node: Node, context: Context) -> bool:
    source, factor = (by_constant(node, context) if context.lacks(node.outputs[0]) else None) or ("", 0.0)
    value = context.scale(source)
    return value is not None and context.give(node.outputs[0], value * factor, "S8", node, source, "exact")


def constant_backward(node: Node, context: Context) -> bool:
    found = by_constant(node, context) if node.outputs[0] in context.scales else None
    return found is not None and hand_back("S8", node, found[0], context, "exact")


def product_forward(node: Node, context: Context) -> bool:
    """The output gets the product of two ranges, an upper bound."""
    a, b = (context.amax(name) for name in node.inputs) if context.lacks(node.outputs[0]) else (None, None)
    value = None if a is None or b is None else a * b / INT8_MAX
    slack = sum(context.slack.get(name, 0.0) for name in node.inputs)
    return context.give(node.outputs[0], value, "S8", node, ", ".join(node.inputs), slack=slack)


def product_reference_backward(node: Node, context: Context) -> bool:
    """The missing input gets the output's range divided by that of the other input."""
    out = context.amax(node.outputs[0])
    changed = False
    for name, other in (node.inputs, node.inputs[::-1]):
        known = context.amax(other)
        if out is not None and known is not None and context.lacks(name):
            source = f"{node.outputs[0]}, {other}"
            changed |= context.give(name, out / known / INT8_MAX, "S8", node, source, LOWER_BOUND)
    return changed


# ---------------- S11: Add, Sub, Sum


def sum_forward(node: Node, context: Context) -> bool:
    """`amax_out` is the sum of the inputs' ranges, an upper bound; a constant counts with its own largest magnitude."""
    return context.lacks(node.outputs[0]) and _give_sum(node.outputs[0], node.inputs, node, context)


def sum_backward(node: Node, context: Context) -> bool:
    """A missing input gets `amax_out` plus the ranges of the others, an upper bound. Not for other readers where the
    output's range is only that of a Relu behind it (rule S3)."""
    missing = [name for name in node.inputs if context.amax(name) is None]
    if len(missing) != 1 or node.outputs[0] not in context.scales:
        return False
    if context.graph.only_consumer(missing[0]) is not node and not covers(node.outputs[0], context):
        return False
    others = [name for name in node.inputs if name != missing[0]]
    return context.lacks(missing[0]) and _give_sum(missing[0], [node.outputs[0], *others], node, context)


def _give_sum(tensor: str, known: Sequence[str], node: Node, context: Context) -> bool:
    """Give `tensor` the sum of the ranges of `known` if all are known. No scale if the whole range of an activation
    would be less than one step, as next to a mask of -10000: all its quantized values would be 0."""
    ranges = {name: context.amax(name) or 0.0 for name in known}
    scale = sum(ranges[name] for name in known) / INT8_MAX
    if not all(amax >= scale for name, amax in ranges.items() if not context.graph.is_constant(name)):
        return False
    # ranges of independent values add up as their squares do
    parts = [known.count(name) * amax * 2 ** -context.slack.get(name, 0.0) for name, amax in ranges.items()]
    likely = math.hypot(*parts)
    slack = math.log2(scale * INT8_MAX / likely) if likely else 0.0
    return 0.0 not in ranges.values() and context.give(tensor, scale, "S11", node, ", ".join(known), slack=slack)


# ---------------- S12: LeakyRelu and PRelu


def leaky_backward(node: Node, context: Context) -> bool:
    """An input without other readers gets the range of the output; their positive values are equal. On the DLA the
    tensor is inside a fused layer, and with a scale that layer runs in INT8."""
    value, slope = context.scale(node.outputs[0]), _slope(node, context)
    if value is None or slope is None or context.graph.only_consumer(node.inputs[0]) is not node:
        return False
    amax = value * INT8_MAX
    note = f"exact above 0; inputs below {-amax:.4g} saturate and come out as {-amax * slope:.3g} at most"
    return context.give(node.inputs[0], value, "S12", node, node.outputs[0], note)


def has_slope(node: Node, context: Context) -> bool:
    """Whether no slope makes the output larger than the input."""
    return _slope(node, context) is not None


def _slope(node: Node, context: Context) -> Optional[float]:
    """The largest magnitude of the slopes; None if it is above 1 or they are computed."""
    if node.is_op("LeakyRelu"):
        largest = abs(float(node.get("alpha", 0.01)))
    else:
        values = context.graph.array(node.input(1))
        largest = float(np.abs(values.astype(np.float64)).max()) if values is not None and values.size else math.inf
    return largest if largest <= 1 else None


# ---------------- S13: saturating functions

_INVERSE: dict[str, Callable[[float], float]] = {"Tanh": math.atanh, "Sigmoid": lambda y: math.log(y / (1 - y))}
_SLOPES = {"Tanh": 1.0, "Sigmoid": 0.25}
MOST_LOST_DB = 12.0
"""Loss on the slope, against the output's own rounding, beyond which the input stays in floating point."""


def saturating_backward(node: Node, context: Context) -> bool:
    """The output of a layer with weights that nothing else reads gets the range beyond which the quantized output is
    the same: `f^-1(min(1, amax_out) - step / 2)`. Withheld where the steps left on the slope lose too much."""
    tensor, value = node.inputs[0], context.scale(node.outputs[0])
    if value is None or not context.lacks(tensor) or context.graph.only_consumer(tensor) is not node:
        return False
    if not _is_product(tensor, context.graph):
        return False
    top = min(1.0, value * INT8_MAX) - value / 2
    if node.is_op("HardSigmoid"):
        alpha, beta = operators.coefficients(node)
        amax, slope = (max(abs(beta), abs(1 - beta)) / abs(alpha) if alpha else 0.0), abs(alpha)
    else:
        floor = 0.5 if node.is_op("Sigmoid") else 0.0
        amax, slope = (_INVERSE[node.op_type](top) if floor < top < 1 else 0.0), _SLOPES[node.op_type]
        amax = max(amax, math.log(2 / value - 1) if floor and 0 < value < 1 else 0.0)  # below, it rounds to 0
    if not amax:
        return False
    lost = 10 * math.log10(1 + (slope * amax / INT8_MAX / value) ** 2)
    if lost > MOST_LOST_DB:
        context.withheld[tensor] = f"the INT8 steps left on the slope of {node.op_type} would lose {lost:.1f} dB (S13)"
        return False
    note = f"beyond it {node.op_type} saturates; at most {lost:.1f} dB are lost on the slope"
    return context.give(tensor, amax / INT8_MAX, "S13", node, node.outputs[0], note)


def _is_product(tensor: str, graph: Graph) -> bool:
    """Whether a layer with weights makes the tensor, with its bias as an Add or not."""
    maker = graph.producer.get(tensor)
    if maker is not None and maker.is_op("Add") and any(map(graph.is_constant, maker.inputs)):
        maker = graph.producer.get(next((name for name in maker.inputs if not graph.is_constant(name)), ""))
    return maker is not None and maker.is_op(*operators.WEIGHTED)


# ---------------- S9: unary scales


def add_unary_scales(context: Context) -> list[str]:
    """Rule S9, with `--add_unary_ew_scales_for_dla`: scale 1.0 on a Conv output that only feeds a two-input Add whose
    other input has a real scale. The DLA fuses the two and never applies the scale; without it TensorRT would raise
    both to FP16 (fact 5.8). It is given last, so that no other rule uses it. Returns the tensors that got one, in graph
    order."""
    given = []
    note = "not applied where TensorRT fuses Conv and Add; otherwise values above 127 saturate"
    for node in context.graph.of("Add"):
        for name, other in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
            producer, partner = context.graph.producer.get(name), context.scales.get(other)
            real = partner is not None and partner.origin.rule != "S9"
            alone = context.graph.only_consumer(name) is node and producer is not None and producer.is_op("Conv")
            if real and alone and context.give(name, 1.0, "S9", node, other, note):
                given.append(name)
    return given
