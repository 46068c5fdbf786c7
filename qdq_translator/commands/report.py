"""`qdq-translator report`: what a translation holds, and why."""

from dataclasses import dataclass
from typing import Optional

from qdq_translator.core.options import model_option, setting, translation_option

TOOLS = ("onnxruntime", "modelopt", "modelopt-torch", "pytorch-quantization")


@dataclass
class Options:
    """Show the report of a translation: how much runs in INT8, which few tensors keep the rest from it and what cures
    them, where the DLA's limits are met, and the scales of graph inputs and outputs."""

    translation: str = translation_option()
    model: str = model_option()
    all: bool = setting("every layer and every note, not only the first few")
    json: bool = setting("the report as JSON on stdout, nothing else there")
    html: Optional[str] = setting("write a page to look at in a browser", None, metavar="FILE")
    against: Optional[str] = setting(
        "an earlier translation to compare with: terminal, --json or --html; status 1 if this one is worse",
        None,
        metavar="PATH",
    )
    verify: Optional[str] = setting(
        "results of 'qdq-translator verify --save', to show on the page of --html", None, metavar="FILE"
    )
    tuning: Optional[str] = setting(
        "NAME_tune.json of 'qdq-translator tune', to show on the page of --html", None, metavar="FILE"
    )
    fix_list: Optional[str] = setting(
        "operators to quantize and to exclude, as arguments of the quantizer that made the model",
        None,
        choices=TOOLS,
    )
    verbose: bool = setting("tracebacks of errors")


def run(options: Options) -> int:
    """Draws from NAME_report.json alone. Exit status 0; with --against 1 where less runs in INT8 than there, or longer."""
    from pathlib import Path

    from qdq_translator.commands.located import locate, manifest_of, print_next
    from qdq_translator.core.errors import UsageError
    from qdq_translator.output.report.data import format_report

    if options.verify and not options.html:
        raise UsageError("--verify shows on a page.", "Give the page with --html FILE.")
    if options.fix_list and (options.html or options.json or options.against):
        raise UsageError("--fix_list prints a list of its own.", "Leave --html, --json and --against out.")
    if options.tuning and (not options.html or options.against):
        raise UsageError(
            "--tuning shows on the page of one translation.", "Give it with --html FILE, without --against."
        )
    files = locate(options.translation, options.model)
    report = files.read_report()
    if options.fix_list:
        from qdq_translator.output.report.fix_lists import format_fix_list

        print(format_fix_list(report, options.fix_list), end="")
        return 0
    other = comparison = None
    names = (options.against or "", options.translation)
    if options.against:
        from qdq_translator.output.report.changes import compare

        other = locate(options.against, "").read_report()
        comparison = compare(other, report, names)
    if options.html:
        from qdq_translator.core.disk import refuse_overwriting
        from qdq_translator.core.formats.schemas import RESULTS, TUNING, read_json
        from qdq_translator.output.report.html import write_page

        shown = (Path(path) for path in (options.verify, options.tuning) if path)
        refuse_overwriting([Path(options.html)], [*files, *shown])
        results = None
        if options.verify:
            results = read_json(Path(options.verify), RESULTS, "Give a file of 'qdq-translator verify --save FILE'.")
        tuned = None
        if options.tuning:
            tuned = read_json(Path(options.tuning), TUNING, "Name the NAME_tune.json that 'qdq-translator tune' wrote.")
        write_page(report, Path(options.html), other, results, names, tuned)
    if options.json:
        print(format_report(comparison or report), end="")
    elif options.html:
        print(f"Wrote {options.html}")
    elif comparison:
        from qdq_translator.output.report.terminal_changes import print_comparison

        print_comparison(comparison, options.all)
    else:
        from qdq_translator.core.formats.report_rows import Report
        from qdq_translator.core.formats.rows import read
        from qdq_translator.output.report.terminal import print_report

        print_report(read(Report, report), options.all)
        print_next(files, "", "report", parts=manifest_of(files))
    return 1 if comparison and comparison["worse"] else 0
