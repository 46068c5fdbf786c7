"""Two translations side by side, for a terminal of 80 columns."""

from __future__ import annotations

from typing import Any, Optional

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.words import counted, milliseconds
from qdq_translator.output.report.tables import SHOWN, cut, table_of, title


def print_comparison(comparison: dict[str, Any], everything: bool = False) -> None:
    """comparison: from `changes.compare`."""
    console = Console(highlight=False)
    a, b = comparison["a"], comparison["b"]
    for letter, side in (("A", a), ("B", b)):
        options = " ".join(side["options"]) or "default options"
        console.print(f"[bold]{letter}[/bold]  {escape(side['name'])}: {escape(options)}", soft_wrap=True)
    if not comparison["same_source"]:
        console.print("The two were made from different files.", style="yellow")
    layers, scales = comparison["layers"], comparison["scales"]
    table = table_of("", "A", "B", right=(1, 2))
    on_dla = " on the DLA" if a["target"] == b["target"] != "gpu" else ""
    for key, what in (("macs_share", "MACs"), ("layers_share", "layers")):
        table.add_row(f"{what} in INT8{on_dla}", _share(a[key]), _share(b[key]))
    if None not in (a["milliseconds"], b["milliseconds"]):
        table.add_row("estimated time", milliseconds(a["milliseconds"]), milliseconds(b["milliseconds"]))
    if a["gpu_layers"] or b["gpu_layers"]:
        table.add_row("layers on the GPU", str(a["gpu_layers"]), str(b["gpu_layers"]))
    table.add_row("tensors with a scale", str(a["scales"]), str(b["scales"]))
    console.print(table)
    only = (
        f"; {layers['only_a']} only in A, {layers['only_b']} only in B" if layers["only_a"] or layers["only_b"] else ""
    )
    title(console, f"{len(layers['changed'])} of {counted(layers['union'], 'layer')} run differently{only}")
    rows = layers["changed"] if everything else layers["changed"][:SHOWN]
    table = table_of("layer", "operator", "A", "B", ratios=(3, 0, 2, 2))
    for row in rows:
        table.add_row(escape(row["name"]), escape(row["op"]), row["a"] or "not there", row["b"] or "not there")
    cut(table, len(layers["changed"]), everything)
    if rows:
        console.print(table)
    title(console, f"{counted(len(scales), 'scale')} {'differs' if len(scales) == 1 else 'differ'}")
    table = table_of("tensor", "A", "B", right=(1, 2), ratios=(1, 0, 0))
    for row in scales if everything else scales[:SHOWN]:
        table.add_row(escape(row["tensor"]), *("none" if row[key] is None else f"{row[key]:.6g}" for key in "ab"))
    cut(table, len(scales), everything)
    if scales:
        console.print(table)
    if comparison["worse"]:
        console.print(f"B is worse than A: {escape(comparison['worse'])}.", style="yellow", soft_wrap=True)


def print_engines(compared: dict[str, Any], everything: bool = False) -> None:
    """compared: what `changes.compare_engines` gives."""
    console = Console(highlight=False)
    rows, (a, b) = compared["layers"], compared["milliseconds"]
    times = f"; {milliseconds(a)} in A, {milliseconds(b)} in B" if None not in (a, b) else ""
    title(
        console,
        f"Engines A and B: {counted(compared['differ'], 'layer')} in another precision or on another device{times}",
    )
    table = table_of("layer", "A", "B", "ms in A", "in B", right=(3, 4), ratios=(1, 0, 0, 0, 0))
    for row in rows if everything else rows[:SHOWN]:
        sides = (row["a"], row["b"])
        words = (" ".join(filter(None, (side["actual"] or side["verdict"], side["device"]))) for side in sides)
        times_ = ("" if side["milliseconds"] is None else f"{side['milliseconds']:.3f}" for side in sides)
        table.add_row(escape(row["name"]), *words, *times_)
    cut(table, len(rows), everything)
    if rows:
        console.print(table)


def _share(value: Optional[float]) -> str:
    return "unknown" if value is None else f"{value:.1f}%"
