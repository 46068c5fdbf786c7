"""Four ways to call ONNX Runtime's `quantize_static`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from e2e_workflow.common.variant import Variant

BATCH = 32

SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
FOR_TENSORRT = {**SYMMETRIC, "AddQDQPairToWeight": True, "QuantizeBias": False}


class _Images(CalibrationDataReader):
    def __init__(self, name: str, images: np.ndarray) -> None:
        self._batches: Iterator[np.ndarray] = iter(np.array_split(images, len(images) // BATCH))
        self._name = name

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self._batches, None)
        return None if batch is None else {self._name: batch}


def _quantizer(
    per_channel: bool, method: CalibrationMethod, extra: dict[str, bool]
) -> Callable[[Path, np.ndarray, Path], None]:
    def quantize(float_model: Path, images: np.ndarray, qdq_model: Path) -> None:
        prepared = qdq_model.with_name(f"{qdq_model.stem}_prepared.onnx")
        quant_pre_process(str(float_model), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(qdq_model),
            _Images("input", images),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=method,
            extra_options=extra,
        )

    return quantize


VARIANTS = [
    # float weights behind Q/DQ, float bias: the form TensorRT's explicit mode takes too
    Variant("tensorrt", _quantizer(True, CalibrationMethod.MinMax, FOR_TENSORRT)),
    Variant("tensorrt_percentile", _quantizer(True, CalibrationMethod.Percentile, FOR_TENSORRT)),
    # int8 weights and int32 biases behind a DQ
    Variant("int8_weights", _quantizer(True, CalibrationMethod.MinMax, SYMMETRIC)),
    # what quantize_static does unasked: asymmetric activations, weights per tensor
    Variant("default", _quantizer(False, CalibrationMethod.MinMax, {}), asymmetric="widen"),
]
