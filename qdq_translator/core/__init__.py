"""Shared by all folders: errors, diagnostics, the registry of rules, options, file formats, progress, worker processes.

Imports nothing of the package. Provides the error type that commands print, the table of rules and limits, guarded
reading and writing.
"""
