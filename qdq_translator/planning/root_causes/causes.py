"""Causes with the tensors that follow from them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Iterable, Optional

from qdq_translator.core.formats.report_rows import FoundCauses, RootCause
from qdq_translator.targets.macs import total
from qdq_translator.targets.precision import LayerPlan


@dataclasses.dataclass(frozen=True)
class RootCauses(FoundCauses):
    """root_of: missing tensor -> its root."""

    root_of: dict[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def by_tensor(self) -> dict[str, RootCause]:
        return {cause.tensor: cause for cause in self.causes}

    @property
    def found(self) -> FoundCauses:
        """Their form in the report."""
        return FoundCauses(self.causes, self.groups, self.what_if)


def add_macs(layers: Iterable[LayerPlan]) -> Optional[int]:
    """The sum; None if one is unknown."""
    return total(layer.macs for layer in layers)
