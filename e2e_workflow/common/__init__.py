"""What the end-to-end workflows share: data, networks, training, fake quantization, evaluation, tables."""
