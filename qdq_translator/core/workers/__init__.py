"""Evaluation of samples in shards: in this process, in several processes, or on a Dask cluster.

The result does not depend on the number of workers: fixed shards, one ONNX Runtime thread per sample, parts merged in a
fixed order.
"""
