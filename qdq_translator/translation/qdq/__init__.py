"""Q/DQ networks from a float network and its scales: `restore` from a cache, `explicit` for TensorRT 11.

Imports core to planning. Provides the inverse of a translation.
"""
