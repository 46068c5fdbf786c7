"""From ONNX models with QuantizeLinear/DequantizeLinear to what TensorRT's implicit INT8 takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qdq_translator._version import __version__

if TYPE_CHECKING:
    from qdq_translator.core.options import TranslateOptions
    from qdq_translator.workflows.translator import Translation, translate

__all__ = ["TranslateOptions", "Translation", "__version__", "translate"]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that the command line's --help does not wait for onnx."""
    if name == "TranslateOptions":
        from qdq_translator.core.options import TranslateOptions

        return TranslateOptions
    if name in ("translate", "Translation"):
        from qdq_translator.workflows import translator

        return getattr(translator, name)
    raise AttributeError(f"module 'qdq_translator' has no attribute '{name}'")
