"""Scales from data (rules K1 and K2): magnitudes are counted in one pass, a method makes a range of the counts.

`histogram` and `methods` are arithmetic; `observe` runs the network in ONNX Runtime; `data_scales` is the rule; `audit` holds
the scales that are there against data.
"""
