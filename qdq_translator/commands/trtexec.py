"""`qdq-translator trtexec`: the trtexec command that builds a translation."""

import dataclasses
from typing import List, Optional

from qdq_translator.options import TARGETS, option


@dataclasses.dataclass
class Options:
    """Print the trtexec command that builds a translation, ready to paste into a shell, or write a script that checks
    the files, mends the header of the calibration cache where TensorRT's version is another one, and runs it."""

    translation: str = option(
        "--translation", "-t", metavar="PATH", help="the output folder of translate, or a NAME_noqdq.onnx"
    )
    target: str = option("--target", default="gpu", choices=TARGETS, help="what the engine runs on")
    dla_core: int = option("--dla_core", default=0, metavar="N", help="which DLA core (default: 0)", show_default=False)
    allow_gpu_fallback: bool = option(
        "--allow_gpu_fallback", default=False, help="layers that the DLA cannot run go to the GPU"
    )
    dla_standalone: bool = option("--dla_standalone", default=False, help="build a DLA loadable for cuDLA")
    precision_constraints: Optional[str] = option(
        "--precision_constraints",
        default=None,
        choices=("obey", "prefer"),
        help="how strictly the planned precisions hold (default: obey on the GPU, prefer on a DLA)",
    )
    input_io_formats: str = option(
        "--input_io_formats",
        default="",
        metavar="TYPE:FORMAT,...",
        help="one for all inputs or one each, e.g. int8:dla_hwc4",
    )
    output_io_formats: str = option(
        "--output_io_formats", default="", metavar="TYPE:FORMAT,...", help="the same for outputs, e.g. fp16:chw16"
    )
    min_shapes: List[str] = option(
        "--min_shapes", default=[], nargs="+", metavar="NAME:DIMS", help="smallest shapes of dynamic inputs"
    )
    opt_shapes: List[str] = option(
        "--opt_shapes",
        default=[],
        nargs="+",
        metavar="NAME:DIMS",
        help="shapes to optimise for, e.g. images:8x3x640x640",
    )
    max_shapes: List[str] = option("--max_shapes", default=[], nargs="+", metavar="NAME:DIMS", help="largest shapes")
    mem_pools: List[str] = option(
        "--mem_pools",
        default=[],
        nargs="+",
        metavar="POOL:MIB",
        help="workspace, dlaSRAM, dlaLocalDRAM, dlaGlobalDRAM in MiB, e.g. workspace:2048",
    )
    save_engine: Optional[str] = option(
        "--save_engine",
        default=None,
        metavar="FILE",
        help="the engine (default: NAME.engine or NAME.loadable beside the model)",
    )
    layer_info: Optional[str] = option(
        "--layer_info",
        default=None,
        metavar="FILE",
        help="layer information for check-engine (default: NAME_layer_info.json beside the model; none for a loadable)",
    )
    timing_cache: str = option("--timing_cache", default="", metavar="FILE", help="timing cache to read and update")
    builder_optimization_level: Optional[int] = option(
        "--builder_optimization_level", default=None, metavar="N", help="0 to 5 (default: TensorRT's)"
    )
    skip_inference: bool = option("--skip_inference", default=False, help="build only, do not time the engine")
    platform: Optional[str] = option(
        "--platform", default=None, metavar="NAME", help="e.g. jetpack-6.2: the TensorRT version to write for"
    )
    trt_version: Optional[str] = option(
        "--trt_version",
        default=None,
        metavar="VERSION",
        help="the TensorRT version to write for, e.g. 8.6 or 10.3 (default: from --platform, else the cache's header)",
    )
    script: Optional[str] = option(
        "--script", default=None, metavar="FILE", help="write a shell script instead of printing"
    )
    tool: str = option("--tool", default="trtexec", choices=("trtexec", "polygraphy"), help="whose command")
    verbose: bool = option("--verbose", default=False, help="trtexec's verbose log (and tracebacks of our errors)")


def run(options: Options) -> int:
    """Prints the command on stdout and notes on stderr, or writes the script."""
    import sys
    from pathlib import Path

    from qdq_translator.emit import trtexec
    from qdq_translator.emit.files import TranslationFiles
    from qdq_translator.errors import UsageError
    from qdq_translator.io import appear_together
    from qdq_translator.options import parse_shapes
    from qdq_translator.targets.platforms import find_platform

    files = TranslationFiles.locate(options.translation)
    version = None
    if options.trt_version:
        version = trtexec.parse_version(options.trt_version)
    elif options.platform:
        version = find_platform(options.platform).tensorrt
    if options.script and options.tool != "trtexec":
        raise UsageError("--script writes a script for trtexec.", "Drop --tool polygraphy or --script.")
    standalone = options.dla_standalone
    engine = options.save_engine or str(files.folder / f"{files.name}.{'loadable' if standalone else 'engine'}")
    layer_info = options.layer_info or ("" if standalone else str(files.folder / f"{files.name}_layer_info.json"))
    request = trtexec.BuildRequest(
        target=options.target,
        dla_core=options.dla_core,
        allow_gpu_fallback=options.allow_gpu_fallback,
        dla_standalone=standalone,
        precision_constraints=options.precision_constraints or "",
        input_io_formats=options.input_io_formats,
        output_io_formats=options.output_io_formats,
        min_shapes=parse_shapes(options.min_shapes),
        opt_shapes=parse_shapes(options.opt_shapes),
        max_shapes=parse_shapes(options.max_shapes),
        pools=trtexec.parse_pools(options.mem_pools),
        save_engine=engine,
        layer_info=layer_info,
        timing_cache=options.timing_cache,
        optimization_level=options.builder_optimization_level,
        skip_inference=options.skip_inference,
        verbose=options.verbose,
    )
    settings = trtexec.prepare(files, request, version)
    if options.tool == "polygraphy":
        text = trtexec.polygraphy_command(trtexec.polygraphy_arguments(settings))
    else:
        arguments = trtexec.trtexec_arguments(settings)
        text = trtexec.trtexec_command(arguments)
        if options.script:
            script = Path(options.script)
            with appear_together(script.parent) as scratch:
                (scratch / script.name).write_text(
                    trtexec.shell_script(settings, arguments, script.parent), encoding="utf-8", newline="\n"
                )
                (scratch / script.name).chmod(0o755)
            text = f"Wrote {script}\n"
    for note in settings.notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.write(text)
    return 0
