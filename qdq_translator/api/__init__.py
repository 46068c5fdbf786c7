"""The Python API: one function per command, with keyword arguments, arrays and callables instead of files and flags.

Imports commands and workflows: options, defaults and checks are theirs. Provides the exports of `qdq_translator`.
"""
