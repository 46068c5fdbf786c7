"""From ONNX models with QuantizeLinear/DequantizeLinear to what TensorRT's implicit INT8 takes."""

from __future__ import annotations

from qdq_translator._version import __version__

__all__ = ["__version__"]
