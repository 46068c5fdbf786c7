"""`qdq-translator plan`: what of any ONNX model would run where, before it is quantized."""

import shlex
import sys
from pathlib import Path
from typing import List

from qdq_translator.api.requests import planned
from qdq_translator.commands.located import print_commands
from qdq_translator.core.command_options import PlanOptions as Options
from qdq_translator.core.disk import refuse_overwriting
from qdq_translator.core.errors import UsageError
from qdq_translator.translation.files.write import too_long
from qdq_translator.translation.report.data import format_report
from qdq_translator.translation.report.html import write_page
from qdq_translator.translation.report.terminal import print_report
from qdq_translator.translation.translator import Translation


def run(options: Options) -> int:
    """Exit status 0, or 1 if --fail_over_ms is exceeded."""
    if options.model is None:
        raise UsageError("No model was given.", "Give one: plan model.onnx.")
    made = planned(options)
    if options.html:
        refuse_overwriting([Path(options.html)], [Path(options.model)])
        write_page(made.rows, Path(options.html))
    if options.json:
        print(format_report(made.report), end="")
    elif options.html:
        print(f"Wrote {options.html}")
    else:
        print_report(made.rows, options.all)
        _print_next(options, made)
    failed = too_long(made.rows.cost, options.fail_over_ms)
    if failed:
        print(f"{options.model}: {failed}", file=sys.stderr)
    return 1 if failed else 0


def _print_next(options: Options, made: Translation) -> None:
    """The command that does what was planned: translate, or deploy for a model without scales of its own, which needs
    all sizes but the batch."""
    model, quantized = str(options.model), bool(made.scales.observed)
    words = ["qdq-translator", "translate", model] if quantized else ["qdq-translator", "deploy", model, "DATA"]
    for name in ("board", "on", "platform", "shapes"):
        value = getattr(options, name)
        words += [f"--{name}", *([value] if isinstance(value, str) else value)] if value else []
    if not (quantized or options.shapes):
        words += [word for name in _open_inputs(made) for word in ("--shapes", f"{name}:DIMS")]
    if not (options.board or options.on):
        board = options.platform or {"gpu": "gpu", "xavier-dla": "xavier"}.get(options.target, "agx-orin")
        words += ["--target", options.target] if quantized else ["--board", board]
    print_commands(shlex.join(words))


def _open_inputs(made: Translation) -> List[str]:
    """Inputs with an unknown size other than the batch."""
    return [row.name for row in made.rows.inputs if not all(isinstance(size, int) for size in (row.shape or ())[1:])]
