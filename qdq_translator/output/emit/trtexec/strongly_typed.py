"""trtexec's command line for an explicit network (`NAME_explicit.onnx`): TensorRT 11, or 10.x with `--stronglyTyped`.

In 11 precisions, caches and typed formats are gone: types are those of the graph, and `--inputIOFormats` takes layouts alone. A
standalone build for a DLA needs them.
"""

from __future__ import annotations

from pathlib import Path

from qdq_translator.core.errors import UsageError
from qdq_translator.output.emit.trtexec.checks import complete_shapes, dims_text
from qdq_translator.output.emit.trtexec.command import Argument
from qdq_translator.output.emit.trtexec.request import BuildRequest, Network, Version, engine_paths

SUFFIX = "_explicit.onnx"
_LAYOUT = "dla_linear"


def explicit_arguments(model: Path, request: BuildRequest, version: Version) -> list[Argument]:
    """Raises UsageError for what strong typing does not have."""
    if request.precision_constraints:
        raise UsageError("An explicit network has no precision constraints.", "Leave --precision_constraints out.")
    layouts = {
        end: _layouts(getattr(request, f"{end}_io_formats"), f"--{end}_io_formats") for end in ("input", "output")
    }
    arguments = [Argument("--onnx", str(model), "path")]
    if version[0] < 11:
        arguments.append(Argument("--stronglyTyped"))
    if request.on_dla:
        arguments += [Argument("--useDLACore", str(request.dla_core)), Argument("--adjustForDLA")]
        if request.dla_standalone:
            arguments.append(Argument("--buildDLAStandalone"))
            layouts = {end: text or _LAYOUT for end, text in layouts.items()}
        elif request.allow_gpu_fallback:
            arguments.append(Argument("--allowGPUFallback"))
    for end, text in layouts.items():
        if text:
            arguments.append(Argument(f"--{end}IOFormats", text))
    network = Network.read(model)
    shapes = complete_shapes(request, network)
    for index, flag in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        if shapes:
            lists = ",".join(f"{name}:{dims_text(triple[index])}" for name, triple in shapes.items())
            arguments.append(Argument(flag, lists))
    if request.pools:
        arguments.append(Argument("--memPoolSize", ",".join(f"{n}:{s:g}" for n, s in request.pools.items())))
    if request.optimization_level is not None:
        arguments.append(Argument("--builderOptimizationLevel", str(request.optimization_level)))
    if request.timing_cache:
        arguments.append(Argument("--timingCacheFile", request.timing_cache, "path"))
    engine, info = engine_paths(model.with_name(model.name.replace(SUFFIX, ".onnx")), "explicit", request)
    arguments.append(Argument("--saveEngine", str(engine), "path"))
    if info is not None:
        arguments += [Argument("--profilingVerbosity", "detailed"), Argument("--exportLayerInfo", str(info), "path")]
    flags = {"--skipInference": request.skip_inference, "--verbose": request.verbose}
    return [*arguments, *(Argument(flag) for flag, wanted in flags.items() if wanted)]


def _layouts(text: str, option: str) -> str:
    if ":" in text:
        raise UsageError(
            f"{option} {text}: formats of TensorRT 11 carry no type.",
            "Name layouts alone (dla_linear, chw16); types are those of the graph: explicit --io_types.",
        )
    return text
