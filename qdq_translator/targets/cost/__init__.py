"""Estimated time on a DLA: what a layer has to do (`work`), how long that takes (`model`), and a whole plan (`estimate`).

Estimates come from published figures of other networks (`orin.json`, docs/cost.md); nothing here was measured by this
project. Where nobody has published a figure, there is none.
"""
