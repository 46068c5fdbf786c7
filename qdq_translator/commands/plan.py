"""`qdq-translator plan`: the layers of any ONNX model that would run on a DLA, before it is quantized."""

import shlex
import sys
from pathlib import Path
from typing import Any, Optional

from qdq_translator.core.command_options import PlanOptions as Options
from qdq_translator.core.disk import refuse_overwriting, write_json
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.options import (
    AS_PLANNED,
    TranslateOptions,
)
from qdq_translator.engine.board import fit_board
from qdq_translator.ir.io import load_model
from qdq_translator.ir.operators import QUANTIZERS
from qdq_translator.output.emit.write import too_long
from qdq_translator.output.report.data import format_report
from qdq_translator.output.report.html import write_page
from qdq_translator.output.report.terminal import print_report
from qdq_translator.workflows.translator import Translation, translate


def run(options: Options) -> int:
    """Exit status 0, or 1 if --fail_over_ms is exceeded."""
    if options.fit is not None:
        return _fit(options)
    if options.input_onnx_model is None:
        raise UsageError("No model was given.", "Give one with -i model.onnx.")
    made = planned(options)
    report = made.report
    if options.html:
        refuse_overwriting([Path(options.html)], [Path(options.input_onnx_model)])
        write_page(made.rows, Path(options.html))
    if options.json:
        print(format_report(report), end="")
    elif options.html:
        print(f"Wrote {options.html}")
    else:
        print_report(made.rows, options.all)
        _print_next(options)
    failed = too_long(made.rows.cost, options.fail_over_ms)
    if failed:
        print(f"{options.input_onnx_model}: {failed}", file=sys.stderr)
    return 1 if failed else 0


def planned(options: Options, model: Optional[Any] = None) -> Translation:
    """The plan of `options.input_onnx_model`, or of the ModelProto `model`, as if every tensor had a scale."""
    names = ("target", "platform", "shapes", "power_mode", "dla_clock", "cost_model", "keep_fp16")
    same = {name: getattr(options, name) for name in names}
    asked = TranslateOptions(dla_rewrites=not options.no_rewrites, **same, **AS_PLANNED)
    return translate(model or str(options.input_onnx_model), asked, assume_scales=True)


def _print_next(options: Options) -> None:
    """Print the planned translate command if the model has quantizers (a float one needs unknown data)."""
    model = str(options.input_onnx_model)
    if not any(node.op_type in QUANTIZERS for node in load_model(model, weights=False)[0].graph.node):
        return
    words = ["qdq-translator", "translate", model, "--preset", "dla"]
    words += [] if options.target == "orin-dla" else ["--target", options.target]
    words += ["--platform", options.platform] if options.platform else []
    words += ["--shapes", *options.shapes] if options.shapes else []
    print(f"next:\n  {shlex.join(words)}")


def _fit(options: Options) -> int:
    """Writes the fitted cost model. Exit status 0."""
    if not options.save:
        raise UsageError("--fit writes a cost model.", "Give its file with --save board.json.")
    files = TranslationFiles.locate(options.translation)
    refuse_overwriting([Path(options.save)], [Path(str(options.fit)), *files])
    board = fit_board(files, str(options.fit), options.power_mode, options.dla_clock)
    write_json(Path(options.save), board.as_dict())
    print(board.summary())
    print(f"Wrote {options.save}: give it to translate and plan with --cost_model.")
    return 0
