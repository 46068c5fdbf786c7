"""Estimate DLA time: work of a layer (`work`), its duration (`model`), and a whole plan (`estimate`).

Estimates come from published figures of other networks (`orin.json`, docs/cost.md); nothing here was measured by this
project. Without a published figure there is no estimate.
"""
