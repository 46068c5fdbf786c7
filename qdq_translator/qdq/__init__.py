"""Q/DQ networks written from a float network and its scales: `restore`.

Imports core to planning. Gives the inverse of a translation.
"""
