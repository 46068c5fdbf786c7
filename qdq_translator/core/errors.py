"""Errors that end the program with a message.

Every error names problem, location (node and tensor) and remedy, in one or two sentences. The command line prints it on
stderr without a traceback and exits with `exit_status`.
"""

from __future__ import annotations

import importlib
from typing import Any


class UserError(Exception):
    """The model, a file or a threshold is at fault; the message contains the remedy."""

    exit_status = 1

    def __init__(self, what: str, hint: str = "") -> None:
        self.what = what
        self.hint = hint
        super().__init__(f"{what} {hint}".strip())


class UsageError(UserError, ValueError):
    """An option is at fault, on the command line or in Python."""

    exit_status = 2


class ModelError(UserError):
    """The ONNX file cannot be read, or is not a valid model."""


class UnsupportedQuantizer(UserError):
    """A quantizer that implicit INT8 cannot represent (docs/rules.md)."""


class MissingDependency(UserError):
    """A missing optional package that the request needs."""


def needed(module: str, what: str, remedy: str) -> Any:
    """The module of an optional package. Raises MissingDependency with these words."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(what, remedy) from error


def unexpected(error: Exception) -> str:
    """The message for an unexpected error."""
    if isinstance(error, (OSError, MemoryError)):
        return str(error) or type(error).__name__
    return f"unexpected {type(error).__name__}: {error}. This is a bug in qdq-translator; --verbose shows where."
