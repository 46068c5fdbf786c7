"""The Python API: one function a command, with keyword arguments, arrays and callables in the place of files and flags.

Imports commands and workflows: the options, defaults and checks are the commands' own. Gives what `qdq_translator` exports.
"""
