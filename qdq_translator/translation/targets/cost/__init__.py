"""Estimated time on a DLA: the work of a layer (`work`), its time (`model`), and a whole plan (`estimate`).

Estimates come from published figures of other networks (`orin.json`, docs/cost.md), not from measurements of this
project.
"""
