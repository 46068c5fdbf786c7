"""One engine of evaluations: a task per sample, cut into shards, in this process, in several, or on a Dask cluster.

The result does not depend on the workers: shards have the same bounds for any number of workers, every sample is
computed on one thread of ONNX Runtime, and the parts are merged in the order of the samples (a fixed tree).
"""
