"""Quantizers of a model as value objects, or the reason why one cannot be used.

Imports core, ir. Provides the recognition of pairs; `dialects` and `sidecars` first convert other forms into Q/DQ
pairs.
"""
