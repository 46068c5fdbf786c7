"""From ONNX models with QuantizeLinear/DequantizeLinear to TensorRT's implicit INT8, DLA included.

import qdq_translator as qt
translation = qt.translate("model.onnx", board="agx-orin")
translation.save("translated/")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qdq_translator._version import __version__

if TYPE_CHECKING:
    from qdq_translator.api.functions import calibrate, deploy, explain, explicit, plan, report, translate, tune, verify
    from qdq_translator.api.results import Bundle, Explanation, Report, Tuning, Verification
    from qdq_translator.core.errors import UserError
    from qdq_translator.core.options import TranslateOptions
    from qdq_translator.translation.explicit import Explicit
    from qdq_translator.translation.translator import Translation

_PLACES = {
    "api.functions": ("calibrate", "deploy", "explain", "explicit", "plan", "report", "translate", "tune", "verify"),
    "api.results": ("Bundle", "Explanation", "Report", "Tuning", "Verification"),
    "core.errors": ("UserError",),
    "core.options": ("TranslateOptions",),
    "translation.explicit": ("Explicit",),
    "translation.translator": ("Translation",),
}
__all__ = [
    "Bundle",
    "Explanation",
    "Explicit",
    "Report",
    "TranslateOptions",
    "Translation",
    "Tuning",
    "UserError",
    "Verification",
    "__version__",
    "calibrate",
    "deploy",
    "explain",
    "explicit",
    "plan",
    "report",
    "translate",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `--help` does not wait for onnx."""
    import importlib

    for module, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"qdq_translator.{module}"), name)
    raise AttributeError(f"module 'qdq_translator' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
