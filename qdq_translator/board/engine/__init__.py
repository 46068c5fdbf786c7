"""TensorRT itself: build engines, read their layer information, explain logs, inspect the machine.

Imports core to output. Provides builds and the comparison of an engine with the plan.
"""
