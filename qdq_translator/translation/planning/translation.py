"""A translation as a value, without the code that writes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Mapping, Optional

import onnx

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.calibration_cache import CalibrationCache, make_cache
from qdq_translator.core.formats.report_rows import FoundCauses, Origin, WeightCheck
from qdq_translator.core.options import TranslateOptions
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import Source
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.passes.rewrites import Rewrites
from qdq_translator.translation.scales.inference.unify import SharedRange
from qdq_translator.translation.scales.network import TrainedWeight
from qdq_translator.translation.scales.table import ASSUMED, ScaleTable
from qdq_translator.translation.targets.platforms import Hardware
from qdq_translator.translation.targets.precision import LayerPlan, asked

if TYPE_CHECKING:
    from qdq_translator.translation.targets.cost.estimate import CostPlan
    from qdq_translator.translation.targets.dla.verdicts import DlaPlan


@dataclass(frozen=True, eq=False, repr=False)
class Translated:
    """A translated model with all information needed for the report and the files."""

    name: str
    graph: Graph
    types: TensorTypes
    scales: ScaleTable
    plan: list[LayerPlan]
    diagnostics: Diagnostics
    options: TranslateOptions
    source: Source
    hardware: Hardware
    shared_ranges: list[SharedRange]
    dla: Optional[DlaPlan]
    costs: Optional[CostPlan]
    rewrites: Rewrites
    planned_types: TensorTypes
    """`Network.planned_types`: the shapes for which plan, limits and estimate are made."""
    automatic: dict[str, float] = field(default_factory=dict)
    weights: list[WeightCheck] = field(default_factory=list)
    causes: FoundCauses = field(default_factory=lambda: FoundCauses([], [], []))
    users_nodes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """`Network.users_nodes`."""
    trained: Mapping[str, TrainedWeight] = field(default_factory=dict)
    """`Network.trained`."""

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The stripped model: no Q/DQ, all tensors float."""
        return self.graph.to_model()

    @cached_property
    def tensor_scales(self) -> dict[str, float]:
        """Every float tensor of the stripped model that has a scale, in graph order: inputs, then node outputs."""
        given = [(name, self.scales.get(name)) for name in self.graph.tensors()]
        is_float = self.types.is_float
        return {n: s.value for n, s in given if s is not None and s.origin.rule != ASSUMED and is_float(n)}

    @cached_property
    def scale_origins(self) -> dict[str, Origin]:
        """Origins of `tensor_scales`, in the format of the files."""
        return {name: self.scales[name].origin.row() for name in self.tensor_scales}

    @property
    def assumed(self) -> bool:
        """Whether this is only a plan, with assumed scales."""
        return any(scale.origin.rule == ASSUMED for _, scale in self.scales.items())

    @property
    def fp16_nodes(self) -> list[str]:
        """Layers that consume a tensor without scale, in graph order, once each."""
        return [name for name, precision in self.layer_precisions.items() if precision == "fp16"]

    @property
    def layer_precisions(self) -> dict[str, str]:
        """The layer argument (`precision.asked`)."""
        return asked(self.plan, self.options.float_type)

    @property
    def gpu_nodes(self) -> list[str]:
        """Layers that the DLA could run and the plan leaves to the GPU (rule R1), in graph order."""
        layers = [] if self.dla is None else self.dla.layers
        return [row.name for row in layers if any(finding.limit == "V2" for finding in row.findings)]

    @cached_property
    def cache(self) -> CalibrationCache:
        """The scales for TensorRT: tensors of the model, then those of TensorRT's own network (rule S10)."""
        entries = {**self.tensor_scales, **self.automatic}
        return make_cache(self.hardware.cache_number, entries, entries, self.options.cache_algorithm)
