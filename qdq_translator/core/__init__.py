"""Errors, diagnostics, the registry of rules, options, file formats, progress and worker processes.

Imports no other folder. Provides the error types that commands print, the options, and guarded reading and writing.
"""
