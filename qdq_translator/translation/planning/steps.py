"""Rule F12: precision lost through tensors created by rewrites, estimated from ranges alone.

Rounding a tensor adds noise of step^2 / 12. Its step is its INT8 scale, or the FP16 spacing at its largest possible
magnitude. Ranges and gains of the layers created by rewrites come from interval arithmetic; noise of different tensors
adds up. The noise of new tensors may cost a result `MOST` dB, relative to the noise of the rewrite's inputs and of the
result's own step. If it loses more,
1. the new tensors that cost most get no scale and are FP16
2. a rewrite that loses more in FP16 too, or that exceeds the range of FP16, is left out

Not checked: layers with unknown gain (MatMul, Softmax, Convs with more than `LARGEST` weights), unspecified ranges, and
rule D28: a recurrent layer rounds its states itself.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.bounds import is_non_negative
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.qparams import FLOAT16_MAX, INT8_MAX
from qdq_translator.translation.scales.inference import Context
from qdq_translator.translation.scales.network import Applied

MOST = 12.0
"""Largest loss in dB: two bits."""
LARGEST = 1 << 16
_SPACING = 2.0**-10
Span = Tuple[float, float]
"""The smallest and the largest value that a tensor can have."""
_Known = Optional[Tuple[Span, List[float]]]
"""Span of the outputs, and the largest gain for the noise of each input; None if they are not known."""
_MOVES = (*where(data="view permute same part pick repeat pad"), "Resize")
_SATURATE: dict[str, tuple[Callable[[float], float], float]] = {
    "Relu": (lambda x: max(x, 0.0), 1.0),
    "Sigmoid": (lambda x: 0.5 + 0.5 * math.tanh(x / 2), 0.25),
    "Tanh": (math.tanh, 1.0),
    "Erf": (math.erf, 1.13),
}
"""Operator -> its function, which is monotonic, and the steepest slope."""


class Result(NamedTuple):
    """A tensor that a rewrite computes for the rest of the network. kept, new: tensor -> step^2 of its rounding times
    the gain to this result; of tensors that existed before, and of tensors that rewrites made."""

    name: str
    kept: dict[str, float]
    new: dict[str, float]

    @property
    def lost(self) -> float:
        """Loss in dB; 0 if there is no other noise to compare with."""
        before, added = sum(self.kept.values()), sum(self.new.values())
        if not before or not math.isfinite(before):
            return math.inf if math.isinf(added) and not before else 0.0
        return 10 * math.log10(1 + added / before)


def drop_coarse(context: Context, applied: Sequence[Applied]) -> None:
    """Case 1: remove the scales of new tensors that cost too much, and withhold them with the reason."""
    found: dict[str, str] = {}
    for result in _Steps(context, applied).results():
        while result.lost > MOST:
            scaled = [name for name in result.new if name in context.scales]
            if not scaled:
                break
            worst = max(scaled, key=result.new.__getitem__)
            found[worst] = f"its step in INT8 would cost '{result.name}' {result.lost:.0f} dB (rule F12)"
            result = result._replace(new={name: power for name, power in result.new.items() if name != worst})
    for tensor in found:
        context.scales.drop(tensor)
    context.withheld = {**context.withheld, **found}


def left_out(context: Context, applied: Sequence[Applied], infer: Callable[[], object]) -> dict[str, dict[str, str]]:
    """Case 2. Rule -> node that it rewrote -> why the rewrite is left out. infer: infers the scales of the context;
    called if a rewrite has new tensors."""
    makers = {name: one for one in applied for name in one.new}
    found: dict[str, dict[str, str]] = {}
    steps = _Steps(context, applied)
    if not steps.inside:
        return found
    infer()
    drop_coarse(context, applied)
    for result in steps.results():
        if result.lost > MOST:
            one = makers[max(result.new, key=result.new.__getitem__)]
            cost = f"cost '{result.name}' {result.lost:.0f} dB" if math.isfinite(result.lost) else "exceed FP16"
            found.setdefault(one.rule, {}).update(
                (node, f"its new tensors would {cost} (rule F12)") for node, _ in one.before
            )
    return found


class _Steps:
    """The noise of every tensor that rewrites made, in graph order."""

    def __init__(self, context: Context, applied: Sequence[Applied]) -> None:
        self.context, self.graph = context, context.graph
        self._made = {id(node) for one in applied for node, _ in one.after}
        replaced = {name for one in applied for names in one.tensors.values() for name in names}
        new = {name for one in applied if one.rule != "D28" for name in one.new if name not in replaced}
        self.inside = set(filter(self._read_inside, new.difference(self.graph.outputs)))
        self._non_negative = functools.lru_cache(maxsize=None)(functools.partial(is_non_negative, self.graph))
        self._ends = functools.lru_cache(maxsize=None)(self._span_of)
        self._spans: dict[str, Span] = {}
        self._noise: dict[str, dict[str, float]] = {}

    def _read_inside(self, name: str) -> bool:
        """Whether only layers of rewrites read the tensor, so that its noise did not exist before."""
        readers = self.graph.consumers(name)
        return bool(readers) and all(id(one) in self._made for one in readers)

    def results(self) -> Iterator[Result]:
        for node in self.graph.nodes:
            if id(node) not in self._made or not any(name in self.inside for name in (*node.inputs, *node.outputs)):
                continue
            noise = self._through(node)
            for name in filter(None, node.outputs):
                own = {} if noise is None else {**noise, name: self._step(name) ** 2}
                self._noise[name] = own
                if name not in self.inside:
                    kept = {one: power for one, power in own.items() if one not in self.inside}
                    yield Result(name, kept, {one: power for one, power in own.items() if one in self.inside})

    def span(self, name: str) -> Span:
        """Span of a tensor, infinite if its range is not known."""
        if self.graph.is_constant(name):
            return self._ends(name)
        low, high = self._spans.get(name, (-math.inf, math.inf))
        scale = self.context.scale(name)
        if scale is not None:
            low, high = max(low, -INT8_MAX * scale), min(high, INT8_MAX * scale)
        return (max(low, 0.0) if low < 0 and self._non_negative(name) else low), high

    def _span_of(self, constant: str) -> Span:
        values = self.graph.array(constant)
        return (float(values.min()), float(values.max())) if values is not None and values.size else (0.0, 0.0)

    def _step(self, name: str) -> float:
        scale, most = self.context.scale(name), self._largest(name)
        if scale is not None:
            return scale
        if not math.isfinite(most):
            return 0.0
        return most * _SPACING if most <= FLOAT16_MAX or name not in self.inside else math.inf

    def _largest(self, name: str) -> float:
        return max(map(abs, self.span(name)))

    def _through(self, node: Node) -> Optional[dict[str, float]]:
        """Noise of the outputs before they are rounded, and their span as a side effect; None, without span, if the
        gain is not known."""
        data = [name for name in (node.inputs[:1] if node.is_op(*_MOVES) else node.inputs) if name]
        known = self._gains(node, data)
        if known is None:
            return None
        span, gains = known
        noise: dict[str, float] = {}
        for name in filter(None, node.outputs):
            self._spans[name] = span
        reach = max(map(abs, span))
        for name, gain in zip(data, gains):
            before = self._largest(name)
            share = reach / before if math.isfinite(before) and before > 0 else 1.0
            relative = node.is_op("Mul", "Div", "Clip", *_SATURATE)  # the FP16 step shrinks with the values
            for one, power in (self._noise.get(name) or self._given(name)).items():
                own = min(gain, share) if relative and one not in self.context.scales else gain
                noise[one] = noise.get(one, 0.0) + own * own * power
        return noise

    def _given(self, name: str) -> dict[str, float]:
        return {} if self.graph.is_constant(name) else {name: self._step(name) ** 2}

    def _gains(self, node: Node, data: Sequence[str]) -> _Known:
        if node.is_op("Conv", "BatchNormalization"):  # their weights need no span
            return self._linear(node, self.span(data[0]))
        if not node.is_op(*_GAINS):
            return None
        return _GAINS[node.op_type](node, [self.span(name) for name in data], self.graph)

    def _linear(self, node: Node, span: Span) -> _Known:
        """Span and gain of a Scale, or of a Conv with few weights: the largest gain of an output channel."""
        scale = operators.scale_layer(node, self.graph.array)
        if scale is not None:
            ends = [_times(end, scale[0].astype(np.float64)) + scale[1] for end in span]
            return (float(np.min(ends)), float(np.max(ends))), [float(np.abs(scale[0]).max())]
        weight = self.graph.initializers.get(node.input(1)) if node.is_op("Conv") else None
        if weight is None or node.input(2) or math.prod(weight.dims) > LARGEST or not math.prod(weight.dims):
            return None
        values = self.graph.array(node.inputs[1])
        assert values is not None
        rows = values.reshape(len(values), -1).astype(np.float64)
        above, below = rows.clip(0).sum(axis=1), rows.clip(None, 0).sum(axis=1)
        low, high = [_times(one, above) + _times(other, below) for one, other in (span, span[::-1])]
        padded = min(float(low.min()), 0.0), max(float(high.max()), 0.0)
        return padded, [float(np.sqrt((rows * rows).sum(axis=1).max())), 0.0][: len(node.inputs)]


def _times(end: float, values: np.ndarray) -> np.ndarray:
    """`end * values`, with 0 instead of NaN for an infinite end and a factor of 0."""
    return np.where(values == 0, 0.0, np.where(values == 0, 1.0, values) * end)


def _hull(spans: Sequence[Span]) -> Span:
    return min(low for low, _ in spans), max(high for _, high in spans)


def _saturate(node: Node, spans: Sequence[Span], graph: Graph) -> _Known:
    function, slope = _SATURATE[node.op_type]
    return (function(spans[0][0]), function(spans[0][1])), [slope]


def _clip(node: Node, spans: Sequence[Span], graph: Graph) -> _Known:
    low, high = operators.clip_bounds(node, graph.array)
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return (min(max(spans[0][0], least), most), min(max(spans[0][1], least), most)), [1.0]


def _average(node: Node, spans: Sequence[Span], graph: Graph) -> _Known:
    window = operators.window(node)
    return None if window is None else (_hull([spans[0], (0.0, 0.0)]), [1 / math.sqrt(math.prod(window.kernel))])


def _product(node: Node, spans: Sequence[Span], graph: Graph) -> _Known:
    """Span and gains of a * b or a / b; None for a divisor that may be 0."""
    if len(spans) != 2 or not all(math.isfinite(end) for span in spans for end in span):
        return None
    one, other = spans
    most, largest = max(map(abs, one)), max(map(abs, other))
    if node.is_op("Mul"):
        ends, gains = [a * b for a in one for b in other], [largest, most]
    elif other[0] <= 0 <= other[1]:
        return None
    else:
        least = min(map(abs, other))
        ends, gains = [a / b for a in one for b in other], [1 / least, most / least**2]
    return (min(ends), max(ends)), gains


def _unscaled(span: Callable[..., Span]) -> Callable[[Node, Sequence[Span], Graph], _Known]:
    """An operator that passes on the noise of each input unchanged. span: computes the span of its output from those of
    its inputs."""
    return lambda node, spans, graph: (span(*spans), [1.0] * len(spans))


_GAINS: dict[str, Callable[[Node, Sequence[Span], Graph], _Known]] = {
    **dict.fromkeys((*_MOVES, "Concat", "Max", "Min"), _unscaled(lambda *spans: _hull(spans))),
    "Pad": _unscaled(lambda span: _hull([span, (0.0, 0.0)])),
    "Abs": _unscaled(lambda span: (0.0, max(map(abs, span)))),
    "Neg": _unscaled(lambda span: (-span[1], -span[0])),
    **dict.fromkeys(
        ("Add", "Sum"), _unscaled(lambda *spans: (sum(low for low, _ in spans), sum(high for _, high in spans)))
    ),
    "Sub": _unscaled(lambda one, other: (one[0] - other[1], one[1] - other[0])),
    **dict.fromkeys(("Mul", "Div"), _product),
    **dict.fromkeys(_SATURATE, _saturate),
    "Clip": _clip,
    "AveragePool": _average,
}
"""Operator -> span of the output and gain of each input (`_Steps._gains`), from the spans of its inputs."""
