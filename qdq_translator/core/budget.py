"""Limits on the cost of evaluating a model's constants, so that a small file cannot cause much work or memory.

A cost is a number of bytes that are read or written; calls and multiplications count as the bytes that could be read in
the same time. A model may always spend `_FREE`, and more in proportion to the bytes that its file holds, so that honest
weights of any size pass. Sizes are checked before anything is allocated.
"""

from __future__ import annotations

import math
from typing import Any, Iterable

from qdq_translator.core.errors import ModelError

_FREE = 2**28
"""Bytes: about half a second of NumPy, and a quarter of a gigabyte if all of it were kept."""
_PER_STORED_BYTE = 64
LARGEST_RESULT = 2**26
"""The largest size of one constant in bytes if its inputs are smaller than that."""
MOST_DIMENSIONS = 32
"""The largest number of dimensions of a tensor: every NumPy supports it; TensorRT supports 8."""
INLINED_NODES = 30_000
"""The largest number of nodes that local functions may become, unless the file itself holds a tenth of it."""
INLINED_PER_NODE = 10
_FOLD = (
    "Export with constant folding on, so that the file contains constants instead of the operators that compute them."
)


class Budget:
    """The remaining budget of one model. `stored`: the tensors in its file; `hint`: the advice in a refusal."""

    def __init__(self, stored: Iterable[Any], hint: str = _FOLD) -> None:
        self.left = _FREE
        self.hint = hint
        self._uncounted = [*stored]
        """Counted only when the free budget is spent: ONNX serializes a tensor to determine its size."""

    def spend(self, cost: int, who: str) -> None:
        """Spends `cost`. Raises ModelError, naming `who`, if less is left."""
        self.left -= cost
        if self.left < 0:
            self.left += _PER_STORED_BYTE * sum([tensor.ByteSize() for tensor in self._uncounted])
            self._uncounted = []
        if self.left < 0:
            raise ModelError(f"Evaluating this model takes too much work; {who} is one node too many.", self.hint)

    def allow(self, shape: Iterable[int], itemsize: int, largest_input: int, who: str) -> int:
        """Spends and returns the bytes of a result. Raises ModelError, naming `who`, if it must not be computed."""
        elements = math.prod(shape)
        size = elements * itemsize
        if size > max(LARGEST_RESULT, 2 * largest_input):
            raise ModelError(f"{who} would make {elements:,} values out of a few.", self.hint)
        self.spend(size, who)
        return size
