"""Applied and skipped rewrites of `--dla_rewrites`. The rules are in `passes/dla/`, needed only for a DLA target."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.words import others
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.passes.cleanup import fold_constants, fold_integers
from qdq_translator.translation.scales.network import Applied, Network, followed
from qdq_translator.translation.targets.settings import Settings

if TYPE_CHECKING:
    from qdq_translator.translation.targets.cost.estimate import Original
    from qdq_translator.translation.targets.dla.verdicts import DlaPlan


@dataclasses.dataclass(frozen=True)
class Rewrites:
    """Rewrites of the finished network. applied: in order. reasons: node -> why it was left. tried: the rules were
    evaluated."""

    applied: tuple[Applied, ...] = ()
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tried: bool = False

    @property
    def nodes(self) -> dict[str, list[str]]:
        """Node that was removed, or changed its operator -> the nodes that replace it."""
        return followed({old: [node.name for node, _ in a.after] for a in self.applied for old, _ in a.before})

    @property
    def tensors(self) -> dict[str, list[str]]:
        """Removed tensor -> the tensors that hold its values."""
        return followed({old: new for a in self.applied for old, new in a.tensors.items()})

    def left(self, dla: Optional[DlaPlan]) -> list[rows.Left]:
        """Layers still on the GPU: name, operator, the limit, and why no rule applied ('' if there is none)."""
        if dla is None or not dla.fallbacks:
            return []
        from qdq_translator.translation.passes.dla import NO_REWRITE

        found = []
        for layer in dla.fallbacks:
            limits = "; ".join(f"{f.limit} {f.text}" for f in layer.findings if f.effect == "gpu")
            why = self.reasons.get(layer.name) or NO_REWRITE.get(layer.op) or self._by_limit(layer)
            found.append(rows.Left(layer.name, layer.op, limits, why))
        return found

    def _by_limit(self, layer: rows.Verdict) -> str:
        from qdq_translator.translation.targets.dla.limits import BY_ID

        kept = [BY_ID[f.limit].stays for f in layer.findings if f.effect == "gpu" and BY_ID[f.limit].stays]
        return kept[0] if kept and self.tried else ""

    def row(self, dla: Optional[DlaPlan]) -> rows.Rewrites:
        return rows.Rewrites(tuple(a.row() for a in self.applied), self.nodes, self.tensors, tuple(self.left(dla)))


def rewrite_for_dla(network: Network, settings: Settings) -> None:
    """Apply every rule once, in place. With `force` on a GPU target the limits of Orin's DLA apply."""
    mode = settings.rewrites
    if mode == "off":
        return
    generation = settings.hardware.generation
    if not generation and mode != "force":
        network.diagnostics.info(
            "D0",
            "--dla_rewrites does nothing for the target gpu.",
            hint="Select the DLA with --on dla, or use --dla_rewrites force.",
        )
        return
    from qdq_translator.translation.passes import dla  # imported here, because translation for a GPU does not need it

    if generation and network.original is None:
        network.original = priced(network, settings)
    dla.apply_rules(network, settings, generation or "orin")


def priced(network: Network, settings: Settings) -> Original:
    """The network as it is now on the GPU, of an open batch for one sample; without the computations on shapes, which
    TensorRT folds, if those make a shape unknown."""
    from qdq_translator.translation.targets.cost.estimate import original_on_gpu

    found = original_on_gpu(network.graph, network.planned_types, settings.gpu)
    if found.whole is None and network.graph.of("Shape"):
        graph = Graph.from_model(network.graph.to_model())
        sizes = {**network.input_shapes, **network.types.open_batches()}
        fold_integers(graph, TensorTypes(graph, sizes))
        fold_constants(graph, ())
        found = original_on_gpu(graph, TensorTypes(graph, sizes), settings.gpu)
    return found


def report_left(
    rewrites: Rewrites, dla: Optional[DlaPlan], diagnostics: Diagnostics, would: Optional[Sequence[str]]
) -> None:
    """Report layers that may not build, and those left for the GPU: after rewriting, or (would) without it, with the
    rules that would apply."""
    for doubt in dla.doubts if dla is not None else ():
        diagnostics.warning("D0", doubt, hint="Build it on the board first; --on gpu does not depend on it.")
    left = rewrites.left(dla)
    if dla is None or not left:
        return
    first = left[0]
    what = f"{first.op} '{first.node}'{others(left, ' and {} more layers')}"
    goes = "go" if len(left) > 1 else "goes"
    if would is None:
        message = f"After rewriting, {what} still {goes} to the GPU: {first.why or first.limit}."
        hint = "'qdq-translator translate --parts' cuts a part for the DLA out that has none of them."
    else:
        message = f"{what} {goes} to the GPU: {first.limit}."
        hint = f"--dla_rewrites would apply {', '.join(would)}." if would else ""
    diagnostics.info("D0", message, node=first.node, hint=hint, data={"left": plain(left)})
