"""`qdq-translator report NAME_board.tar.gz`: compare the results of a board with the plan."""

import contextlib
import os
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Iterator

from qdq_translator.api.explaining import occurrences
from qdq_translator.board.engine import inspector
from qdq_translator.board.engine.board import fit_board, read_profile
from qdq_translator.board.engine.layer_info import read_layer_info
from qdq_translator.board.results import BoardResults, device_answers, read_results, settle, stored_feed, time_answers
from qdq_translator.commands.explain import print_log
from qdq_translator.commands.located import print_commands, print_json
from qdq_translator.core.command_options import ReportOptions as Options
from qdq_translator.core.disk import write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.engine_rows import Board, BuiltLayer
from qdq_translator.core.formats.files import TranslationFiles, locate
from qdq_translator.core.formats.rows import read
from qdq_translator.core.formats.schemas import board_schema, read_json
from qdq_translator.core.switch import appear_together
from qdq_translator.translation.ir.io import load_model


def run(options: Options, file: str) -> int:
    """Print the findings and write NAME_board.json, and NAME_cost_model.json from a DLA's profile.

    Status 1 if the build failed."""
    files = locate(options.translation, options.model)
    stored = files.folder / f"{files.name}_board.json"
    with _unpacked(file) as scratch, appear_together(files.folder) as new:
        results = read_results(Path(file), files, Path(scratch))
        found = read(Board, {**results.info, "kind": "qdq-translator board"})
        found = replace(found, messages=occurrences(results.log))
        if not found.failed:
            found = _with_times(_with_layers(found, files, results), files, results, new)
            found = _with_answers(found, files, results)
        write_json(new / stored.name, found)
        read_json(new / stored.name, board_schema(), "Collect the results again.")
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
        print(f"{file}: The engine was not built; the log above shows why.", file=sys.stderr)
    return int(found.failed)


@contextlib.contextmanager
def _unpacked(archive: str) -> Iterator[str]:
    """A folder that is removed afterwards; an error about a file in it names the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            yield scratch
        except UserError as error:
            inside = f"{scratch}{os.sep}"
            raise UserError(error.what.replace(inside, f"{archive}: "), error.hint.replace(inside, "")) from error


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


def _with_times(found: Board, files: TranslationFiles, results: BoardResults, new: Path) -> Board:
    """Adds the times of the engine's layers, including reformats; for a DLA also writes the fitted cost model to the
    folder `new`, from which it gets next to the translation."""
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
            board = fit_board(files, str(results.profile))
            place = files.folder / f"{files.name}_cost_model.json"
            write_json(new / place.name, board.as_dict())
            lines.append(f"{board.summary()} Wrote {place}: give it to translate and plan with --cost_model.")
        except UserError as error:
            lines.append(f"The cost model was not fitted: {error}")
    return replace(found, milliseconds=total, layers=times, estimate=estimate, lines=(*(found.lines or ()), *lines))


def _with_answers(found: Board, files: TranslationFiles, results: BoardResults) -> Board:
    """The hypotheses that the outputs and the time decide, and the questions that the devices of the layers answer."""
    inputs = stored_feed(files)
    outputs = settle(files, inputs, results.outputs) if results.outputs is not None and inputs is not None else []
    model, _ = load_model(files.model, weights=False)
    times = time_answers(results.milliseconds, files.report_parts("cost")[0])
    devices = device_answers(model, found.engine.layers if found.engine else ())
    return replace(found, hypotheses=(*outputs, *times, *devices))
