"""Everything that runs a network in ONNX Runtime: simulation, calibration, comparison, verdicts, search.

Imports core and translation. Provides `verification`, `tune` and the functions of `calibration`.
"""
