"""DLA support through TensorRT: checks of a layer, the table of limits, and the resulting verdicts."""
