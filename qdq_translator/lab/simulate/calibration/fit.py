"""Rule S14: the scales that rules gave, compared with the data for all readers of the tensor.

An error counts where it is read: a Relu, a Clip or a sigmoid does not see what it cuts, and a SiLU sees little of its
negative values. So each value of the tensor (`Histogram`, with its sign) is rounded to the scale and passed through
every reader's function, and the largest error of a reader relative to what it makes decides. Readers whose function is
not one of a single value (a Conv, an Add) see the tensor itself.
"""

from __future__ import annotations

import math
from typing import Callable, Optional, Sequence

import numpy as np

from qdq_translator.core.rules import MARKERS
from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.lab.simulate.calibration.methods import MSE_STEPS, MSE_STEPS_PER_OCTAVE
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.scales.inference import self_gated, unify
from qdq_translator.translation.scales.inference.context import Context

Function = Callable[[np.ndarray], np.ndarray]


def doubted(context: Context) -> list[str]:
    """Tensors in graph order whose scale a rule computed: not stated by the model, and not handed on unchanged from a
    tensor that decides. None with `--inference reference`, whose numbers are wanted."""
    if context.policy.mode != "sound":
        return []
    return [
        name
        for name in context.graph.tensors()
        if name in context.scales
        and not context.scales[name].explicit
        and context.scales[name].origin.rule not in MARKERS
        and not unify.is_handed_on(name, context)
        and context.may_have(name)
    ]


def functions(tensor: str, context: Context) -> list[Function]:
    """What the readers compute of each value; the identity for all that need more than one value."""
    found: dict[str, Function] = {}
    for node in context.graph.consumers(tensor):
        gated = _gated(tensor, node, context)
        if gated is not None:
            found["gated"] = gated
        elif node.is_op(*_FUNCTIONS) and node.inputs[0] == tensor:
            found[node.name] = _within(_FUNCTIONS[node.op_type](node, context), node, context)
        else:
            found[""] = _same
    return list(found.values()) or [_same]


def _gated(tensor: str, reader: Node, context: Context) -> Optional[Function]:
    """The function of a SiLU, HardSwish or GELU of the tensor, if the reader is a part of it."""
    ends = [reader, *(node for name in reader.outputs for node in context.graph.consumers(name))]
    for node in ends:
        parts = self_gated.parts(node, context) if node.is_op(*self_gated.OPS) else None
        if parts is not None and parts[0] == tensor:
            return _within(np.vectorize(parts[2].product, otypes=[np.float64]), node, context)
    return None


def _within(read: Function, node: Node, context: Context) -> Function:
    """The function as its output's scale, which saturates too, leaves it."""
    amax = context.amax(node.outputs[0])
    return read if amax is None else lambda values: np.clip(read(values), -amax, amax)


def _clip(node: Node, context: Context) -> Function:
    low, high = operators.clip_bounds(node, context.graph.array)
    return lambda values: np.clip(values, -math.inf if low is None else low, math.inf if high is None else high)


def _hard_sigmoid(node: Node, context: Context) -> Function:
    alpha, beta = operators.coefficients(node)
    return lambda values: np.clip(alpha * values + beta, 0, 1)


def _leaky(node: Node, context: Context) -> Function:
    slope = float(node.get("alpha", 0.01))
    return lambda values: np.where(values < 0, slope * values, values)


_FUNCTIONS: dict[str, Callable[[Node, Context], Function]] = {
    "Relu": lambda node, context: lambda values: np.maximum(values, 0),
    "Clip": _clip,
    "LeakyRelu": _leaky,
    "Sigmoid": lambda node, context: lambda values: 0.5 + 0.5 * np.tanh(values / 2),
    "Tanh": lambda node, context: np.tanh,
    "HardSigmoid": _hard_sigmoid,
    "Abs": lambda node, context: np.abs,
}


def noises(histogram: Histogram, ranges: Sequence[float], readers: Sequence[Function]) -> np.ndarray:
    """(ranges,): the error on each range over the energy of what is read, of the reader that loses most."""
    counts, values = histogram.signed()
    found = np.zeros(len(ranges))
    for read in readers:
        wanted = read(values)
        energy = float(counts @ wanted**2)
        for index, amax in enumerate(ranges if energy else ()):
            scale = amax / INT8_MAX
            codes = np.clip(np.rint(values / scale), -INT8_MAX - 1, INT8_MAX).astype(np.int64)
            made = read(np.arange(-INT8_MAX - 1, INT8_MAX + 1) * scale)[codes + INT8_MAX + 1]
            found[index] = max(found[index], float(counts @ (made - wanted) ** 2) / energy)
    return found


def best(histogram: Histogram, own: float, readers: Sequence[Function], measured: float) -> tuple[float, float]:
    """(amax, gain in dB over `own`). measured: the range that the user's method gives, which decides for readers that
    see the tensor itself; else the range with the least error of those that `methods.mse` tries."""
    tried = [own, measured]
    if not any(read is _same for read in readers):
        tried += [histogram.amax * 2.0 ** (-step / MSE_STEPS_PER_OCTAVE) for step in range(MSE_STEPS)]
    found = noises(histogram, tried, readers)
    at = int(np.argmin(found))
    return tried[at], 10 * math.log10(max(found[0], 1e-300) / max(found[at], 1e-300))


def _same(values: np.ndarray) -> np.ndarray:
    return values
