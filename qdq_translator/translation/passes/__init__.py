"""Passes that change the graph of a translation, and the pipeline that runs and checks them.

Imports core to targets. Provides `PIPELINE`, the table of passes; `dla` and `normal_forms` contain one module per group
of rewrites.
"""
