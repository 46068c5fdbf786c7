"""Trained networks that public packages ship, as a benchmark: registry, data, and the table of all paths."""
