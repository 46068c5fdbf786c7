"""Rules Q13 and Q14: other quantized forms, and scales in a file, become Q/DQ pairs before any other pass sees the network."""

from __future__ import annotations

from typing import Optional

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import counted
from qdq_translator.passes.cleanup import remove_dead_nodes
from qdq_translator.quantizers.dialects import convert
from qdq_translator.quantizers.refused import refusal
from qdq_translator.quantizers.sidecars import apply_scales
from qdq_translator.scales.network import Network

_SHOWN = 3


def convert_dialects(network: Network, sidecar: Optional[str]) -> None:
    """sidecar: a file of scales. Raises UnsupportedQuantizer for what cannot be converted, UserError as `apply_scales` does."""
    converted = convert(network.graph)
    if converted.rejected:
        raise refusal(converted.rejected)
    for name, count in converted.dialects.items():
        what = f"{name}: {counted(count, 'operator')} converted into QuantizeLinear/DequantizeLinear form before the translation."
        network.diagnostics.info("Q13", what, data={"dialect": name, "operators": count})
    if converted.dialects:
        remove_dead_nodes(network.graph)
    if sidecar is not None:
        _apply(network, sidecar, network.diagnostics)


def _apply(network: Network, path: str, diagnostics: Diagnostics) -> None:
    covered = apply_scales(network.graph, path)
    share = 100 * covered.tensors / max(covered.of, 1)
    diagnostics.info(
        "Q14",
        f"{path} ({covered.format}) has scales of {covered.tensors} of {counted(covered.of, 'float tensor')} ({share:.0f}%) and of "
        f"{counted(covered.weights, 'weight')}.",
        data={"format": covered.format, "covered": covered.tensors, "of": covered.of, "weights": covered.weights},
    )
    if covered.unknown:
        names = ", ".join(f"'{name}'" for name in covered.unknown[:_SHOWN]) + (
            ", ..." if len(covered.unknown) > _SHOWN else ""
        )
        diagnostics.warning(
            "Q14",
            f"{counted(len(covered.unknown), 'name')} in {path} match no float tensor of the model: {names}.",
            hint="Names must be those of the ONNX file that the scales were made for.",
            data={"unknown": covered.unknown},
        )
