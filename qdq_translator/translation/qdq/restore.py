"""Restore an explicit Q/DQ model from a float network and its scales.

1. Every tensor that is quantized according to `placement` gets one QuantizeLinear -> DequantizeLinear pair for all its
   consumers; a graph output keeps its name (the pair is before it).
2. Weights of INT8 layers get a pair per output channel: `scale = max|w| / 127`, quantized values [-127, 127] (fact 5.1,
   5.2). The float weights before it do not change.
   - Weights that are already on an int8 grid (baked ones) and reach +-127 in a channel are restored bit for bit:
     `max|w| / 127` in float32 can miss the grid's own scale s by one unit in the last place (the product 127*s errs by
     at most 2^-17 for s in [1, 2), which is 2^-23.99 after the division), so the neighbours are tried as well. Other
     weights move to the new grid, which a second round trip preserves.
   - ONNX has one scale per index of one axis. A grouped ConvTranspose has its output channels on axis 1 in every group:
     groups share the larger scale there (as in every exporter), while TensorRT's implicit mode distinguishes them.
3. Layers in the layer argument stay float: neither their weights nor tensors that only they read get a pair.
4. The scale 1.0 between a Conv and the Add that is its only reader is NVIDIA's unary marker (rule S9), not a range: no
   pair. `translate --add_unary_ew_scales_for_dla` adds it again.
5. A scale specified by the translated model is restored, even before a bias, where rule 1 inserts no pair. A network
   with no pair left is an error.

Float16 tensors have float16 scales (opset 19); if a scale is not a normal float16 number, the pair works in float32
between Casts. Per-channel Q/DQ needs opset 13; older models are converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Container, Mapping, Optional

import numpy as np
import onnx
from onnx import TensorProto

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.translation.ir.constants import is_quantizer
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import output_channels
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.validate import validate
from qdq_translator.translation.passes import cleanup, names
from qdq_translator.translation.passes.dialects import is_unary_marker
from qdq_translator.translation.planning.placement import Placement, place
from qdq_translator.translation.qdq.pairs import SMALLEST_FLOAT16, pair, weight_scales, with_opset
from qdq_translator.translation.quantizers.sidecars import check_names

PER_CHANNEL_OPSET = 13
FLOAT16_OPSET = 19

# Status of an entry of the cache ...
USED, UNKNOWN, UNUSABLE, NOT_FLOAT, UNARY = "used", "unknown", "unusable", "not_float", "unary"
# ... and of a float tensor of the model
GIVEN, STAYS_FLOAT, WITHOUT_SCALE = "given", "stay_float", "without_scale"


@dataclass
class Restored:
    """An explicit model and the status of the cache.

    entries: every entry of the cache -> `USED`, `UNKNOWN` (names no tensor), `UNUSABLE` (zero, infinite, NaN or
    negative), `NOT_FLOAT` (integers and constants) or `UNARY` (rule 4). tensors: every float tensor that a layer reads
    or that has a scale -> `GIVEN` (it has a pair), `STAYS_FLOAT` (only float layers read it) or `WITHOUT_SCALE`.
    weights: name -> whether the groups of a ConvTranspose share its scales. unknown_layers: names in the layer argument
    that no node has.
    """

    model: onnx.ModelProto
    entries: dict[str, str]
    tensors: dict[str, str]
    weights: dict[str, bool]
    unknown_layers: list[str]

    def all(self, *kinds: str) -> list[str]:
        """Names of that kind, in the order of the cache or of the graph."""
        return [name for table in (self.entries, self.tensors) for name, kind in table.items() if kind in kinds]


def restore(
    model: onnx.ModelProto,
    scales: Mapping[str, float],
    precisions: Mapping[str, str] = {},
    stated: AbstractSet[str] = frozenset(),
) -> Restored:
    """Add Q/DQ pairs to a float model, which is consumed. `scales`: tensor -> scale as in a calibration cache;
    `precisions`: layer -> precision. stated: tensors quantized by the translated model itself; they always get a pair
    (rule 5).

    Raises UserError if the model already has Q/DQ, if no scale fits it, or if its opset cannot be raised.
    """
    graph = _readied(model)
    types = TensorTypes(graph)
    entries = {name: _classify(name, scale, graph, types) for name, scale in scales.items()}
    check_names(scales, graph, "the calibration cache")
    used = {name: float(np.float32(scales[name])) for name in graph.tensors() if entries.get(name) == USED}
    placement = place(graph, types, used, precisions, explicit=True)
    held = {name: scale for name, scale in used.items() if name in placement.held or name in stated}
    if not held:
        raise UserError(
            "No tensor of the model would get Q/DQ: its scales are unusable, or only layers that stay float read them.",
            "Check the cache and the layer argument.",
        )
    tensors = _statuses(graph, types, used, held, placement)
    unknown_layers = sorted(set(precisions) - {n.name for n in graph.nodes} - {"*"})
    quantizers = _Quantizers(graph, types)
    weights = quantizers.weights(placement)
    for name, scale in held.items():
        quantizers.tensor(name, scale)
    return Restored(graph.to_model(), entries, tensors, weights, unknown_layers)


def _readied(model: onnx.ModelProto) -> Graph:
    """The model in an opset that has the Q/DQ needed, with a name for each node."""
    graph = Graph.from_model(model)
    validate(graph)
    graph = with_qdq_opset(graph)
    for node in graph.nodes:
        if is_quantizer(node):
            raise UserError(
                f"The model already has Q/DQ nodes ({node.label}).", "Give a float model, such as NAME_noqdq.onnx."
            )
        if not node.name and node.outputs:
            node.name = f"node_of_{node.outputs[0]}"  # TensorRT's name for it (fact 4.3)
    names.name_nodes(graph, Diagnostics())
    cleanup.constants_to_initializers(graph)
    return graph


def _statuses(
    graph: Graph, types: TensorTypes, used: Container[str], held: Container[str], placement: Placement
) -> dict[str, str]:
    """`Restored.tensors`."""
    found: dict[str, str] = {}
    for name in graph.tensors():
        if name in held:
            found[name] = GIVEN
        elif name in used:
            found.update({} if name in placement.fused else {name: STAYS_FLOAT})
        elif types.is_float(name) and not graph.is_constant(name) and name not in graph.outputs:
            found[name] = WITHOUT_SCALE
    return found


def _classify(name: str, scale: float, graph: Graph, types: TensorTypes) -> str:
    """Status of a cache entry."""
    if name not in graph.producer and name not in graph.inputs:
        return UNKNOWN
    if not is_usable(scale):
        return UNUSABLE
    if is_unary_marker(graph, name, scale):
        return UNARY
    return USED if types.is_float(name) and not graph.is_constant(name) else NOT_FLOAT


def with_qdq_opset(graph: Graph) -> Graph:
    """Convert to an opset with the Q/DQ needed. Raises ModelError if it cannot be converted."""
    half = TensorProto.FLOAT16
    uses_half = any(tensor.data_type == half for tensor in graph.initializers.values()) or any(
        v.type.tensor_type.elem_type == half for v in (*graph.inputs.values(), *graph.outputs.values())
    )
    wanted = FLOAT16_OPSET if uses_half else PER_CHANNEL_OPSET
    if graph.opset() >= wanted:
        return graph
    return with_opset(graph, wanted, f"Q/DQ {'in float16' if uses_half else 'per channel'}")


class _Quantizers:
    """Inserts pairs into a graph; they share the zero point."""

    def __init__(self, graph: Graph, types: TensorTypes) -> None:
        self.graph, self.types = graph, types
        self._zero = ""
        self._pairs: dict[tuple[str, int], str] = {}

    def tensor(self, name: str, scale: float) -> None:
        """One pair behind `name` for all its readers (rule 3 excludes none: see placement)."""
        graph = self.graph
        half = self.types.elem_type(name) == TensorProto.FLOAT16
        if name in graph.outputs and name in graph.producer:  # not a graph input that is an output too
            source, target = graph.before_output(name), name
        else:
            source, target = name, graph.unique_name(f"{name}_dequantized")
        readers = graph.consumers(source)
        value = np.asarray(scale, np.float32)
        direct_half = half and float(np.float16(scale)) == scale and scale >= SMALLEST_FLOAT16
        if direct_half:
            value = value.astype(np.float16)
        nodes = self._pair(source, target, name, value, None, casts=half and not direct_half)
        graph.insert_behind(source, nodes)
        for reader in readers:
            graph.replace_use(reader, source, target)

    def weights(self, placement: Placement) -> dict[str, bool]:
        """A pair for every (weight, axis) of an INT8 layer; layers that share a weight share the pair. Returns
        `Restored.weights`."""
        graph = self.graph
        done: dict[str, bool] = {}
        for node in list(graph.nodes):
            for index, name in enumerate(list(node.inputs)):
                if (node.name, index) not in placement.weights:
                    continue
                values = graph.array(name)
                channels = output_channels(node, index, len(graph.initializers[name].dims))
                if values is None or channels is None or values.dtype not in (np.float32, np.float16):
                    continue
                axis = channels.axis
                if (name, axis) not in self._pairs:
                    self._pairs[name, axis] = self._weight_pair(name, values, axis)
                graph.set_input(node, index, self._pairs[name, axis])
                done[name] = done.get(name, False) or channels.groups > 1
        return done

    def _weight_pair(self, name: str, values: np.ndarray, axis: int) -> str:
        graph = self.graph
        scale = weight_scales(values, axis)
        casts = scale.dtype != values.dtype
        source, target = name, graph.unique_name(f"{name}_dequantized")
        if casts and graph.consumer_count(name) == 1:
            # behind a Cast, a weight has the name of the tensor that its layer reads
            source, target = graph.unique_name(f"{name}_float16"), name
            graph.drop_initializer(name)
            graph.add_initializer(source, values)
        graph.insert_behind(source, self._pair(source, target, name, scale, axis, casts))
        return target

    def _pair(
        self, source: str, target: str, base: str, scale: np.ndarray, axis: Optional[int], casts: bool
    ) -> list[Node]:
        graph = self.graph
        scale_name = graph.constant(f"{base}_scale", scale)
        if axis is None:
            self._zero = self._zero or graph.constant("zero_point", np.asarray(0, np.int8))
            zero = self._zero
        else:
            zero = graph.constant(f"{base}_zero_point", np.zeros(scale.shape, np.int8))
        parameters = [scale_name, zero]
        if not casts:
            return pair(graph, source, target, base, parameters, axis)
        wide, real = graph.unique_name(f"{base}_float32"), graph.unique_name(f"{base}_dequantized32")
        names = (graph.unique_name(f"{base}_Cast"), graph.unique_name(f"{base}_Cast"))
        return [
            Node("Cast", [source], [wide], names[0], to=TensorProto.FLOAT),
            *pair(graph, wide, real, base, parameters, axis),
            Node("Cast", [real], [target], names[1], to=TensorProto.FLOAT16),
        ]
