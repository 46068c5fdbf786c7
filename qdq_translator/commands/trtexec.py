"""`qdq-translator trtexec`: the trtexec command that builds a translation."""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Literal, Optional

from qdq_translator.commands.engine_options import EngineOptions
from qdq_translator.commands.located import explicit_model, find_explicit, locate, print_next
from qdq_translator.core.disk import refuse_overwriting, write_file
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.files import EXPLICIT_SUFFIX
from qdq_translator.core.options import setting
from qdq_translator.output.emit import trtexec
from qdq_translator.output.emit.trtexec import polygraphy
from qdq_translator.output.emit.trtexec.checks import prepare
from qdq_translator.output.emit.trtexec.request import MODES, engine_paths, parse_version
from qdq_translator.targets.platforms import find_platform


@dataclasses.dataclass
class Options(EngineOptions):
    """Print the trtexec command that builds a translation, ready to paste into a shell, or write a script that checks
    the files, corrects the header of the calibration cache for another TensorRT version, and runs it."""

    mode: str = setting(
        "the network to build: the translation; for comparison the Q/DQ model (explicit; specify it with -i), the "
        "stripped model in FP16 (fp16), or in the precisions that TensorRT finds fastest (best)",
        "implicit",
        choices=MODES,
    )
    sparsity: Optional[str] = setting(
        "kernels for 2:4 sparse weights: for sparse weights only, or for all weights (to measure speed)",
        None,
        choices=("enable", "force"),
    )
    profile: Optional[str] = setting("write the time of every layer to FILE, for 'plan --fit'", None, metavar="FILE")
    skip_inference: bool = setting("build only, do not time the engine")
    trt_version: Optional[str] = setting(
        "the TensorRT version to write for, e.g. 8.6 or 10.3 (default: from --platform, else the cache's header)",
        None,
        metavar="VERSION",
    )
    script: Optional[str] = setting("write a shell script instead of printing", None, metavar="FILE")
    tool: Literal["trtexec", "polygraphy"] = setting("program whose command is printed", "trtexec")
    verbose: bool = setting("print trtexec's verbose log, and tracebacks of errors")


def run(options: Options) -> int:
    """Prints the command on stdout and notes on stderr, or writes the script."""
    if options.translation.endswith(EXPLICIT_SUFFIX):
        return _explicit(options)
    files = locate(options.translation, options.model)
    version = None
    if options.trt_version:
        version = parse_version(options.trt_version)
    elif options.platform:
        version = find_platform(options.platform).tensorrt
    if options.mode != "implicit" and (options.script or options.tool != "trtexec"):
        raise UsageError("--mode prints a trtexec command.", "Leave --script and --tool out.")
    if options.script and options.tool != "trtexec":
        raise UsageError("--script writes a script for trtexec.", "Drop --tool polygraphy or --script.")
    asked, notes = options.request(files)
    request = dataclasses.replace(
        asked, explicit_model=explicit_model(files, options.model) if options.mode == "explicit" else ""
    )
    kind = "int8" if options.mode == "implicit" else options.mode
    beside = files.folder / f"{files.name}.onnx" if kind == "explicit" else files.model
    engine, info = engine_paths(beside, kind, request)
    request = dataclasses.replace(request, save_engine=str(engine), layer_info=str(info or ""))
    settings = prepare(files, request, version)
    compared = ""
    if options.tool == "polygraphy":
        commands = [polygraphy.polygraphy_arguments(settings)]
        if not options.dla_standalone and not options.skip_inference:
            compared = find_explicit(files, options.model)
            commands += polygraphy.comparison_commands(settings, compared) if compared else []
        text = "\n".join(map(polygraphy.polygraphy_command, commands))
    else:
        arguments = trtexec.trtexec_arguments(settings)
        text = trtexec.trtexec_command(arguments)
        if options.script:
            script = Path(options.script)
            refuse_overwriting([script], files)
            text = trtexec.shell_script(settings, arguments, script.parent)
            write_file(script, text.encode("utf-8", "surrogateescape"), mode=0o777)
            text = f"Wrote {script}\n"
    for note in (*notes, *settings.notes):
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.write(text)
    if compared:
        made = polygraphy.comparison_files(settings)
        words = ["verify", "-i", compared, "-t", str(files.model)]
        words += ["--inputs", made["inputs"], "--device_results", made["engine_outputs"]]
        print(f"next:\n  qdq-translator {shlex.join(words)}", file=sys.stderr)
    elif options.mode == "implicit" and info is not None and not options.layer_info:
        print_next(files, "", "trtexec", info)
    return 0


def _explicit(options: Options) -> int:
    """The command for a network written by `explicit`, as its report specifies."""
    model = Path(options.translation)
    if not model.is_file():
        raise UserError(f"{model} does not exist.", "Run 'qdq-translator explicit' first.")
    if options.mode != "implicit" or options.script or options.tool != "trtexec":
        raise UsageError("An explicit network has a trtexec command only.", "Leave --mode, --script and --tool out.")
    request, version = options.explicit_request()
    print(trtexec.trtexec_command(trtexec.explicit_arguments(model, request, version)), end="")
    return 0
