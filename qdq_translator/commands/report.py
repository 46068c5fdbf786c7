"""`qdq-translator report`: a translation's contents, and the reasons for them."""

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from qdq_translator.board.engine.board import fit_board, read_profile
from qdq_translator.board.engine.inspector import engine_truth
from qdq_translator.board.engine.unfused import explain_unfused, read_explicit
from qdq_translator.board.results import read_answers
from qdq_translator.commands import check_engine, ingest
from qdq_translator.commands.check_engine import Sections, inspect, inspect_explicit, lines_of, sections
from qdq_translator.commands.located import is_explicit, print_commands, print_next
from qdq_translator.core.command_options import ReportOptions as Options
from qdq_translator.core.disk import read_text, refuse_overwriting, write_file, write_json
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.engine_rows import Engine
from qdq_translator.core.formats.files import TranslationFiles, locate
from qdq_translator.core.formats.report_rows import Comparison, Report
from qdq_translator.core.formats.rows import json_text, plain, read
from qdq_translator.core.formats.schemas import read_json, results_schema, tuning_schema
from qdq_translator.core.formats.tune_rows import Tuning
from qdq_translator.translation.report.changes import compare, compare_engines
from qdq_translator.translation.report.data import format_report
from qdq_translator.translation.report.embed import node_data
from qdq_translator.translation.report.fix_lists import format_fix_list
from qdq_translator.translation.report.html import write_page
from qdq_translator.translation.report.terminal import print_comparison, print_engines, print_report


def run(options: Options) -> int:
    """Shows NAME_report.json, or an explicit network, or what came back from a board. Exit status 0; with --against 1
    if less runs in INT8 than there, or it needs more time.
    """
    if options.file is not None:
        kind = Path(options.file).suffix
        if kind in (".gz", ".tgz", ".tar") or (kind not in (".json", ".onnx") and _is_no_folder(options.file)):
            return ingest.run(options, options.file)
        if kind == ".json":
            return check_engine.run(options.changed(layer_info=[options.file, *options.layer_info], file=None))
        options = options.changed(translation=options.file, file=None)
    return _fit(options, options.fit) if options.fit else _show(options)


def _is_no_folder(path: str) -> bool:
    """Whether something is there that is neither a folder nor the start of a translation's name."""
    return Path(path).exists() and not Path(path).is_dir()


def _show(options: Options) -> int:
    _check(options)
    above: Sections = []
    if is_explicit(options.translation):
        report, engines = _explicit(options, above)
        files, content, kept = None, plain(report), [Path(options.translation)]
    else:
        files = locate(options.translation, options.model)
        content = files.read_report()
        report, engines, kept = read(Report, content), _engines(files, options, above), [*files]
    if options.fix_list:
        print(format_fix_list(report, options.fix_list), end="")
        return 0
    compared = {}
    if len(engines) == 2:
        both = compare_engines(*engines)
        compared = {"engines": plain(both)}
        above.append(partial(print_engines, compared=both, everything=options.all))
    other = comparison = None
    if options.against:
        other = locate(options.against, "").report_rows()
        comparison = compare(other, report, (options.against, options.translation))
    written = _write_files(options, kept, report, other, engines)
    if options.json:
        if engines:
            content["engine"] = plain(engines[-1])
        print(format_report({**(plain(comparison) if comparison else content), **compared}), end="")
    elif written:
        print(f"Wrote {' and '.join(written)}")
    else:
        _draw(options, report, comparison, above, files)
    disobeyed = any(not engine.summary.obeys or engine.unfused for engine in engines)
    return int((options.strict and disobeyed) or bool(comparison and comparison.worse))


def _fit(options: Options, place: str) -> int:
    """Writes the cost model that fits the board's profile of the translation best. Exit status 0."""
    if len(options.profile) != 1:
        raise UsageError("--fit is for one profile.", "Give trtexec's --exportProfile, or cuDLA's CSV, with --profile.")
    files = TranslationFiles.locate(options.translation)
    refuse_overwriting([Path(place)], [Path(options.profile[0]), *files])
    board = fit_board(files, options.profile[0])
    write_json(Path(place), board.as_dict())
    print(board.summary())
    print(f"Wrote {place}: give it to translate and plan with --cost_model.")
    return 0


def _draw(
    options: Options,
    report: Report,
    comparison: Optional[Comparison],
    above: Sections,
    files: Optional[TranslationFiles],
) -> None:
    """Prints the comparison or the report, and the next commands. files: None for an explicit network."""
    if comparison:
        print_comparison(comparison, options.all, above)
    else:
        print_report(report, options.all, above)
    if files is not None:
        print_next(files, "", "report", parts=files.manifest())
    else:
        print_commands(f"qdq-translator build --print {shlex.quote(options.translation)}")


def _check(options: Options) -> None:
    if options.verify and not options.html:
        raise UsageError("--verify shows on a page.", "Give the page with --html FILE.")
    if options.fix_list and any((options.html, options.json, options.against)):
        raise UsageError("--fix_list prints a list of its own.", "Leave --html, --json and --against out.")
    if options.tuning and (not options.html or options.against):
        raise UsageError(
            "--tuning shows on the page of one translation.", "Give it with --html FILE, without --against."
        )
    if not options.layer_info and any((options.profile, options.log, options.strict)):
        raise UsageError("--profile, --log and --strict belong to an engine.", "Give it with --layer_info FILE.")
    if len(options.layer_info) > 2 or max(len(options.profile), len(options.log)) > len(options.layer_info):
        raise UsageError("--layer_info compares two engines at most.", "Give each its --profile and --log, in order.")


def _write_files(
    options: Options, kept: Sequence[Path], report: Report, other: Optional[Report], engines: List[Engine]
) -> List[str]:
    """Writes the requested page and overlays, and returns their names."""
    if options.html:
        _write_page(options, options.html, kept, report, other, engines)
    if options.overlay:
        _write_overlays(Path(options.overlay), report, engines, kept)
    return [path for path in (options.html, options.overlay) if path]


def _write_page(
    options: Options, html: str, kept: Sequence[Path], report: Report, other: Optional[Report], engines: List[Engine]
) -> None:
    given = (options.verify, options.tuning, *options.layer_info, *options.profile, *options.log)
    refuse_overwriting([Path(html)], [*kept, *(Path(path) for path in given if path)])
    results = tuned = None
    if options.verify:
        results = read_json(
            Path(options.verify), results_schema(), "Give a file of 'qdq-translator verify --save FILE'."
        )
        if not results.get("stale"):
            _refuse_another_model(options.verify, results.get("model", {}).get("sha256", ""), report)
    if options.tuning:
        hint = "Name the NAME_tune.json that 'qdq-translator tune' wrote."
        tuned = read(Tuning, read_json(Path(options.tuning), tuning_schema(), hint))
        _refuse_another_model(options.tuning, tuned.model.sha256, report)
    a, b = (options.against, options.translation) if options.against else (*options.layer_info, "", "")[:2]
    write_page(report, Path(html), other, results, (a, b), tuned, engines)


def _refuse_another_model(path: str, digest: Optional[str], report: Report) -> None:
    """Raises UserError for results of another model than the translated one; unknown digests are accepted."""
    known = report.source.sha256 if report.source else ""
    if digest and known and digest != known:
        raise UserError(f"{path} has results of another model than {report.model}.", "Give those of this translation.")


def _write_overlays(path: Path, report: Report, engines: List[Engine], kept: Sequence[Path]) -> None:
    for ending, data in node_data(report, engines[-1] if engines else None).items():
        target = path.with_name(f"{path.stem}{ending}.json")
        refuse_overwriting([target], kept)
        write_file(target, (json_text(data, indent=1) + "\n").encode())


def _explicit(options: Options, above: Sections) -> Tuple[Report, List[Engine]]:
    """A network with Q/DQ as it is, and its engines. above: receives the sections about them for the terminal."""
    network, engines = read_explicit(Path(options.translation)), []
    for layer_info, times, log in _engine_files(options):
        check = inspect_explicit(network, layer_info, log)
        above += sections(check, options.all)
        unfused = tuple(explain_unfused(network.graph, check, times))
        engines.append(replace(engine_truth(check, times), unfused=unfused))
    return network.report, engines


def _engine_files(options: Options) -> Iterator[Tuple[str, Dict[str, float], Optional[str]]]:
    """Layer information, times and log of each engine."""
    profiles, logs = iter(options.profile), iter(options.log)
    for path in options.layer_info:
        profile = next(profiles, None)
        yield path, read_profile(profile) if profile else {}, next(logs, None)


def _engines(files: TranslationFiles, options: Options, above: Sections) -> List[Engine]:
    """The engines compared with the plan. above: receives their disagreements, for the terminal."""
    engines: List[Engine] = []
    for path, times, log in _engine_files(options):
        first = options.against and len(options.layer_info) == 2 and not engines
        planned = locate(str(options.against), "") if first else files
        if '"qdq-translator board"' not in read_text(Path(path), "Check the path.")[:200]:
            check = inspect(planned, path, log)
            above += sections(check, options.all)
            engines.append(engine_truth(check, times))
            continue
        engines.append(read_answers(Path(path), planned))
        rows = (row for row in engines[-1].layers if row.against)
        against = [(row.name, f"planned {row.planned}, runs in {row.actual or row.verdict}") for row in rows]
        above.append(lines_of(against, options.all))
    return engines
