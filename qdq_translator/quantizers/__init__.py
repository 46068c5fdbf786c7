"""Recognition of quantizers: value objects, or the reason why a quantizer cannot be used. Nothing is changed here."""
