"""`qdq-translator build --print`: the trtexec command that builds a translation."""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from qdq_translator.commands.located import (
    explicit_model,
    find_explicit,
    is_explicit,
    print_commands,
    print_next,
    print_notes,
)
from qdq_translator.core.command_options import BuildOptions as Options
from qdq_translator.core.disk import refuse_overwriting, write_file
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.files import EXPLICIT_SUFFIX, TranslationFiles, locate
from qdq_translator.core.options import MODES, parse_shapes
from qdq_translator.core.words import others
from qdq_translator.translation.files import trtexec
from qdq_translator.translation.files.trtexec import polygraphy
from qdq_translator.translation.files.trtexec.checks import Settings, prepare
from qdq_translator.translation.files.trtexec.request import (
    BuildRequest,
    Remembered,
    Version,
    engine_paths,
    parse_pools,
)
from qdq_translator.translation.targets.platforms import find_platform


def build_request(options: Options, files: TranslationFiles) -> Tuple[BuildRequest, List[str]]:
    """The build request, and notes.

    files: the translation, whose target, platform and shapes are the defaults. Raises UsageError for options that
    contradict it.
    """
    made = Remembered.of(files)
    target, notes = made.target_for(options.target)
    if made.on_dla and not options.allow_gpu_fallback:
        notes += _fallbacks(files)
    platform = made.platform_for(options.platform)
    if target != "gpu" and platform is not None and not platform.dla and platform.note:
        notes.append(f"{platform.name} has no DLA: {platform.note} ({platform.source}).")
    return _request(options, target, made), notes


def _request(options: Options, target: str, made: Remembered) -> BuildRequest:
    """A DLA gets its SRAM (as in NVIDIA's own builds). made: of the translation, whose shapes are the defaults."""
    shapes = parse_shapes(options.opt_shapes)
    if not (options.min_shapes or options.max_shapes) or shapes:
        shapes = {name: list(sizes) for name, sizes in made.sizes_to_build(shapes).items()}
    pools = parse_pools(options.mem_pools)
    if target != "gpu":
        pools.setdefault("dlaSRAM", 1.0)
    same = {field.name for field in dataclasses.fields(BuildRequest)} & vars(options).keys()
    given: Dict[str, Any] = {name: getattr(options, name) for name in same if getattr(options, name) is not None}
    given.update(target=target, pools=pools, opt_shapes=shapes)
    given["profile"] = options.profile
    given.update((key, parse_shapes(getattr(options, key))) for key in ("min_shapes", "max_shapes"))
    return BuildRequest(**given)


def explicit_request(options: Options) -> Tuple[BuildRequest, Version]:
    """The build request for a network with Q/DQ, and the TensorRT version: the report of one written by `explicit`
    gives target, platform and the parser flags for a DLA. Raises UserError for another target."""
    from qdq_translator.translation.explicit import read_report

    model = Path(options.translation)
    report = read_report(model)
    made = report.target if report else None
    if made is not None and options.target not in (None, made):
        raise UserError(
            f"{model} was written for {made}, not for {options.target}.",
            f"Write it with 'qdq-translator explicit --target {options.target}'.",
        )
    request = _request(options, options.target or made or "gpu", Remembered())
    flags = dict.fromkeys(flag.lower() for flag in options.parser_flags)
    if report and request.on_dla:
        flags.update(dict.fromkeys(report.parser_flags))
    platform = options.platform or (report and report.platform) or "tensorrt-11.4.1"
    mode = "typed" if model.name.endswith(EXPLICIT_SUFFIX) else "explicit"
    return dataclasses.replace(request, mode=mode, parser_flags=tuple(flags)), find_platform(
        platform, explicit=True
    ).tensorrt


def _fallbacks(files: TranslationFiles) -> List[str]:
    """A note about layers that the plan places on the GPU."""
    try:
        (dla,) = files.report_parts("dla")
    except UserError:
        return []
    rows = [row for row in dla.layers if row.verdict == "gpu"] if dla else []
    where = "to the GPU, and without --allow_gpu_fallback the build fails."
    return [f"The plan sends {rows[0].op} '{rows[0].name}'{others(rows)} {where}"] if rows else []


def run(options: Options) -> int:
    """Prints the command on stdout and notes on stderr, or writes the script."""
    if is_explicit(options.translation):
        return _explicit(options)
    files = locate(options.translation, options.model)
    version = find_platform(options.platform).tensorrt if options.platform else None
    mode = _mode(options)
    request, notes = build_request(options, files)
    request = dataclasses.replace(request, mode=mode)
    beside = files.model
    if mode == "explicit":
        request = dataclasses.replace(request, explicit_model=explicit_model(files, options.model))
        beside = files.folder / f"{files.name}.onnx"
    engine, info = engine_paths(beside, request)
    settings = prepare(
        files, dataclasses.replace(request, save_engine=str(engine), layer_info=str(info or "")), version
    )
    compared = ""
    if options.print == "polygraphy":
        text, compared = _polygraphy(options, settings, files)
    else:
        arguments = trtexec.trtexec_arguments(settings)
        text = trtexec.trtexec_command(arguments)
        if options.script:
            script = Path(options.script)
            refuse_overwriting([script], files)
            content = trtexec.shell_script(settings, arguments, script.parent)
            write_file(script, content.encode("utf-8", "surrogateescape"), mode=0o777)
            text = f"Wrote {script}\n"
    print_notes((*notes, *settings.notes))
    sys.stdout.write(text)
    if compared:
        made = polygraphy.comparison_files(settings)
        words = ["verify", compared, made["inputs"], "-t", str(files.model)]
        words += ["--device_results", made["engine_outputs"]]
        print_commands(f"qdq-translator {shlex.join(words)}", stream=sys.stderr)
    elif mode == "implicit" and info is not None and not options.layer_info:
        print_next(files, "", "trtexec", info)
    return 0


def _mode(options: Options) -> str:
    """The network to build, in trtexec's words. Raises UsageError for what its command cannot express."""
    mode = {"int8": "implicit"}.get(options.precision, options.precision)
    if mode not in MODES:
        raise UsageError(f"trtexec builds no engine of --precision {mode} alone.", "Choose int8, fp16, best, explicit.")
    if mode != "implicit" and (options.script or options.print == "polygraphy"):
        raise UsageError("Only --precision int8 has a script, and commands of Polygraphy.", "Leave --precision out.")
    if options.script and options.print == "polygraphy":
        raise UsageError("--script writes a script for trtexec.", "Drop polygraphy or --script.")
    return mode


def _polygraphy(options: Options, settings: Settings, files: TranslationFiles) -> Tuple[str, str]:
    """Commands for Polygraphy, and the explicit model with which their outputs are compared, '' for none."""
    commands, compared = [polygraphy.polygraphy_arguments(settings)], ""
    if not options.dla_standalone and not options.skip_inference:
        compared = find_explicit(files, options.model)
        commands += polygraphy.comparison_commands(settings, compared) if compared else []
    return "\n".join(map(polygraphy.polygraphy_command, commands)), compared


def _explicit(options: Options) -> int:
    """The command for a network written by `explicit`, as its report specifies."""
    model = Path(options.translation)
    if not model.is_file():
        raise UserError(f"{model} does not exist.", "Run 'qdq-translator explicit' first.")
    if options.precision != "int8" or options.script or options.print == "polygraphy":
        raise UsageError("A network with Q/DQ has a trtexec command only.", "Leave --precision and --script out.")
    request, version = explicit_request(options)
    print(trtexec.trtexec_command(trtexec.explicit_arguments(model, request, version)), end="")
    return 0
