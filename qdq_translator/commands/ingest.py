"""`qdq-translator ingest`: compare the results of a board with the plan."""

import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from qdq_translator.commands.explain import occurrences, print_log
from qdq_translator.commands.located import locate, print_commands, print_json
from qdq_translator.core.command_options import IngestOptions as Options
from qdq_translator.core.disk import write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.engine_rows import Board, BuiltLayer
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import read
from qdq_translator.engine import inspector
from qdq_translator.engine.board import fit_board, read_profile
from qdq_translator.engine.layer_info import read_layer_info
from qdq_translator.ir.io import load_model
from qdq_translator.workflows.board_results import BoardResults, device_answers, read_results, settle, stored_feed


def run(options: Options) -> int:
    """Print the findings and write NAME_board.json, and NAME_cost_model.json from a DLA's profile.

    Status 1 if the build failed."""
    files = locate(options.translation, options.model)
    with tempfile.TemporaryDirectory() as scratch:
        results = read_results(Path(options.file), files, Path(scratch))
        found = read(Board, {**results.info, "kind": "qdq-translator board"})
        found = replace(found, messages=occurrences(results.log))
        if not found.failed:
            found = _with_answers(_with_times(_with_layers(found, files, results), files, results), files, results)
    stored = files.folder / f"{files.name}_board.json"
    write_json(stored, found)
    if options.json:
        print_json(found)
        return int(found.failed)
    print(f"{found.board or found.machine or 'board'}: trtexec left with status {found.status}\n")
    if results.log.found:
        print_log(results.log)
    for line in found.lines or ():
        print(line)
    for row in found.hypotheses or ():
        print(f"{row.hypothesis}: {row.sentence} ({row.measured})")
    if not found.failed:
        words = ("report", "-t", str(files.model), "--layer_info", str(stored), "--html", "board.html")
        print_commands(shlex.join(["qdq-translator", *words]))
    if found.failed:
        print(f"{options.file}: The engine was not built; the log above shows why.", file=sys.stderr)
    return int(found.failed)


def _with_layers(found: Board, files: TranslationFiles, results: BoardResults) -> Board:
    """Planned and actual precisions, if the board wrote layer information."""
    if results.layer_info is None:
        return replace(found, lines=("The board wrote no layer information.",))
    info = read_layer_info(results.layer_info)
    check = inspector.check_engine(inspector.planned(files), info, results.log, files.read_layer_precisions())
    engine = inspector.engine_truth(check, read_profile(str(results.profile)) if results.profile else {})
    rows = check.disobediences
    against = [f"  {row.name}: planned {row.planned}, runs in {row.actual or row.verdict}" for row in rows]
    timed = sorted((row for row in engine.layers if row.milliseconds), key=lambda row: -(row.milliseconds or 0.0))
    lines = (f"{len(against)} layers against the plan", *against[:10], *map(_timed, timed[:10]))
    return replace(found, check=engine.summary, against=engine.disagreements, engine=engine, lines=lines)


def _timed(row: BuiltLayer) -> str:
    more = f" and {len(row.fused_with)} fused with it" if row.fused_with else ""
    runs = row.actual or "a precision that TensorRT does not tell"
    return f"  {row.milliseconds:.3f} ms {row.name}{more}: planned {row.planned}, runs in {runs} on the {row.device}"


def _with_times(found: Board, files: TranslationFiles, results: BoardResults) -> Board:
    """Adds the times of the engine's layers, including reformats; for a DLA also writes the fitted cost model next to
    the translation."""
    if results.profile is None:
        return found
    times = read_profile(str(results.profile))
    total, estimate = sum(times.values()), None
    lines = [f"{total:.3f} ms in all layers, those above and those of no layer of the plan"]
    (cost,) = files.report_parts("cost")
    if cost and cost.milliseconds is not None:
        estimate = cost.milliseconds
        lines.append(f"estimate for the DLA: {estimate:.3f} ms")
        try:
            board = fit_board(files, str(results.profile), None, None)
            place = files.folder / f"{files.name}_cost_model.json"
            write_json(place, board.as_dict())
            lines.append(f"{board.summary()} Wrote {place}: give it to translate and plan with --cost_model.")
        except UserError as error:
            lines.append(f"The cost model was not fitted: {error}")
    return replace(found, milliseconds=total, layers=times, estimate=estimate, lines=(*(found.lines or ()), *lines))


def _with_answers(found: Board, files: TranslationFiles, results: BoardResults) -> Board:
    """The hypotheses that the outputs decide, and the questions that the devices of the layers answer."""
    inputs = stored_feed(files)
    outputs = settle(files, inputs, results.outputs) if results.outputs is not None and inputs is not None else []
    model, _ = load_model(files.model, weights=False)
    return replace(found, hypotheses=(*outputs, *device_answers(model, found.engine.layers if found.engine else ())))
