"""Rule W1: does TensorRT's own weight quantization reproduce the codes that the model was trained with?

The final float weights (after folding) go through TensorRT's rule, per output channel `max|w| / 127` and rounding
(fact 5.1 to 5.3), and the codes are compared one by one.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import numpy as np

from qdq_translator.graph import Graph, Node
from qdq_translator.network import TrainedWeight
from qdq_translator.operators import has_one_scale, output_channels
from qdq_translator.qparams import INT8_MAX, tensorrt_weight_codes
from qdq_translator.records import record
from qdq_translator.types import TensorTypes
from qdq_translator.weights import Weight, to_array

_AT_ONCE = 2**20
"""Codes that are compared in one step: enough for NumPy, little for memory."""


@record(frozen=True)
class WeightCheck:
    """One quantized weight of one layer.

    reproduced: codes that come out as trained (a channel whose sign was folded in counts with its sign), of `codes`.
    mixed_channels: output channels whose codes have several scales, because the weight was quantized along another
    axis: no scale of TensorRT's can reproduce them. full_channels: the others whose trained codes reach +-127, where
    TensorRT must reproduce every code; full_reproduced: share reproduced in them (None without such channels).
    largest_code_error: in TensorRT's codes; largest_error: real error relative to the channel's max|w|.
    one_scale: TensorRT has one scale for the weight, which then counts as one channel.
    note: why codes could not be compared, '' where they were.
    """

    weight: str
    node: str
    codes: int
    reproduced: int
    channels: int
    full_channels: int
    full_reproduced: Optional[float]
    largest_code_error: int
    largest_error: float
    mixed_channels: int = 0
    saturated: int = 0
    note: str = ""
    one_scale: bool = False

    @property
    def exact(self) -> bool:
        return not self.note and self.reproduced == self.codes

    @property
    def share(self) -> float:
        return self.reproduced / self.codes if self.codes else 1.0

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "exact": self.exact, "share": self.share}


def check_weights(graph: Graph, types: TensorTypes, trained: Mapping[str, TrainedWeight]) -> list[WeightCheck]:
    """One row for every weight that was quantized and the layer that uses it, in graph order."""
    rows = []
    for node in graph.nodes:
        for index, name in enumerate(node.inputs[:2]):
            if name in trained and name in graph.initializers:
                tensor = graph.initializers[name]
                values = to_array(tensor)
                if not values.size:
                    continue
                if isinstance(tensor, Weight):  # which is asked for in a moment
                    tensor.checksum(values)
                rank = types.rank(node.input(1 - index))
                row = _check(node, index, values, trained[name], has_one_scale(node, index, values.ndim, rank))
                if row is not None:
                    rows.append(row)
    return rows


def _check(
    node: Node, index: int, values: np.ndarray, trained: TrainedWeight, one_scale: bool
) -> Optional[WeightCheck]:
    name, channels, count = node.inputs[index], output_channels(node, index, values.ndim), int(values.size)
    if one_scale:
        weight = values.reshape(1, -1)
    elif channels is not None:
        weight = channels.rows(values)
    else:
        return None
    if trained.codes is None or tuple(trained.codes.dims) != values.shape:
        note = "codes cannot be compared: the weight has a zero point, or arithmetic stands behind its DequantizeLinear"
        return WeightCheck(
            name,
            node.name,
            count,
            0,
            len(weight),
            0,
            None,
            0,
            0.0,
            saturated=trained.saturated,
            note=note,
            one_scale=one_scale,
        )
    codes = trained.codes.array()
    codes = codes.reshape(1, -1) if one_scale or channels is None else channels.rows(codes)
    made, scale = tensorrt_weight_codes(np.ascontiguousarray(weight), (0,))
    full = np.abs(codes).max(axis=1, initial=0) == INT8_MAX
    same = made == codes
    exact = same.all(axis=1)
    reproduced = int(np.count_nonzero(same))
    largest_code, largest_error, full_missed, mixed = 0, 0.0, 0, 0
    wrong = np.flatnonzero(~exact)
    for some in np.array_split(wrong, -(-wrong.size * codes.shape[1] // _AT_ONCE)) if wrong.size else ():
        trained_rows, made_rows, step = codes[some].astype(np.int64), made[some].astype(np.int64), scale[some]
        # a negative BatchNormalization factor was folded in
        trained_rows[(trained_rows * made_rows).sum(axis=1) < 0] *= -1
        hits = np.count_nonzero(trained_rows == made_rows, axis=1)
        reproduced += int(hits.sum()) - int(np.count_nonzero(same[some]))
        several = _several_scales(weight[some], trained_rows)
        mixed += int(np.count_nonzero(several))
        full[some] &= ~several
        full_missed += int((codes.shape[1] - hits)[full[some]].sum())
        largest_code = max(largest_code, int(np.abs(made_rows - trained_rows).max(initial=0)))
        step = step.astype(np.float64)
        error = np.abs(made_rows * step - weight[some].astype(np.float64)).max(axis=1, initial=0)
        amax = step[:, 0] * INT8_MAX
        largest_error = max(largest_error, float((error[amax > 0] / amax[amax > 0]).max(initial=0)))
    in_full = int(np.count_nonzero(full)) * codes.shape[1]
    return WeightCheck(
        name,
        node.name,
        count,
        reproduced,
        len(codes),
        int(np.count_nonzero(full)),
        1 - full_missed / in_full if in_full else None,
        largest_code,
        largest_error,
        mixed,
        trained.saturated,
        one_scale=one_scale,
    )


def _several_scales(weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """For each row, whether its codes were dequantized with scales that differ by more than half precision's rounding:
    twice 2^-11 of a weight in float16, 2^-9 in bfloat16."""
    told = codes != 0
    steps = weights.astype(np.float64) / np.where(told, codes, 1)
    highest = np.where(told, steps, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(told, steps, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(told.any(axis=1) & (highest - lowest > 5e-3 * np.maximum(np.abs(highest), np.abs(lowest))))
