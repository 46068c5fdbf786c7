"""ONNX Runtime's static quantization as TensorRT takes it: int8, zero points of 0, one scale a channel for weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def quantize_symmetric(
    source: Path, target: Path, feeds: Iterator[dict[str, np.ndarray]], exclude: list[str] | None = None
) -> None:
    """Calibrated on `feeds` (input -> values); `exclude`: nodes that stay float."""
    from onnxruntime import quantization

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(feeds, None)

    quantization.quantize_static(
        str(source),
        str(target),
        Feeds(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=exclude,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )
