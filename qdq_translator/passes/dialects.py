"""Rule Q13: other quantized forms become Q/DQ pairs before any other pass sees the network."""

from __future__ import annotations

from qdq_translator.core.words import counted
from qdq_translator.passes.cleanup import remove_dead_nodes
from qdq_translator.quantizers.dialects import convert
from qdq_translator.quantizers.refused import refusal
from qdq_translator.scales.network import Network


def convert_dialects(network: Network) -> None:
    """Raises UnsupportedQuantizer for what cannot be converted."""
    converted = convert(network.graph)
    if converted.rejected:
        raise refusal(converted.rejected)
    for name, count in converted.dialects.items():
        what = f"{name}: {counted(count, 'operator')} converted into QuantizeLinear/DequantizeLinear form before the translation."
        network.diagnostics.info("Q13", what, data={"dialect": name, "operators": count})
    if converted.dialects:
        remove_dead_nodes(network.graph)
