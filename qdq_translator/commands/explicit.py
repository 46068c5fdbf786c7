"""`qdq-translator explicit`: a strongly typed Q/DQ network, with pairs at the places where implicit quantization
would fuse."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from qdq_translator.api.requests import explicit_of
from qdq_translator.commands.located import EXAMPLE_MODEL, print_commands, print_json, static_shapes
from qdq_translator.core.command_options import ExplicitCommand as Options
from qdq_translator.core.disk import refuse_overwriting
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import EXPLICIT_SUFFIX, model_name
from qdq_translator.core.formats.report_rows import ExplicitReport
from qdq_translator.core.words import by_x, counted, others


def run(options: Options) -> int:
    """Write network and report. Exit status 0; UserError if this is impossible."""
    source = str(EXAMPLE_MODEL) if options.example else options.model
    if not source:
        raise UsageError("No model was given.", "Give one (model.onnx), or --example for the one that ships.")
    target = Path(options.output_dir)
    if target.suffix != ".onnx":
        target /= f"{model_name(source)}{EXPLICIT_SUFFIX}"
    if options.consumer == "onnxruntime":
        from qdq_translator.commands.restore import restore

        return restore(source, target, options)
    refuse_overwriting([target, target.with_name(f"{target.name}.data")], [Path(source), Path(options.cache or "")])
    written = explicit_of(options.changed(model=source))
    path = written.save(target.parent, target.name)
    if options.json:
        print_json(written.report)
        return 0
    given, types = options.sizes, written.translated.types
    sizes = [shlex.quote(f"{name}:{by_x(shape)}") for name, shape in given.items()]
    sizes += static_shapes({name: types.shape(name) or () for name in written.graph.inputs if name not in given})
    _print(path, written.report, options.verbose, sizes)
    return 0


def _print(path: Path, report: ExplicitReport, verbose: bool, shapes: Sequence[str]) -> None:
    """Prints the output, then the float layers and the reasons, and the next commands. shapes: of open sizes."""
    floats = report.stays_float
    console = Console(highlight=False)
    console.print(
        f"{path}: {report.form}, opset {report.opset.after}, for {report.target} ({report.platform}): "
        f"{counted(len(report.pairs), 'Q/DQ pair')}, {counted(len(report.weights), 'INT8 weight')}, "
        f"{counted(report.layers.int8, 'layer')} in INT8",
        markup=False,
    )
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    most = None if verbose else 5
    if floats:
        print(f"{counted(len(floats), 'layer')} above INT8:")
    alike: Dict[Any, List[Any]] = {}
    for index, row in enumerate(floats):
        # one cause: the same sentence, whichever tensors it names
        alike.setdefault(index if verbose else re.sub(r"'[^']*'", "", row.why), []).append(row)
    shown = list(alike.values())[:most]
    for rows in shown:
        line = f"{rows[0].op} '{rows[0].layer}'{others(rows)}: {rows[0].why}"
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    left = len(floats) - sum(map(len, shown))
    if left:
        print(f"  and {left} more (--verbose lists them; the report has all)")
    for node, why in list(report.float32.items())[:most]:
        console.print(f"'{node}' computes in FP32: {why}", markup=False)
    written = shlex.quote(str(path))
    build = " ".join([f"qdq-translator build --print -t {written}", *["--opt_shapes"] * bool(shapes), *shapes])
    print_commands(f"qdq-translator report {written}", build)
