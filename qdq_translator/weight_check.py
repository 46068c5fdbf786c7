"""Rule W1: does TensorRT's own weight quantization reproduce the codes that the model was trained with?

The final float weights (after folding) go through TensorRT's rule, per output channel `max|w| / 127` and rounding
(fact 5.1 to 5.3), and the codes are compared one by one.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, NamedTuple, Optional

import numpy as np

from qdq_translator.graph import Graph
from qdq_translator.network import TrainedWeight
from qdq_translator.operators import OutputChannels, has_one_scale, output_channels
from qdq_translator.qparams import INT8_MAX, alike, tensorrt_weight_codes
from qdq_translator.records import record
from qdq_translator.types import TensorTypes
from qdq_translator.weights import MADE_LATER, Weight, to_array

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
    found: list[Optional[WeightCheck]] = []

    def cases() -> Iterator[tuple[_Case, np.ndarray]]:
        """Those that are to be compared with others; the place of their row is kept."""
        for node in graph.nodes:
            for index, name in enumerate(node.inputs[:2]):
                if name not in trained or name not in graph.initializers:
                    continue
                tensor = graph.initializers[name]
                values = to_array(tensor)
                if not values.size:
                    continue
                if isinstance(tensor, Weight):  # which is asked for in a moment
                    tensor.checksum(values)
                one_scale = has_one_scale(node, index, values.ndim, types.rank(node.input(1 - index)))
                channels = None if one_scale else output_channels(node, index, values.ndim)
                if channels is None and not one_scale:
                    continue
                weight = values.reshape(1, -1) if channels is None else channels.rows(values)
                case = _Case(len(found), name, node.name, trained[name], channels, weight)
                found.append(None)
                codes = trained[name].codes
                if codes is None or tuple(codes.dims) != values.shape:
                    found[case.place] = case.result(0, 0, None, note=_HIDDEN)
                elif values.size < MADE_LATER:
                    yield case, weight
                else:
                    _check([(case, weight)], found)

    for group in alike(cases()):
        _check(group, found)
    return [row for row in found if row is not None]


_HIDDEN = "codes cannot be compared: the weight has a zero point, or arithmetic stands behind its DequantizeLinear"


class _Case(NamedTuple):
    """One weight of one layer. channels: None where it has one scale; weight: its rows."""

    place: int
    name: str
    node: str
    trained: TrainedWeight
    channels: Optional[OutputChannels]
    weight: np.ndarray

    def codes(self) -> np.ndarray:
        assert self.trained.codes is not None
        codes = self.trained.codes.array()
        return codes.reshape(1, -1) if self.channels is None else self.channels.rows(codes)

    def result(self, reproduced: int, full: int, full_reproduced: Optional[float], **more: Any) -> WeightCheck:
        """The rest of a row, zero where `more` does not say it."""
        return WeightCheck(
            self.name,
            self.node,
            int(self.weight.size),
            reproduced,
            len(self.weight),
            full,
            full_reproduced,
            **{"largest_code_error": 0, "largest_error": 0.0, **more},
            saturated=self.trained.saturated,
            one_scale=self.channels is None,
        )


def _check(group: list[tuple[_Case, np.ndarray]], found: list[Optional[WeightCheck]]) -> None:
    """Weights whose rows are equally long, in one go; each result in its place."""
    alone = len(group) == 1
    weight = group[0][1] if alone else np.concatenate([weight for _, weight in group])
    codes = group[0][0].codes() if alone else np.concatenate([case.codes() for case, _ in group])
    made, scale = tensorrt_weight_codes(np.ascontiguousarray(weight), (0,))
    full = np.abs(codes).max(axis=1, initial=0) == INT8_MAX
    exact = (made == codes).all(axis=1)
    first = 0
    for case, rows in group:
        part = slice(first, first + len(rows))
        first += len(rows)
        if exact[part].all():
            count = int(np.count_nonzero(full[part]))
            found[case.place] = case.result(int(rows.size), count, 1.0 if count else None)
        else:
            found[case.place] = _compared(case, rows, codes[part], made[part], scale[part], full[part])


def _compared(
    case: _Case, weight: np.ndarray, codes: np.ndarray, made: np.ndarray, scale: np.ndarray, full: np.ndarray
) -> WeightCheck:
    """A weight of which not all codes come out. full: channels whose codes reach +-127; written over."""
    same = made == codes
    reproduced = int(np.count_nonzero(same))
    largest_code, largest_error, full_missed, mixed = 0, 0.0, 0, 0
    wrong = np.flatnonzero(~same.all(axis=1))
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
    return case.result(
        reproduced,
        int(np.count_nonzero(full)),
        1 - full_missed / in_full if in_full else None,
        largest_code_error=largest_code,
        largest_error=largest_error,
        mixed_channels=mixed,
    )


def _several_scales(weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """For each row, whether its codes were dequantized with scales that differ by more than half precision's rounding:
    twice 2^-11 of a weight in float16, 2^-9 in bfloat16."""
    told = codes != 0
    steps = weights.astype(np.float64) / np.where(told, codes, 1)
    highest = np.where(told, steps, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(told, steps, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(told.any(axis=1) & (highest - lowest > 5e-3 * np.maximum(np.abs(highest), np.abs(lowest))))
