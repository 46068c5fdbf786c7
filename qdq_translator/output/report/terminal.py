"""A report for a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Iterable, Optional

from qdq_translator.core.rules import words
from qdq_translator.core.words import amount, counted, milliseconds, percent
from qdq_translator.output.report.data import inferred_by_rule, is_dynamic
from qdq_translator.output.report.dla import by_limit
from qdq_translator.output.report.tables import SHOWN, cut, indented, pairs, table_of, title
from qdq_translator.output.report.terminal_summary import outputs_of, print_diagnostics, verdict
from qdq_translator.targets.precision import LayerPlan

if TYPE_CHECKING:
    from rich.console import Console


def print_report(report: dict[str, Any], everything: bool = False) -> None:
    """All of a report; lists are cut after a few rows unless `everything`."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    plan = f"plan only, assuming that {report['assumption']}" if report["assumption"] else ""
    made_for = plan or f"cache TRT {report['cache_version']['number']}"
    console.print(f"[bold]{escape(report['model'])}[/bold]  target {report['target']}, {made_for}")
    if report["dla"]:
        rows = pairs()
        for label, text in verdict(report["dla"], report["cost"]):
            rows.add_row(label, text)
        if report["assumption"] and report["cost"]["fp16_milliseconds"] is not None:
            rows.add_row("in FP16", f"{milliseconds(report['cost']['fp16_milliseconds'])}, the same layers of the DLA")
        console.print(rows)
    else:
        _print_coverage(console, report)
    _print_causes(console, report, everything)
    _print_what_if(console, report)
    _print_layers(console, report, everything)
    if report["dla"]:
        _print_dla(console, report, everything)
    _print_rewrites(console, report["dla_rewrites"], everything, bool(report["assumption"]))
    if report["shared_ranges"]:
        _print_shared(console, report["shared_ranges"], everything)
    if not report["assumption"]:
        _print_scales(console, report, everything)
        _print_ends(console, report)
    chosen = [d for d in report["diagnostics"] if everything or d["severity"] != "info"]
    notes = len(report["diagnostics"]) - len(chosen)
    if chosen:
        title(console, "Diagnostics")
        print_diagnostics(console, chosen, "" if everything else "--all")
    if not everything:
        more = f" and {counted(notes, 'note')}" if notes else ""
        console.print(f"\n[dim]--all shows every layer{more}.[/dim]")


def _print_coverage(console: Console, report: dict[str, Any]) -> None:
    coverage = report["coverage"]
    table = table_of("", "total", "INT8", "by design", "avoidable", right=(1, 2, 3, 4))
    for name, label in (("layers", "layers"), ("macs", "MACs"), ("weights", "weights")):
        row = coverage[name]
        total = row["total"]
        cells = [amount(total)]
        for key in ("int8", "by_design", "avoidable"):
            part = row[key]
            cells.append(amount(part) if not total or part is None else f"{amount(part)}  {percent(part, total):>6}")
        table.add_row(label, *cells)
    console.print(table)
    macs = coverage["macs"]
    if macs["total"]:
        console.print(_bar(console, [macs["int8"], macs["by_design"], macs["avoidable"]], macs["total"]))
    elif macs["total"] is None:
        dynamic = [row["name"] for row in report["inputs"] if is_dynamic(row["shape"])]
        asked = f" Translate with --shapes NAME:DIMS for {', '.join(dynamic)}." if dynamic else ""
        console.print(
            f"MACs of {counted(macs['unknown_layers'], 'layer')} are unknown: dynamic shapes.{asked}", markup=False
        )


def _bar(console: Console, parts: list[int], total: int) -> str:
    """MACs as a bar of 60 cells that does not need colour to be read."""
    cells = "#+." if console.options.ascii_only else "█▒░"
    bar, used = "", 0
    for part, cell, colour in zip(parts, cells, ("green", "cyan", "yellow")):
        used += part
        width = round(60 * used / total) - sum(bar.count(c) for c in cells)
        bar += f"[{colour}]{cell * width}[/]" if width else ""
    return f" MACs {bar}\n      {cells[0]} INT8  {cells[1]} by design  {cells[2]} avoidable"


def _print_causes(console: Console, report: dict[str, Any], everything: bool) -> None:
    from rich.markup import escape

    causes, groups = report["root_causes"]["causes"], report["root_causes"]["groups"]
    if not causes:
        return
    total = report["coverage"]["macs"]["total"]
    avoidable = report["coverage"]["layers"]["avoidable"]
    title(
        console,
        f"Root causes: {counted(len(causes), 'tensor')} without scale behind {counted(avoidable, 'avoidable layer')}",
    )
    timed = any(group["milliseconds"] is not None for group in groups)
    table = table_of(
        "never quantized",
        "layers",
        *(["ms gained"] if timed else []),
        "MACs",
        "so far",
        "cure",
        right=(1, 2, 3, 4)[: 4 if timed else 3],
    )
    for group in groups if everything else groups[:SHOWN]:
        table.add_row(
            outputs_of(group["op"], len(group["tensors"])),
            str(group["layers"]),
            *([f"{group['milliseconds']:.3f}"] if timed else []),
            _gain(group["macs"], total),
            _gain(group["total_macs"], total),
            "\n".join(group["options"]) or "quantize in the model",
        )
    cut(table, len(groups), everything)
    console.print(table)
    if timed:
        console.print(f"  ms: {report['cost']['what']}", style="dim")
    # without --all one example a group: the tensor that gains most
    by_tensor = {cause["tensor"]: cause for cause in causes}
    firsts = [tensor for group in groups[:4] for tensor in group["tensors"][:1] if tensor in by_tensor]
    shown = causes if everything else [by_tensor[tensor] for tensor in firsts]
    for cause in shown:
        console.print(indented(f"{escape(cause['sentence'])} [dim]Cure: {escape(cause['cure'])}.[/dim]"))
    if len(causes) > len(shown):
        console.print(f"  ... and {counted(len(causes) - len(shown), 'tensor')} more", style="dim")


def _gain(macs: Optional[int], total: Optional[int]) -> str:
    if macs is None:
        return "?"
    return f"+{percent(macs, total)}" if total and macs else amount(macs) if macs else "-"


def _print_what_if(console: Console, report: dict[str, Any]) -> None:
    rows = report["root_causes"]["what_if"]
    if not rows:
        return
    title(console, "What further options would do")
    total = report["coverage"]["macs"]["total"]
    if report["dla"]:
        table = table_of("translate with", "INT8 layers", "MACs", "GPU", "ms", "bits lost", right=(1, 2, 3, 4, 5))
        told = report["dla"]["shares"]
        time = report["cost"]["milliseconds"]
        now = {"int8_layers": told["dla-int8"]["layers"], "int8_macs": told["dla-int8"]["macs"], "bits_lost": 0.0}
        now.update(options=["(as it is)"], gpu_layers=told["gpu"]["layers"], milliseconds=time)
        for row in (now, *rows):
            ms = "?" if row["milliseconds"] is None else f"{row['milliseconds']:.3f}"
            lost = f"{row['bits_lost']:.1f}" if row["bits_lost"] else "-"
            cells = (str(row["int8_layers"]), _part(row["int8_macs"], total), str(row["gpu_layers"]), ms, lost)
            table.add_row("\n".join(row["options"]), *cells)
        console.print(table)
        if time is not None:
            console.print(f"  ms: {report['cost']['what']}", style="dim")
        return
    table = table_of("translate with", "INT8 layers", "INT8 MACs", "scales", right=(1, 2, 3))
    table.add_row(
        "(as it is)",
        str(report["coverage"]["layers"]["int8"]),
        _part(report["coverage"]["macs"]["int8"], total),
        str(len(report["scales"])),
    )
    for row in rows:
        table.add_row(
            "\n".join(row["options"]), str(row["int8_layers"]), _part(row["int8_macs"], total), str(row["scales"])
        )
    console.print(table)


def _part(macs: Optional[int], total: Optional[int]) -> str:
    return percent(macs, total) if macs is not None and total else amount(macs)


def _print_layers(console: Console, report: dict[str, Any], everything: bool) -> None:
    from rich.markup import escape

    plan = [LayerPlan.from_dict(row) for row in report["plan"]]
    if everything:
        title(console, "Plan")
        timed = report["cost"] is not None
        more = ("ms", "bound by") if timed else ()
        ratios = (4, 0, 0, 0, *(0 for _ in more), 5)
        table = table_of(
            "layer", "op", "runs in", "MACs", *more, "reason", right=(3, 4) if timed else (3,), ratios=ratios
        )
        for row in plan:
            table.add_row(
                escape(row.name),
                escape(row.op),
                row.runs,
                _part_of(row),
                *(_cost_of(row) if timed else ()),
                escape(row.reason),
            )
        console.print(table)
        return
    avoidable = [row for row in plan if row.avoidable]
    avoidable.sort(key=lambda row: (-(row.milliseconds or 0), -(row.macs or 0)))
    if avoidable:
        title(console, "FP16 avoidable: layers in FP16 that need not be")
        _print_rows(console, report, avoidable, "because")
    longest = sorted((row for row in plan if row.milliseconds), key=lambda row: -(row.milliseconds or 0))
    if longest:
        title(console, "What takes the time")
        _print_rows(console, report, longest, "in")


def _print_rows(console: Console, report: dict[str, Any], rows: list[LayerPlan], last: str) -> None:
    """The first few of `rows`: with why each is in FP16 ('because'), or what each runs in ('in')."""
    from rich.markup import escape

    timed = report["cost"] is not None
    more = ("ms", "bound by") if timed else ()
    ratios = (4, 0, 0, *(0 for _ in more), 5 if last == "because" else 0)
    table = table_of("layer", "op", "MACs", *more, last, right=(2, 3) if timed else (2,), ratios=ratios)
    for row in rows[:SHOWN]:
        text = row.runs if last == "in" else f"'{row.cause}' has no scale" if row.cause else row.reason
        cells = _cost_of(row) if timed else ()
        table.add_row(escape(row.name), escape(row.op), _part_of(row), *cells, escape(text))
    cut(table, len(rows), False)
    console.print(table)


def _cost_of(row: LayerPlan) -> tuple[str, str]:
    """Milliseconds, and what bounds them, of a row of the plan."""
    cost = row.cost
    if not cost:
        return ("-", "")
    if cost["fused_into"]:
        return ("fused", "")
    if cost["milliseconds"] is None:
        return ("?", "")
    return (f"{cost['milliseconds']:.3f}", cost["bound"] or "in place")


def _part_of(row: LayerPlan) -> str:
    if row.macs is None:
        return "?"
    if not row.macs:
        return "-"
    return amount(row.macs) if row.macs_share is None else percent(row.macs_share, 1)


def _print_dla(console: Console, report: dict[str, Any], everything: bool) -> None:
    from rich.markup import escape

    dla = report["dla"]
    title(console, f"DLA ({dla['generation']}), predicted")
    if dla["counts"]["gpu"]:
        console.print("  Layers on the GPU are a build error where fallback is not allowed.", style="dim")
    console.print(f"  At most {dla['max_loadables']} subgraphs are loaded on a core.", style="dim")
    table = table_of("limit", "not kept by", "then", "source", ratios=(4, 4, 0, 3))
    for limit, rows in by_limit(dla["layers"]).items():
        finding = rows[0][1]
        name, found = rows[0][0]["name"], finding["found"]
        example = f"{_ops(row['op'] for row, _ in rows)}: '{name}'" + (
            f" ({found})" if found != rows[0][0]["op"] else ""
        )
        then = "GPU" if finding["effect"] == "gpu" else "FP16"
        mark = "" if finding["status"] == "documented" else " [inferred]"
        table.add_row(f"{limit} {finding['text']}", escape(example), then, escape(finding["source"] + mark))
    if table.row_count:
        console.print(table)
    fallbacks = [row for row in dla["layers"] if row["verdict"] == "gpu"]
    for row in fallbacks if everything else fallbacks[:SHOWN]:
        findings = [finding for finding in row["findings"] if finding["effect"] == "gpu"]
        reasons = "; ".join(f["text"] + (f": {f['found']}" if f["found"] != row["op"] else "") for f in findings)
        console.print(indented(f"GPU  {escape(row['op'])} '{escape(row['name'])}': {escape(reasons)}"))
    if len(fallbacks) > SHOWN and not everything:
        console.print(f"  ... and {len(fallbacks) - SHOWN} more on the GPU", style="dim")
    for note in dla["notes"]:
        console.print(indented(escape(note)))


def _print_rewrites(console: Console, rewrites: dict[str, Any], everything: bool, assumed: bool) -> None:
    from rich.markup import escape

    applied = rewrites["applied"]
    if not applied:
        return
    would = "With --dla_rewrites, as this plan assumes" if assumed else "Rewritten for the DLA"
    title(console, f"{would}: {counted(len(applied), 'place')}")
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in applied:
        was, now = (_ops(node["op"] for node in row[side]) for side in ("before", "after"))
        groups.setdefault((row["rule"], was, now), []).append(row)
    table = table_of("rule", "was", "is", "places", "the first", right=(3,), ratios=(0, 4, 4, 0, 3))
    for number, ((rule, was, now), rows) in enumerate(groups.items()):
        if number < SHOWN or everything:
            table.add_row(rule, was, now or "a constant, or gone", str(len(rows)), escape(rows[0]["before"][0]["node"]))
    cut(table, len(groups), everything)
    console.print(table)
    for row in [row for row in rewrites["left"] if row["why"]]:
        console.print(indented(f"left: {escape(row['op'])} '{escape(row['node'])}': {escape(row['why'])}"))


def _ops(ops: Iterable[str]) -> str:
    return ", ".join(f"{number} {op}" for op, number in Counter(ops).items())


def _print_shared(console: Console, ranges: list[dict[str, Any]], everything: bool) -> None:
    kinds: dict[str, list[dict[str, Any]]] = {
        "raised": [shared for shared in ranges if shared["raised"]],
        "not raised (--unify_scales max)": [s for s in ranges if not s["raised"] and not s.get("refused")],
        "not raised, layers stay FP16 (--max_bits_lost)": [s for s in ranges if s.get("refused")],
    }
    for kind, group in kinds.items():
        if group:
            title(console, f"Ranges that the DLA requires to be equal: {kind}")
            _print_ranges(console, group, everything)


def _print_ranges(console: Console, ranges: list[dict[str, Any]], everything: bool) -> None:
    from rich.markup import escape

    table = table_of("tensor", "own scale", "shared", "bits lost", "with", right=(1, 2, 3), ratios=(4, 0, 0, 0, 3))
    rows = [(tensor, shared) for shared in ranges for tensor in shared["tensors"] if tensor["scale"] != shared["scale"]]
    rows.sort(key=lambda pair: -pair[0]["bits_lost"])
    for tensor, shared in rows if everything else rows[:SHOWN]:
        table.add_row(
            escape(tensor["tensor"]),
            f"{tensor['scale']:.4g}",
            f"{shared['scale']:.4g}",
            f"{tensor['bits_lost']:.1f}",
            escape(shared["from"]),
        )
    cut(table, len(rows), everything)
    console.print(table)


def _print_scales(console: Console, report: dict[str, Any], everything: bool) -> None:
    from rich.markup import escape

    title(console, "Scales and weights")
    counts = pairs()
    explicit = sum(row["explicit"] for row in report["scales"])
    counts.add_row(str(explicit), "scales from the model")
    for rule, number in inferred_by_rule(report["scales"]).items():
        counts.add_row(str(number), f"inferred by rule {rule}" + (f", {words(rule)}" if words(rule) else ""))
    if report["automatic_scales"]:
        counts.add_row(str(len(report["automatic_scales"])), "for tensors that only TensorRT's network has (S10)")
    if report["conflicts"]:
        counts.add_row(str(len(report["conflicts"])), "tensors with conflicting scales (C1)")
    exact = sum(row["exact"] for row in report["weights"])
    counts.add_row(f"{exact} of {len(report['weights'])}", "weights reproduce every trained code")
    console.print(counts)
    odd = [row for row in report["weights"] if not row["exact"]]
    if odd:
        table = table_of("weight", "codes reproduced", "largest error", right=(1, 2), ratios=(1, 0, 0))
        for row in odd if everything else sorted(odd, key=lambda row: row["share"])[:SHOWN]:
            table.add_row(escape(row["weight"]), f"{100 * row['share']:.4g}%", f"{100 * row['largest_error']:.2g}%")
        cut(table, len(odd), everything)
        console.print(table)


def _print_ends(console: Console, report: dict[str, Any]) -> None:
    from rich.markup import escape

    title(console, "Graph inputs and outputs")
    table = table_of("tensor", "shape", "scale", "hex", right=(2,), ratios=(1, 0, 0, 0))
    for kind in ("inputs", "outputs"):
        for row in report[kind]:
            shape = "unknown" if row["shape"] is None else "x".join("?" if d is None else str(d) for d in row["shape"])
            scale = f"{row['scale']:.9g}" if row["scale"] is not None else "float" if row["float"] else "integer"
            table.add_row(f"{kind[:-1]} {escape(row['name'])}", escape(shape), scale, row["hex"] or "")
    console.print(table)
