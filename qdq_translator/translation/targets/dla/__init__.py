"""Limits of the DLA through TensorRT: the table of limits, their checks, and the verdict for a layer."""
