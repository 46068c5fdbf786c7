"""TensorRT's real Python bindings on machines without TensorRT, and doubles of the objects they cannot make there."""
