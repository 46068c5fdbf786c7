"""Tensor name -> scale: the scale table, the rules that infer missing scales, and `Network`, the graph with everything that names it.

Imports core, ir, quantizers. Gives `ScaleTable`, `infer` and `Network`.
"""
