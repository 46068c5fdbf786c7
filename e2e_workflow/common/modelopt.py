"""NVIDIA Model Optimizer's quantization of an ONNX model, on the CPU.

python -m e2e_workflow.common.modelopt MODEL DATA.npz QUANTIZED
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def quantize(
    model: Path, feeds: Mapping[str, np.ndarray], quantized: Path, method: str = "entropy", target_dla: bool = False
) -> None:
    """Write the Q/DQ model. feeds: input name -> calibration samples."""
    from modelopt.onnx.quantization import quantize as modelopt_quantize

    modelopt_quantize(
        str(model),
        quantize_mode="int8",
        calibration_data=dict(feeds),
        calibration_method=method,
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        target_dla=target_dla,
        output_path=str(quantized),
        log_level="ERROR",
    )


if __name__ == "__main__":
    with np.load(sys.argv[2]) as data:
        quantize(Path(sys.argv[1]), data, Path(sys.argv[3]))
