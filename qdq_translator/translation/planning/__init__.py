"""The plan: precision and device of each layer, the cause of each fallback, and the effect of further options.

Imports core to passes. Provides `Translation` and the parts of the report.
"""
