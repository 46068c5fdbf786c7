"""Rules Q13 and Q14: other quantized forms, and scales in a file, become Q/DQ pairs before all other passes; scales of
a calibration cache for a float model are observed (rule Q1)."""

from __future__ import annotations

from typing import Mapping, Optional

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.words import counted, others
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes.cleanup import remove_dead_nodes
from qdq_translator.translation.quantizers.dialects import convert
from qdq_translator.translation.quantizers.parameters import refusal
from qdq_translator.translation.quantizers.sidecars import apply_scales, check_names
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.scales.table import Origin


def convert_dialects(network: Network, sidecar: Optional[str]) -> None:
    """Convert all dialects and the scales of a file. sidecar: that file. Raises UnsupportedQuantizer if not
    convertible, UserError as `apply_scales` does."""
    converted = convert(network.graph)
    if converted.rejected:
        raise refusal(converted.rejected)
    for name, count in converted.dialects.items():
        what = (
            f"{name}: {counted(count, 'operator')} converted into QuantizeLinear/DequantizeLinear form before the "
            "translation."
        )
        network.diagnostics.info("Q13", what, data={"dialect": name, "operators": count})
    if converted.dialects:
        remove_dead_nodes(network.graph)
    if sidecar is not None:
        apply_scales(network.graph, sidecar, network.diagnostics)


# ---------------- given scales


def observe_scales(network: Network, scales: Mapping[str, float], source: str) -> None:
    """Observe given scales. scales: tensor -> scale, from `source`. Raises UserError for a cache of another network,
    and for scales of 0, infinity or NaN.
    """
    graph, types = network.graph, network.types
    tensors = {name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)}
    check_names(scales, graph, f"the {source}")
    found = [name for name in scales if name in tensors]
    if not found:
        raise UserError(f"The {source} has no scale for a float tensor of the model.", "Calibrate the model again.")
    bad = [name for name in found if not is_usable(scales[name])]
    if bad:
        raise UserError(
            f"The {source} has the scale {scales[bad[0]]:g} for tensor '{bad[0]}'{others(bad)}.",
            "A scale is a positive normal number: calibrate again, or remove these lines and let the rules give a "
            "scale.",
        )
    for name in found:
        if not is_unary_marker(graph, name, scales[name]):  # a marker is not a range
            network.scales.observe(name, scales[name], Origin("Q1", "", name, source))


def is_unary_marker(graph: Graph, name: str, scale: float) -> bool:
    """Rule S9 in a graph: exactly 1.0 on a Conv output that only a two-input Add reads."""
    producer, reader = graph.producer.get(name), graph.only_consumer(name)
    return (
        scale == 1.0
        and producer is not None
        and producer.is_op("Conv")
        and reader is not None
        and reader.is_op("Add")
        and len(set(reader.inputs)) == 2
    )
