"""One scale per tensor: the scale table, the rules that infer missing scales, and `Network`, the graph with its
records.

Imports core, ir, quantizers. Provides `ScaleTable`, `infer` and `Network`.
"""
