"""Post-training quantization of the trained networks with NVIDIA Model Optimizer, and what the translator makes of it.

python -m e2e_workflow.modelopt_ptq.run [--smoke] [--only NAME]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from e2e_workflow.common import modelopt, ptq
from e2e_workflow.common.variant import Variant


def _quantizer(method: str, target_dla: bool) -> Callable[[Path, np.ndarray, Path], None]:
    def quantize(float_model: Path, images: np.ndarray, qdq_model: Path) -> None:
        modelopt.quantize(float_model, {"input": images}, qdq_model, method, target_dla)

    return quantize


VARIANTS = [
    Variant("default_entropy", _quantizer("entropy", target_dla=False)),
    Variant("default_max", _quantizer("max", target_dla=False)),
    Variant("dla_entropy", _quantizer("entropy", target_dla=True)),
    Variant("dla_max", _quantizer("max", target_dla=True)),
]


if __name__ == "__main__":
    sys.exit(ptq.main("modelopt_ptq", __doc__.splitlines()[0], lambda: VARIANTS, ["nvidia-modelopt"]))
