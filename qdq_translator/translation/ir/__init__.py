"""ONNX models as an indexed graph: reading, writing, validation, weights, types and shapes, properties of operators.

Imports core. Provides `Graph`, `load_model`, `write_graph`, constant folding, type inference, arithmetic of scales and
zero points.
"""
