"""The options that `build` and `trtexec` share: the same engine, made here or by a command."""

import dataclasses
from typing import TYPE_CHECKING, List, Optional

from qdq_translator.options import TARGETS, model_option, option, parse_shapes, translation_option

if TYPE_CHECKING:
    from qdq_translator.emit.trtexec import BuildRequest


@dataclasses.dataclass
class EngineOptions:
    """Names and grammar follow trtexec."""

    translation: str = translation_option()
    model: str = model_option()
    target: str = option("--target", default="gpu", choices=TARGETS, help="hardware to build for")
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

    def request(self) -> "BuildRequest":
        """What was asked for, but for the paths of engine and layer information and for `verbose`."""
        from qdq_translator.emit.trtexec import BuildRequest, parse_pools

        return BuildRequest(
            target=self.target,
            dla_core=self.dla_core,
            allow_gpu_fallback=self.allow_gpu_fallback,
            dla_standalone=self.dla_standalone,
            precision_constraints=self.precision_constraints or "",
            input_io_formats=self.input_io_formats,
            output_io_formats=self.output_io_formats,
            min_shapes=parse_shapes(self.min_shapes),
            opt_shapes=parse_shapes(self.opt_shapes),
            max_shapes=parse_shapes(self.max_shapes),
            pools=parse_pools(self.mem_pools),
            timing_cache=self.timing_cache,
            optimization_level=self.builder_optimization_level,
        )
