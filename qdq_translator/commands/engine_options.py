"""The options that `build` and `trtexec` share: the same engine, made here or by a command."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, Tuple

from qdq_translator.core.options import TARGETS, model_option, option, parse_shapes, translation_option

if TYPE_CHECKING:
    from qdq_translator.core.formats.files import TranslationFiles
    from qdq_translator.output.emit.trtexec import BuildRequest


@dataclass
class EngineOptions:
    """Names and grammar follow trtexec."""

    translation: str = translation_option()
    model: str = model_option()
    target: Optional[str] = option(
        "--target", default=None, choices=TARGETS, help="hardware to build for (default: what it was translated for)"
    )
    platform: Optional[str] = option(
        "--platform",
        default=None,
        metavar="NAME",
        help="e.g. jetpack-6.2: where the engine is built (default: what it was translated for)",
    )
    dla_core: int = option("--dla_core", default=0, metavar="N", help="which DLA core: 0 or 1 (default: 0)")
    allow_gpu_fallback: bool = option(
        "--allow_gpu_fallback", default=False, help="layers that the DLA cannot run may go to the GPU"
    )
    dla_standalone: bool = option(
        "--dla_standalone", default=False, help="a DLA loadable for cuDLA instead of an engine"
    )
    precision_constraints: Optional[str] = option(
        "--precision_constraints",
        default=None,
        choices=("obey", "prefer"),
        help="what the precision of a layer means where TensorRT has no such kernel: fail, or take another "
        "(default: obey on a GPU, prefer on a DLA)",
    )
    input_io_formats: str = option(
        "--input_io_formats",
        default="",
        metavar="TYPE:FORMAT[,...]",
        help="types and layouts of the inputs in trtexec's grammar, e.g. int8:dla_hwc4; one for all or one each",
    )
    output_io_formats: str = option(
        "--output_io_formats", default="", metavar="TYPE:FORMAT[,...]", help="the same for the outputs, e.g. fp16:chw16"
    )
    min_shapes: List[str] = option(
        "--min_shapes", default=[], nargs="+", metavar="NAME:DIMS", help="smallest sizes of dynamic inputs"
    )
    opt_shapes: List[str] = option(
        "--opt_shapes",
        default=[],
        nargs="+",
        metavar="NAME:DIMS",
        help="sizes to optimize for, e.g. images:1x3x640x640 (alone: the only size, as a DLA needs it)",
    )
    max_shapes: List[str] = option(
        "--max_shapes", default=[], nargs="+", metavar="NAME:DIMS", help="largest sizes of dynamic inputs"
    )
    mem_pools: List[str] = option(
        "--mem_pools",
        default=[],
        nargs="+",
        metavar="POOL:MIB",
        help="memory limits in MiB: workspace, dlaSRAM, dlaLocalDRAM, dlaGlobalDRAM; e.g. workspace:2048",
    )
    timing_cache: str = option(
        "--timing_cache", default="", metavar="FILE", help="read where it exists, written after the build"
    )
    builder_optimization_level: Optional[int] = option(
        "--builder_optimization_level", default=None, metavar="0-5", help="how long TensorRT searches"
    )
    save_engine: str = option(
        "--save_engine", default="", metavar="FILE", help="the engine or loadable (default: beside the model)"
    )
    layer_info: str = option(
        "--layer_info",
        default="",
        metavar="FILE",
        help="layer information for check-engine (default: beside the model)",
    )

    def request(self, files: "Optional[TranslationFiles]" = None) -> "Tuple[BuildRequest, List[str]]":
        """What was asked for, but for the paths of engine and layer information and for `verbose`; and notes.

        files: the translation, whose target, platform and shapes hold where none are given. A DLA gets its SRAM (NVIDIA's
        own builds do). Raises UsageError for what contradicts the translation.
        """
        from qdq_translator.output.emit.remembered import Remembered
        from qdq_translator.output.emit.trtexec import BuildRequest, parse_pools

        made = Remembered() if files is None else Remembered.of(files)
        target, notes = made.target_for(self.target)
        shapes = parse_shapes(self.opt_shapes)
        if not (self.min_shapes or self.max_shapes) or shapes:
            shapes = {name: list(sizes) for name, sizes in made.sizes_to_build(shapes).items()}
        if files is not None and made.on_dla and not self.allow_gpu_fallback:
            notes += _fallbacks(files)
        platform = made.platform_for(self.platform)
        if target != "gpu" and platform is not None and not platform.dla and platform.note:
            notes.append(f"{platform.name} has no DLA: {platform.note} ({platform.source}).")
        pools = parse_pools(self.mem_pools)
        if target != "gpu":
            pools.setdefault("dlaSRAM", 1.0)
        request = BuildRequest(
            target=target,
            dla_core=self.dla_core,
            allow_gpu_fallback=self.allow_gpu_fallback,
            dla_standalone=self.dla_standalone,
            precision_constraints=self.precision_constraints or "",
            input_io_formats=self.input_io_formats,
            output_io_formats=self.output_io_formats,
            min_shapes=parse_shapes(self.min_shapes),
            opt_shapes=shapes,
            max_shapes=parse_shapes(self.max_shapes),
            pools=pools,
            timing_cache=self.timing_cache,
            optimization_level=self.builder_optimization_level,
        )
        return request, notes


def _fallbacks(files: "TranslationFiles") -> List[str]:
    """A word about layers that the plan sends to the GPU."""
    from qdq_translator.core.errors import UserError
    from qdq_translator.core.words import others

    try:
        rows = [row for row in files.read_report()["dla"]["layers"] if row["verdict"] == "gpu"]
    except (UserError, KeyError, TypeError):
        return []
    if not rows:
        return []
    return [
        f"The plan sends {rows[0]['op']} '{rows[0]['name']}'{others(rows)} to the GPU, and without --allow_gpu_fallback the build fails."
    ]
