"""The plan: scale, precision and device of each layer, the cause of each fallback, and what an option would change.

Imports core to passes. Gives `Translation` and the parts that the report is made of.
"""
