"""Reports for a terminal of 80 columns."""

from __future__ import annotations

from typing import Any


def print_short(summary: dict[str, Any], verbose: bool) -> None:
    """What `translate` says at its end."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    coverage, scales = summary["coverage"], summary["scales"]
    layers, macs = coverage["layers"], coverage["macs"]
    share = "unknown (dynamic shapes)" if macs["total"] is None else f"{percent(macs['int8'], macs['total'])} of MACs"
    console.print(f"[bold]{escape(summary['model'])}[/bold] -> {escape(summary['files']['model'])}")
    inferred = scales["total"] - scales["explicit"]
    console.print(
        f"  scales   {scales['total']} tensors ({scales['explicit']} from the model, {inferred} inferred"
        + (f", {scales['automatic']} more for TensorRT's own tensors)" if scales["automatic"] else ")")
    )
    console.print(f"  INT8     {layers['int8']} of {layers['total']} layers, {share}")
    console.print(f"  FP16     {summary['fp16_nodes']} layers in the layer argument")
    console.print(
        f"  weights  {summary['weights']['exact']} of {summary['weights']['total']} reproduce every trained code"
    )
    console.print(f"  header   {summary['cache_header']}")
    colours = {"warning": "yellow", "info": "cyan"}
    for item in summary["diagnostics"]:
        if item["severity"] == "info" and not verbose:
            continue
        mend = f" {item['mend']}" if item.get("mend") else ""
        console.print(f"  [{colours[item['severity']]}]{item['code']}[/] {escape(item['message'] + mend)}")
    notes = sum(item["severity"] == "info" for item in summary["diagnostics"])
    if notes and not verbose:
        console.print(f"  {notes} notes: --verbose, or qdq-translator report")


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"
