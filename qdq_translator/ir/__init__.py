"""An ONNX model as an indexed graph: reading, writing, weights that stay outside of messages, types and shapes, facts about operators.

Imports core. Gives `Graph`, `load` and `save`, constant folding, type inference and the arithmetic of scales and zero points.
"""
