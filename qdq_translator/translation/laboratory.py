"""What a translation asks to be measured. The wing `lab` measures in ONNX Runtime; the caller passes it in."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Protocol, Sequence, Tuple

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.translation.ir.bounds import Range
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.scales.inference.context import Context
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.settings import Settings


class Observer(Protocol):
    """Scales from data. A call gives any number of scales (rule K1) and returns whether it gave any."""

    def recalibrate(self, context: Context) -> None:
        """Replaces the scales that `--recalibrate` names."""

    def __call__(self, context: Context) -> bool: ...


class Laboratory(Protocol):
    """Measurements of one translation. Every method raises UserError for data that do not fit the network, and
    MissingDependency without ONNX Runtime."""

    def samples(self, graph: Graph, settings: Settings) -> Any:
        """The calibration data of `settings.calibration`, read for the inputs of `graph`."""

    def observer(self, settings: Settings, samples: Any, diagnostics: Diagnostics) -> Observer:
        """The source of scales from `samples`."""

    def refit(self, network: Network, settings: Settings, samples: Any) -> None:
        """Applies `--equalize` and `--unify_scales requantize` to the network."""

    def exceeded(self, network: Network, samples: Any, ranges: Mapping[str, Range]) -> Mapping[str, Tuple[bool, bool]]:
        """Tensor -> whether its values in `samples` exceed the lower and the upper end of its range, by more than
        rounding."""

    def check_function(self, source: Network, network: Network, settings: Settings) -> None:
        """Rule V1: `network` computes the function of the model, `source` before its quantizers are removed."""

    def check_pairs(
        self, network: Graph, explicit: Graph, shapes: Mapping[str, Sequence[int]], diagnostics: Diagnostics
    ) -> None:
        """Rule V1: `explicit` is `network` with Q/DQ."""


def needed(lab: Optional[Laboratory]) -> Laboratory:
    """The laboratory; calibration is wrong usage of the translation wing without one."""
    if lab is None:
        raise ValueError("--calibrate measures: pass a laboratory (`qdq_translator.lab.laboratory`)")
    return lab
