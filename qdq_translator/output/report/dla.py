"""The network on the DLA, as rows: the violated limits, the layers on the GPU, and the subgraphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from qdq_translator.core.formats.report_rows import Finding, Report, Verdict
from qdq_translator.output.report.model import Layer, Network

Found = Tuple[Verdict, Finding]


def by_limit(layers: Sequence[Verdict]) -> dict[str, list[Found]]:
    """Limit -> (row of `dla.layers`, its finding) for every layer that does not keep it, in order of appearance."""
    found: dict[str, list[Found]] = {}
    for row in layers:
        for finding in row.findings:
            found.setdefault(finding.limit, []).append((row, finding))
    return found


@dataclass(frozen=True)
class Limit:
    """A limit with the layers that do not keep it. finding: that of the first of them."""

    id: str
    finding: Finding
    layers: list[Layer]


@dataclass(frozen=True)
class Fallback:
    """A layer on the GPU, the findings that cause it, and why no rewrite applied ('' if none was tried)."""

    layer: Layer
    findings: list[Finding]
    why: str


@dataclass(frozen=True)
class Subgraph:
    """One loadable. milliseconds: of its layers; None if one has no estimate."""

    number: int
    layers: list[Layer]
    milliseconds: Optional[float]

    @property
    def int8(self) -> int:
        return sum(layer.device == "dla-int8" for layer in self.layers)


@dataclass(frozen=True)
class Dla:
    limits: list[Limit]
    fallbacks: list[Fallback]
    subgraphs: list[Subgraph]


def dla_rows(report: Report, network: Network) -> Optional[Dla]:
    """None without a DLA as target."""
    if report.dla is None:
        return None
    rows = report.dla.layers
    layers = {row.name: layer for row, layer in zip(rows, network.layers)}
    why = {row.node: row.why for row in report.dla_rewrites.left}
    subgraphs: dict[int, list[Layer]] = {}
    for row in rows:
        if row.subgraph >= 0:
            subgraphs.setdefault(row.subgraph, []).append(layers[row.name])
    return Dla(
        [Limit(key, found[0][1], [layers[row.name] for row, _ in found]) for key, found in by_limit(rows).items()],
        [
            Fallback(
                layers[row.name],
                [finding for finding in row.findings if finding.effect == "gpu"],
                why.get(row.name, ""),
            )
            for row in rows
            if row.verdict == "gpu"
        ],
        [Subgraph(number, found, _time(found)) for number, found in subgraphs.items()],
    )


def _time(layers: list[Layer]) -> Optional[float]:
    times = [layer.milliseconds for layer in layers if layer.cost and not layer.cost.fused_into]
    known = [time for time in times if time is not None]
    return sum(known) if known and len(known) == len(times) else None
