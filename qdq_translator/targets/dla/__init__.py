"""What the DLA takes through TensorRT: checks of a layer, the table of limits, and the verdicts that follow."""
