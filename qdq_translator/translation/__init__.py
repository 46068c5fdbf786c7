"""From a model to a float network with one scale a tensor: graph, quantizers, passes, scales, plan, files, report.

Imports core. Provides `translator.translate`, `explicit` and the readers of a translation folder.
"""
