"""ONNX Runtime as judge: a mutated model that it still runs computes the same after translation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from qdq_translator.lab.verification import runnable
from qdq_translator.translation.translator import Translation
from tests.explicit_reference import assert_equal_function, bypassed, random_inputs, run


def differs(data: bytes, translation: Translation, options: dict[str, Any]) -> str:
    """'' where the functions agree, or where nothing can be said: ONNX Runtime does not run the mutated model, or the
    options ask for another function (float weights, widened ranges)."""
    if options.get("asymmetric") == "widen" or options.get("weights") == "float":
        return ""
    explicit = onnx.ModelProto.FromString(data)
    if explicit.functions:  # the reference does not look into them
        return ""
    try:
        onnx.checker.check_model(explicit, full_check=True)
        feed = random_inputs(translation.model, 3)
        names = [v.name for v in explicit.graph.output]
        expected = run(bypassed(runnable(explicit)), feed, names)
    except Exception:  # damaged beyond what the reference understands
        return ""
    if not all(np.isfinite(values).all() for values in expected if values.dtype.kind == "f"):
        return ""
    # what the explicit model computes in half precision, the translation computes in float32 (rule F9)
    tolerance = 2**-9 if any(values.dtype == np.float16 for values in expected) else 1e-4
    try:
        assert_equal_function(expected, run(translation.model, feed, names), tolerance)
    except Exception as error:
        return f"another function: {type(error).__name__} {str(error)[:100]}"
    return ""
