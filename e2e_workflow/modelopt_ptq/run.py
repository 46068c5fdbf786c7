"""Post-training quantization of the trained networks with NVIDIA Model Optimizer, and what the translator makes of it.

python -m e2e_workflow.modelopt_ptq.run [--smoke] [--only NAME]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from e2e_workflow.common import ptq
from e2e_workflow.common.variant import Variant


def _quantizer(method: str, target_dla: bool) -> Callable[[Path, np.ndarray, Path], None]:
    def quantize(float_model: Path, images: np.ndarray, qdq_model: Path) -> None:
        from modelopt.onnx.quantization import quantize as modelopt_quantize

        modelopt_quantize(
            str(float_model),
            quantize_mode="int8",
            calibration_data={"input": images},
            calibration_method=method,
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",
            target_dla=target_dla,
            output_path=str(qdq_model),
            log_level="ERROR",
        )

    return quantize


VARIANTS = [
    Variant("default_entropy", _quantizer("entropy", target_dla=False)),
    Variant("default_max", _quantizer("max", target_dla=False)),
    Variant("dla_entropy", _quantizer("entropy", target_dla=True)),
    Variant("dla_max", _quantizer("max", target_dla=True)),
]


if __name__ == "__main__":
    sys.exit(ptq.main("modelopt_ptq", __doc__.splitlines()[0], lambda: VARIANTS, ["nvidia-modelopt"]))
