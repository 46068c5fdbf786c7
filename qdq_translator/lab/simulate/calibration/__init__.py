"""Scales from data (rules K1 and K2): histograms of magnitudes from one pass, and methods that choose a range.

`histogram` and `methods` are arithmetic; `observe` runs the network in ONNX Runtime; `data_scales` is the rule; `audit`
compares existing scales with data.
"""
