"""Post-training quantization of the trained networks with ONNX Runtime, and what the translator makes of it.

python -m e2e_workflow.onnxruntime_ptq.run [--smoke] [--only NAME]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from e2e_workflow.common import ptq

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
    ptq.Variant("tensorrt", _quantizer(True, CalibrationMethod.MinMax, FOR_TENSORRT)),
    ptq.Variant("tensorrt_percentile", _quantizer(True, CalibrationMethod.Percentile, FOR_TENSORRT)),
    # int8 weights and int32 biases behind a DQ
    ptq.Variant("int8_weights", _quantizer(True, CalibrationMethod.MinMax, SYMMETRIC)),
    # what quantize_static does unasked: asymmetric activations, weights per tensor
    ptq.Variant("default", _quantizer(False, CalibrationMethod.MinMax, {}), asymmetric="widen"),
]


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(3)
    sys.exit(ptq.main("onnxruntime_ptq", __doc__.splitlines()[0], VARIANTS, []))
