"""Rule W1: does TensorRT's weight quantization reproduce the trained quantized values?

The final float weights (after folding) go through TensorRT's rule, per output channel `max|w| / 127` and rounding
(fact 5.1 to 5.3), and the quantized values are compared.
"""

from __future__ import annotations

import math
from typing import Mapping, Optional

import numpy as np

from qdq_translator.core.formats.report_rows import WeightCheck
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.operators import WEIGHT_INPUTS, OutputChannels, has_one_scale, output_channels
from qdq_translator.translation.ir.qparams import INT8_MAX, row_blocks, tensorrt_weight_codes
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import Initializer, to_array
from qdq_translator.translation.scales.network import TrainedWeight

_AT_ONCE = 2**20
"""Quantized values that are compared in one step: large enough for NumPy to be fast, and small in memory."""
_SAME = 1e-6
"""Share of a channel's range by which float32 may round a weight that keeps its value."""


def check_weights(graph: Graph, types: TensorTypes, trained: Mapping[str, TrainedWeight]) -> list[WeightCheck]:
    """One row for every weight that was quantized and the layer that uses it, in graph order."""
    found: list[WeightCheck] = []
    for node in graph.of(*WEIGHT_INPUTS):
        for index, name in enumerate(node.inputs[:2]):
            tensor = graph.initializers.get(name) if name in trained else None
            if tensor is None or not math.prod(tensor.dims):
                continue
            rank = len(tensor.dims)
            one_scale = has_one_scale(node, index, rank, types.rank(node.input(1 - index)))
            channels = None if one_scale else output_channels(node, index, rank)
            if one_scale or channels is not None:
                found.append(_checked(name, node.name, tensor, trained[name], channels))
    return found


_HIDDEN = "values cannot be compared: the weight has a zero point, or arithmetic follows its DequantizeLinear"


def _checked(
    name: str, node: str, tensor: Initializer, trained: TrainedWeight, channels: Optional[OutputChannels]
) -> WeightCheck:
    """Compare one weight. channels: None if the weight has one scale."""
    dims, codes, tally, note = tuple(tensor.dims), trained.codes, _Tally(), _HIDDEN

    def rows(values: np.ndarray) -> np.ndarray:
        return values.reshape(1, -1) if channels is None else channels.rows(values)

    if codes is not None and tuple(codes.dims) == dims:
        note = ""
        made, wanted = rows(to_array(tensor)), rows(codes.array())
        for block in row_blocks(made.shape):  # a few channels at a time, to limit memory
            tally.add(made[block], wanted[block])
    count = math.prod(dims)
    return WeightCheck(
        weight=name,
        node=node,
        codes=count,
        reproduced=tally.reproduced,
        channels=1 if channels is None else channels.count(dims),
        full_channels=tally.full,
        full_reproduced=1 - tally.missed / tally.in_full if tally.in_full else None,
        largest_code_error=tally.largest_code,
        largest_error=tally.largest_error,
        mixed_channels=tally.mixed,
        saturated=trained.saturated,
        note=note,
        one_scale=channels is None,
        exact=not note and tally.reproduced == count,
        share=tally.reproduced / count,
    )


class _Tally:
    """Counts for one weight, by groups of channels. in_full: quantized values of the full channels; missed: those not
    reproduced."""

    def __init__(self) -> None:
        self.reproduced = self.full = self.in_full = self.missed = self.largest_code = self.mixed = 0
        self.largest_error = 0.0

    def add(self, weight: np.ndarray, codes: np.ndarray) -> None:
        """Add float weights and their trained quantized values, one row per channel."""
        made, scale = tensorrt_weight_codes(np.ascontiguousarray(weight), (0,))
        full = np.abs(codes).max(axis=1, initial=0) == INT8_MAX
        same = made == codes
        wrong = np.flatnonzero(~same.all(axis=1))
        self.reproduced += int(np.count_nonzero(same)) if wrong.size else same.size
        for some in np.array_split(wrong, -(-wrong.size * codes.shape[1] // _AT_ONCE)) if wrong.size else ():
            trained_rows, made_rows, step = codes[some].astype(np.int64), made[some].astype(np.int64), scale[some]
            # a negative BatchNormalization factor was folded in
            trained_rows[(trained_rows * made_rows).sum(axis=1) < 0] *= -1
            step = step.astype(np.float64)
            error = np.abs(made_rows * step - weight[some].astype(np.float64)).max(axis=1, initial=0)
            amax = step[:, 0] * INT8_MAX
            # as in a kernel of one tap: other integers of another step, for the same values
            kept = error <= _SAME * amax
            trained_rows[kept] = made_rows[kept]
            full[some] |= kept
            hits = np.count_nonzero(trained_rows == made_rows, axis=1)
            self.reproduced += int(hits.sum()) - int(np.count_nonzero(same[some]))
            several = _several_scales(weight[some], trained_rows)
            self.mixed += int(np.count_nonzero(several))
            full[some] &= ~several
            self.missed += int((codes.shape[1] - hits)[full[some]].sum())
            self.largest_code = max(self.largest_code, int(np.abs(made_rows - trained_rows).max(initial=0)))
            self.largest_error = max(self.largest_error, float((error[amax > 0] / amax[amax > 0]).max(initial=0)))
        self.full += int(np.count_nonzero(full))
        self.in_full += int(np.count_nonzero(full)) * codes.shape[1]


def _several_scales(weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One flag a row: whether its quantized values were dequantized with scales that differ by more than half
    precision's rounding: twice 2^-11 of a weight in float16, 2^-9 in bfloat16."""
    told = codes != 0
    steps = weights.astype(np.float64) / np.where(told, codes, 1)
    highest = np.where(told, steps, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(told, steps, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(told.any(axis=1) & (highest - lowest > 5e-3 * np.maximum(np.abs(highest), np.abs(lowest))))
