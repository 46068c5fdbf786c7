"""Scales that came with a float model, from a calibration cache: observed as if quantizers of the model had them (rule Q1)."""

from __future__ import annotations

from typing import Mapping

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.words import others
from qdq_translator.ir.graph import Graph
from qdq_translator.scales.network import Network
from qdq_translator.scales.table import Origin

_TOO_FEW = 0.2
"""Share of the cache's names, and of the network's tensors, below which the cache was made for another network."""


def observe_scales(network: Network, scales: Mapping[str, float], source: str = "calibration cache") -> None:
    """scales: tensor -> scale, of `source`. Raises UserError for a cache of another network, and for scales of 0, infinity or NaN."""
    graph, types = network.graph, network.types
    tensors = {name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)}
    found = [name for name in scales if name in tensors]
    if len(found) < _TOO_FEW * min(len(scales), len(tensors)) or not found:
        raise UserError(
            f"{len(found)} of the {len(scales)} names in the {source} are among the {len(tensors)} tensors of the model.",
            "Give the model that they were made for (names must be those of the ONNX file).",
        )
    bad = [name for name in found if not is_usable(scales[name])]
    if bad:
        raise UserError(
            f"The {source} has the scale {scales[bad[0]]:g} for tensor '{bad[0]}'{others(bad)}.",
            "A scale is a positive normal number: calibrate again, or remove these lines and let the rules give a scale.",
        )
    for name in found:
        if not is_unary_marker(graph, name, scales[name]):
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
