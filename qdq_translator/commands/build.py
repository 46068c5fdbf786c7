"""`qdq-translator build`: the TensorRT engine or DLA loadable of a translation."""

import dataclasses
import sys
from pathlib import Path
from typing import List, Optional

from qdq_translator.board.engine import versions
from qdq_translator.board.engine.builder import BuildJob, BuildResult, build
from qdq_translator.board.engine.versions import Api
from qdq_translator.commands import trtexec
from qdq_translator.commands.located import is_explicit, print_next, print_notes
from qdq_translator.commands.trtexec import build_request, explicit_request
from qdq_translator.core.command_options import BuildOptions as Options
from qdq_translator.core.disk import check_outputs, write_file
from qdq_translator.core.errors import MissingDependency, UsageError, UserError
from qdq_translator.core.formats.files import TranslationFiles, locate
from qdq_translator.core.words import dotted, listed
from qdq_translator.translation.files.trtexec import explicit_arguments, trtexec_arguments, trtexec_command
from qdq_translator.translation.files.trtexec.checks import prepare
from qdq_translator.translation.files.trtexec.request import Remembered, engine_paths

_SHOWN = 10


def run(options: Options) -> int:
    """Builds and reports. Exit status 0, or an error."""
    if options.file is not None:
        options = options.changed(translation=options.file, file=None)
    return trtexec.run(options) if options.print or options.script else _build(options)


def _build(options: Options) -> int:
    if options.precision in ("best", "explicit"):
        raise UsageError(f"--precision {options.precision} is for --print.", "Add it, for the trtexec command.")
    if options.engine == "rtx" and not is_explicit(options.translation):
        raise UsageError("TensorRT-RTX has no implicit quantization.", "Give a network with Q/DQ: NAME_explicit.onnx.")
    job = _job(options)
    job.check()
    engine, info = engine_paths(job.model, job.request)
    api = _loaded(options, job, engine, info)
    outputs = [Path(path) for path in (engine, info, options.log, options.timing_cache) if path]
    check_outputs(outputs, [job.model] if job.explicit else TranslationFiles.locate(options.translation))
    _warn_of_version(options, api)
    result = build(job, api, options.verbose, progress=sys.stderr.isatty() and not options.verbose)
    write_file(engine, result.engine)
    if result.layer_info is not None and info is not None:
        write_file(info, result.layer_info.encode())
    if options.log:
        text = "".join(f"[{letter}] [TRT] {message}\n" for letter, message in result.messages)
        write_file(Path(options.log), text.encode("utf-8", "surrogateescape"))
    _print_summary(options, job, result)
    print(f"{engine}: {len(result.engine)} bytes, built by {api.product} in {result.seconds:.1f} s.")
    if result.layer_info is not None:
        print(f"{info}: layer information")
        if job.implicit:
            print_next(TranslationFiles.locate(options.translation, options.model), "", "build", info)
    return 0


def _loaded(options: Options, job: BuildJob, engine: Path, info: Optional[Path]) -> Api:
    """The builder. Prints the equivalent trtexec command before it raises MissingDependency for one that is missing."""
    try:
        return versions.load(options.engine, is_explicit(options.translation))
    except MissingDependency as missing:
        try:
            print(equivalent_trtexec(options, job, engine, info), end="")
        except UserError as error:
            raise MissingDependency(missing.what, f"{missing.hint} For a trtexec command: {error}") from error
        raise


def _job(options: Options) -> BuildJob:
    if options.dla_standalone and options.layer_info:
        raise UsageError("TensorRT has no layer information about a DLA loadable.", "Leave --layer_info out.")
    level = options.builder_optimization_level
    if level is not None and not 0 <= level <= 5:
        raise UsageError(f"--builder_optimization_level {level} does not exist.", "Levels are 0 to 5.")
    if is_explicit(options.translation):
        if options.precision != "int8":
            raise UsageError("A network with Q/DQ is built as it is.", "Leave --precision out.")
        return BuildJob(Path(options.translation), explicit_request(options)[0])
    files = locate(options.translation, options.model)
    request, notes = build_request(options, files)
    print_notes(notes)
    if options.precision != "int8":
        return BuildJob(files.model, dataclasses.replace(request, mode=options.precision))
    moved = files.read_config().get("gpu_nodes", []) if files.config.exists() else []
    return BuildJob(
        files.model, request, cache=files.read_cache(), layers=files.read_layer_precisions(), gpu_layers=moved
    )


def _warn_of_version(options: Options, api: Api) -> None:
    """Print a note if the installed TensorRT is not that of the platform of the translation."""
    made = (
        Remembered() if is_explicit(options.translation) else Remembered.of(locate(options.translation, options.model))
    )
    platform = made.platform_for(options.platform)
    if platform is not None and platform.tensorrt[:2] != api.version[:2]:
        note = (
            f"TensorRT {api.dotted} is installed, and the translation is for {platform.name} with TensorRT "
            f"{dotted(platform.tensorrt)}: tensors that only its own network has may have other names there."
        )
        print_notes([note])


def equivalent_trtexec(options: Options, job: BuildJob, engine: Path, info: Optional[Path]) -> str:
    """The equivalent trtexec command for a shell; notes about it are printed to stderr.

    Raises UserError if trtexec's grammar cannot express it.
    """
    request = dataclasses.replace(job.request, save_engine=str(engine), layer_info=str(info or ""))
    if job.explicit:
        version = (11, 4, 1) if job.request.mode == "typed" else (10, 0, 0)
        return trtexec_command(explicit_arguments(job.model, request, version))
    settings = prepare(locate(options.translation, options.model), request)
    arguments = trtexec_arguments(settings)
    print_notes(settings.notes)
    return trtexec_command(arguments)


def _print_summary(options: Options, job: BuildJob, result: BuildResult) -> None:
    def names(given: List[str]) -> str:
        most = len(given) if options.verbose else _SHOWN
        more = " (--verbose lists them)" if len(given) > most else ""
        return f"{len(given)}: {listed(given, most)}{more}"

    for note in result.notes:
        print(f"note: {note}")
    if job.implicit:
        scales, layers = result.scales, result.layers
        print(f"Tensors of the network with a range from the calibration cache: {scales.count}")
        if scales.missing:
            print(f"  float tensors without scale (their layers are not INT8): {names(scales.missing)}")
        if scales.unmatched:
            print(f"  names of the cache that are no tensor there: {names(scales.unmatched)}")
        print(f"Layer precisions set ({job.request.constraints}): {layers.count} of {len(job.layers)}")
        if layers.unmatched:
            print(f"  names that match no layer: {names(layers.unmatched)}")
        if layers.missing:
            print(f"  layers of integers or shapes, which take none: {names(layers.missing)}")
    if result.gpu_layers:
        print(f"Layers that the DLA does not take one by one (TensorRT may fold them): {names(result.gpu_layers)}")
    warnings = [message for letter, message in result.messages if letter == "W"]
    if warnings:
        print(f"Warnings of TensorRT: {len(warnings)}, the first: {warnings[0].strip()}")
