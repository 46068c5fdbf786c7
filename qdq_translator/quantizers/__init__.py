"""Recognition of quantizers: value objects, or the reason why a quantizer cannot be used. Only `dialects` and `sidecars` change the
graph: they put Q/DQ pairs in the place of other forms, before anything is recognised."""
