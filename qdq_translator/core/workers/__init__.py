"""One engine of evaluations: what is to be done with every sample, cut into shards, in this process, in several, or on a
Dask cluster.

The result does not depend on who computes: shards have the same bounds however many workers there are, every sample is
computed on one thread of ONNX Runtime, and the parts are merged in the order of the samples (a fixed tree).
"""
