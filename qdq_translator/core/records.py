"""Another name of `dataclasses.dataclass`, for branches that were begun before it was dropped."""

from dataclasses import dataclass as record

__all__ = ["record"]
