"""Limits of the DLA through TensorRT: the table of limits, the check of each, and the verdict for a layer."""
