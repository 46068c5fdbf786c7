"""One way to use a post-training quantizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Variant:
    """`quantize(float model, calibration images, Q/DQ model to write)`; asymmetric: how to translate it."""

    name: str
    quantize: Callable[[Path, np.ndarray, Path], None]
    asymmetric: str = "error"
