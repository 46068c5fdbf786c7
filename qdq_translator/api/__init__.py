"""The Python API: one function per command, with keyword arguments, arrays and callables instead of files and flags.

Imports commands and workflows, whose options, defaults and checks it uses. Provides the public names of
`qdq_translator`.
"""
