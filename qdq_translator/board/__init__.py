"""What meets TensorRT and the board: builder, engine information, logs, bundles for other programs, results.

Imports core, translation and lab. Provides `deployment`, `results`, `engine` and `consumers`.
"""
