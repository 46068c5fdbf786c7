"""Hardware as data: platforms, limits of the DLA, the network that TensorRT's parser makes, the cost model, settings.

Imports core to scales. Provides `Settings`, the resolved options.
"""
