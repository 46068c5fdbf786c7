"""Post-training quantization of the trained networks with ONNX Runtime, and what the translator makes of it.

python -m e2e_workflow.onnxruntime_ptq.run [--smoke] [--only NAME]
"""

from __future__ import annotations

import sys

from e2e_workflow.common import ptq
from e2e_workflow.common.variant import Variant


def _variants() -> list[Variant]:
    import onnxruntime

    from e2e_workflow.onnxruntime_ptq.quantizers import VARIANTS

    onnxruntime.set_default_logger_severity(3)
    return VARIANTS


if __name__ == "__main__":
    sys.exit(ptq.main("onnxruntime_ptq", __doc__.splitlines()[0], _variants, []))
