"""ONNX Runtime: the simulated engine, comparison of outputs, calibration, audit, sensitivity, proof of rewrites.

Imports core to qdq. Provides runs of networks on samples, and the verdicts.
"""
