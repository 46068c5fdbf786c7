"""ONNX Runtime: the simulated engine, comparison of outputs, calibration, audit, sensitivity, proof of rewrites.

Imports from core to qdq. Runs networks on samples and derives the verdicts.
"""
