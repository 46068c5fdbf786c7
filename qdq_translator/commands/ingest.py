"""`qdq-translator ingest`: compare the results of a board with the plan."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

from qdq_translator.commands.explain import occurrences, print_log
from qdq_translator.commands.located import locate
from qdq_translator.core.command_options import IngestOptions as Options
from qdq_translator.core.disk import write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.engine_rows import Answer, BuiltLayer
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
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
        found: Dict[str, Any] = {"schema_version": 1, "kind": "qdq-translator board", **results.info}
        found["messages"] = occurrences(results.log)
        answers: List[Answer] = []
        if not results.failed:
            layers, times = _layers(files, results), _times(files, results)
            devices = layers.pop("devices", [])
            found.update({**layers, **times, "lines": [*layers["lines"], *times.get("lines", [])]})
            answers = [*_hypotheses(files, results), *devices]
            found["hypotheses"] = plain(answers)
    write_json(files.folder / f"{files.name}_board.json", found)
    if options.json:
        print(json.dumps(found, indent=2))
        return int(results.failed)
    board = results.info.get("board", results.info.get("machine", "board"))
    print(f"{board}: trtexec left with status {results.info['status']}\n")
    if results.log.found:
        print_log(results.log)
    for line in found.get("lines", []):
        print(line)
    for row in answers:
        print(f"{row.hypothesis}: {row.sentence} ({row.measured})")
    if results.failed:
        print(f"{options.file}: The engine was not built; the log above shows why.", file=sys.stderr)
    return int(results.failed)


def _layers(files: TranslationFiles, results: BoardResults) -> Dict[str, Any]:
    """Planned and actual precisions, if the board wrote layer information."""
    if results.layer_info is None:
        return {"lines": ["The board wrote no layer information."]}
    model, _ = load_model(files.model, weights=False)
    info = read_layer_info(results.layer_info)
    check = inspector.check_engine(inspector.planned(files), info, results.log, files.read_layer_precisions())
    engine = inspector.engine_truth(check, read_profile(str(results.profile)) if results.profile else {})
    rows = check.disobediences
    against = [f"  {row.name}: planned {row.planned}, runs in {row.actual or row.verdict}" for row in rows]
    timed = sorted((row for row in engine.layers if row.milliseconds), key=lambda row: -(row.milliseconds or 0.0))
    lines = [f"{len(against)} layers against the plan", *against[:10], *map(_timed, timed[:10])]
    devices = device_answers(model, engine.layers)
    told = {"check": plain(engine.summary), "against": engine.disagreements, "engine": plain(engine), "lines": lines}
    return {**told, "devices": devices}


def _timed(row: BuiltLayer) -> str:
    more = f" and {len(row.fused_with)} fused with it" if row.fused_with else ""
    runs = row.actual or "a precision that TensorRT does not tell"
    return f"  {row.milliseconds:.3f} ms {row.name}{more}: planned {row.planned}, runs in {runs} on the {row.device}"


def _times(files: TranslationFiles, results: BoardResults) -> Dict[str, Any]:
    """Of the engine's layers, reformats among them; for a DLA the fitted cost model, written beside the translation."""
    if results.profile is None:
        return {}
    times = read_profile(str(results.profile))
    lines = [f"{sum(times.values()):.3f} ms in all layers, those above and those of no layer of the plan"]
    found: Dict[str, Any] = {"milliseconds": sum(times.values()), "layers": times}
    cost = files.read_report("cost").get("cost")
    if cost and cost["milliseconds"] is not None:
        found["estimate"] = cost["milliseconds"]
        lines.append(f"estimate for the DLA: {cost['milliseconds']:.3f} ms")
        try:
            board = fit_board(files, str(results.profile), None, None)
            place = files.folder / f"{files.name}_cost_model.json"
            write_json(place, board.as_dict())
            lines.append(f"{board.summary()} Wrote {place}: give it to translate and plan with --cost_model.")
        except UserError as error:
            lines.append(f"The cost model was not fitted: {error}")
    return {**found, "lines": lines}


def _hypotheses(files: TranslationFiles, results: BoardResults) -> List[Answer]:
    inputs = stored_feed(files)
    return settle(files, inputs, results.outputs) if results.outputs is not None and inputs is not None else []
