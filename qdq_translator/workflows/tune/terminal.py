"""Terminal output of `tune`."""

from __future__ import annotations

from typing import Any

from qdq_translator.output.report.tuning import table as rows_of


def print_outcome(results: dict[str, Any]) -> None:
    """The Pareto front as a table, the best point, and the command that makes it again."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from qdq_translator.core.words import counted

    console = Console(highlight=False)
    metric, data, best = results["metric"], results["data"], results["best"]
    name = metric["name"].replace("\\", "/").rpartition("/")[2]
    console.print(
        f"[bold]{escape(results['model']['file'])}[/bold]: {escape(name)} = {metric['reference']:.6g} as given, on "
        f"{counted(data['samples'], 'sample')}; {counted(results['evaluations'], 'evaluation')}"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("")
    for heading in ("estimated ms", "GPU layers", "MACs in INT8", name.rpartition(":")[2], "drop"):
        table.add_column(heading, justify="right")
    table.add_column("other than the row above", overflow="fold")
    for row, cells in zip(results["front"], rows_of(results["front"])):
        table.add_row("->" if row == best else "", *map(escape, cells), style="bold" if row == best else "")
    console.print(table)
    console.print(f"Early stopping: {results['early_stopping']}.")
    for row in results["additivity"]:
        console.print(
            f"{counted(row['tensors'], 'layer')} in FP16 should remove {100 * row['expected_share']:.0f}% of the noise energy by the "
            f"noise account; measured: {100 * row['measured_share']:.0f}%."
        )
    for note in data["notes"]:
        console.print(f"note: {escape(note)}")
    console.print(f"-> was written; the same again: {escape(results['command'])}", soft_wrap=True)
