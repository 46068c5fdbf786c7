"""`qdq-translator report`: what a translation holds, and why."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional

from qdq_translator.commands.check_engine import draw, inspect
from qdq_translator.commands.located import locate, manifest_of, print_next
from qdq_translator.core.disk import read_text, refuse_overwriting, write_file
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.formats.rows import read
from qdq_translator.core.formats.schemas import BOARD, RESULTS, TUNING, read_json
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
    layer_info: Optional[str] = setting(
        "what TensorRT built of it (trtexec --exportLayerInfo, or NAME_board.json of ingest): disagreements, first",
        None,
        metavar="FILE",
    )
    profile: Optional[str] = setting("measured times, for --layer_info (trtexec --exportProfile)", None, metavar="FILE")
    log: Optional[str] = setting("the build log, for --layer_info", None, metavar="FILE")
    strict: bool = setting("exit status 1 where the engine of --layer_info disagrees with the plan")
    overlay: Optional[str] = setting(
        "node data for Model Explorer, of NAME_noqdq.onnx; FILE_ms.json has the times", None, metavar="FILE.json"
    )
    fix_list: Optional[str] = setting(
        "operators to quantize and to exclude, as arguments of the quantizer that made the model",
        None,
        choices=TOOLS,
    )
    verbose: bool = setting("tracebacks of errors")


def run(options: Options) -> int:
    """Draws from NAME_report.json alone. Exit status 0; with --against 1 where less runs in INT8 than there, or longer."""
    from qdq_translator.output.report.data import format_report

    if options.verify and not options.html:
        raise UsageError("--verify shows on a page.", "Give the page with --html FILE.")
    if options.fix_list and (options.html or options.json or options.against):
        raise UsageError("--fix_list prints a list of its own.", "Leave --html, --json and --against out.")
    if options.tuning and (not options.html or options.against):
        raise UsageError(
            "--tuning shows on the page of one translation.", "Give it with --html FILE, without --against."
        )
    if not options.layer_info and (options.profile or options.log or options.strict):
        raise UsageError("--profile, --log and --strict belong to an engine.", "Give it with --layer_info FILE.")
    files = locate(options.translation, options.model)
    report = files.read_report()
    engine = _engine(files, options) if options.layer_info else None
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
        from qdq_translator.output.report.html import write_page

        given = (options.verify, options.tuning, options.layer_info, options.profile, options.log)
        shown = (Path(path) for path in given if path)
        refuse_overwriting([Path(options.html)], [*files, *shown])
        results = None
        if options.verify:
            results = read_json(Path(options.verify), RESULTS, "Give a file of 'qdq-translator verify --save FILE'.")
        tuned = None
        if options.tuning:
            tuned = read_json(Path(options.tuning), TUNING, "Name the NAME_tune.json that 'qdq-translator tune' wrote.")
        write_page(report, Path(options.html), other, results, names, tuned, engine)
    if options.overlay:
        _write_overlays(Path(options.overlay), report, engine, [*files])
    if options.json:
        print(format_report(comparison or {**report, **({} if engine is None else {"engine": engine})}), end="")
    elif options.html or options.overlay:
        print(f"Wrote {' and '.join(filter(None, (options.html, options.overlay)))}")
    elif comparison:
        from qdq_translator.output.report.terminal_changes import print_comparison

        print_comparison(comparison, options.all)
    else:
        from qdq_translator.output.report.terminal import print_report

        print_report(read(Report, report), options.all)
        print_next(files, "", "report", parts=manifest_of(files))
    failed = options.strict and engine is not None and not engine["summary"]["obeys"]
    return 1 if failed or (comparison and comparison["worse"]) else 0


def _write_overlays(
    path: "Path", report: "Dict[str, Any]", engine: "Optional[Dict[str, Any]]", kept: "List[Path]"
) -> None:
    from qdq_translator.output.report.overlay import node_data

    for ending, data in node_data(report, engine).items():
        target = path.with_name(f"{path.stem}{ending}.json")
        refuse_overwriting([target], kept)
        write_file(target, (json.dumps(data, indent=1) + "\n").encode())


def _engine(files: "TranslationFiles", options: Options) -> "Dict[str, Any]":
    """The engine beside the plan; on a terminal its disagreements are printed before the report."""
    from qdq_translator.engine.board import read_profile
    from qdq_translator.engine.inspector import engine_truth

    path = Path(str(options.layer_info))
    quiet = options.html or options.json
    if '"qdq-translator board"' in read_text(path, "Check the path.")[:200]:
        stored: Optional[Dict[str, Any]] = read_json(path, BOARD, "Give the file that 'ingest' wrote.").get("engine")
        if stored is None:
            raise UserError(
                f"{path} holds no layers of an engine.", "Collect again where trtexec writes layer information."
            )
        for row in stored["layers"] if not quiet else ():
            if row["against"]:
                print(f"{row['name']}: planned {row['planned']}, runs in {row['actual'] or row['verdict']}")
        return stored
    check, info, _ = inspect(files, str(path), options.log)
    if not quiet:
        draw(check, options.all)
    return engine_truth(check, info, read_profile(options.profile) if options.profile else {})
