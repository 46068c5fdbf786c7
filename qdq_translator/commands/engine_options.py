"""The options that `build` and `trtexec` share: the same engine, made here or by a command."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.options import TARGETS, model_option, parse_shapes, setting, translation_option
from qdq_translator.core.words import others
from qdq_translator.output.emit.trtexec.request import BuildRequest, Remembered, Version, parse_pools
from qdq_translator.targets.platforms import find_platform


@dataclass
class EngineOptions:
    """Names and grammar follow trtexec."""

    translation: str = translation_option()
    model: str = model_option()
    target: Optional[str] = setting("hardware to build for (default: that of the translation)", None, choices=TARGETS)
    platform: Optional[str] = setting(
        "e.g. jetpack-6.2: the platform that builds the engine (default: that of the translation)", None, metavar="NAME"
    )
    dla_core: int = setting("DLA core: 0 or 1 (default: 0)", 0, metavar="N")
    allow_gpu_fallback: bool = setting("run layers that the DLA does not support on the GPU")
    dla_standalone: bool = setting("build a DLA loadable for cuDLA instead of an engine")
    precision_constraints: Optional[str] = setting(
        "if TensorRT has no kernel for a layer's precision: fail, or use another precision (default: obey on a GPU, "
        "prefer on a DLA)",
        None,
        choices=("obey", "prefer"),
    )
    input_io_formats: str = setting(
        "types and layouts of the inputs in trtexec's grammar, e.g. int8:dla_hwc4; one for all inputs or one for each",
        "",
        metavar="TYPE:FORMAT[,...]",
    )
    output_io_formats: str = setting("the same for the outputs, e.g. fp16:chw16", "", metavar="TYPE:FORMAT[,...]")
    min_shapes: List[str] = setting("smallest sizes of dynamic inputs", [], metavar="NAME:DIMS")
    opt_shapes: List[str] = setting(
        "sizes to optimize for, e.g. images:1x3x640x640 (without the other two: static sizes, as a DLA requires)",
        [],
        metavar="NAME:DIMS",
    )
    max_shapes: List[str] = setting("largest sizes of dynamic inputs", [], metavar="NAME:DIMS")
    mem_pools: List[str] = setting(
        "memory limits in MiB: workspace, dlaSRAM, dlaLocalDRAM, dlaGlobalDRAM; e.g. workspace:2048",
        [],
        metavar="POOL:MIB",
    )
    timing_cache: str = setting("timing cache: read if it exists, written after the build", "", metavar="FILE")
    builder_optimization_level: Optional[int] = setting("TensorRT's optimization level", None, metavar="0-5")
    parser_flags: List[str] = setting(
        "flags of TensorRT's ONNX parser, e.g. report_capability_dla (10.16 and later)", [], metavar="FLAG"
    )
    save_engine: str = setting("file for the engine or loadable (default: next to the model)", "", metavar="FILE")
    layer_info: str = setting("layer information for check-engine (default: next to the model)", "", metavar="FILE")

    def request(
        self, files: "Optional[TranslationFiles]" = None, target: Optional[str] = None
    ) -> "Tuple[BuildRequest, List[str]]":
        """The build request, and notes.

        files: the translation, whose target, platform and shapes are the defaults; target: that of an explicit network.
        A DLA gets its SRAM (as in NVIDIA's own builds). Raises UsageError for options that contradict the translation.
        """
        made = Remembered() if files is None else Remembered.of(files)
        target, notes = made.target_for(self.target) if target is None else (self.target or target, [])
        shapes = parse_shapes(self.opt_shapes)
        if not (self.min_shapes or self.max_shapes) or shapes:
            shapes = {name: list(sizes) for name, sizes in made.sizes_to_build(shapes).items()}
        if files is not None and made.on_dla and not self.allow_gpu_fallback:
            notes += _fallbacks(files)
        platform = made.platform_for(self.platform) if files is not None else None
        if target != "gpu" and platform is not None and not platform.dla and platform.note:
            notes.append(f"{platform.name} has no DLA: {platform.note} ({platform.source}).")
        pools = parse_pools(self.mem_pools)
        if target != "gpu":
            pools.setdefault("dlaSRAM", 1.0)
        same = {field.name for field in dataclasses.fields(BuildRequest)} & vars(self).keys()
        given: Dict[str, Any] = {name: getattr(self, name) for name in same if getattr(self, name) is not None}
        given.update(target=target, pools=pools, opt_shapes=shapes)
        given.update((key, parse_shapes(getattr(self, key))) for key in ("min_shapes", "max_shapes"))
        return BuildRequest(**given), notes

    def explicit_request(self) -> "Tuple[BuildRequest, Version]":
        """The build request for a network with Q/DQ, and the TensorRT version: the report of one written by `explicit`
        gives target, platform and the parser flags for a DLA. Raises UserError for another target."""
        from qdq_translator.workflows.explicit import read_report

        model = Path(self.translation)
        report = read_report(model)
        made = report.get("target")
        if made is not None and self.target not in (None, made):
            raise UserError(
                f"{model} was written for {made}, not for {self.target}.",
                f"Write it with 'qdq-translator explicit --target {self.target}'.",
            )
        request, _ = self.request(target=made or "gpu")
        flags = dict.fromkeys(flag.lower() for flag in self.parser_flags)
        if report and request.on_dla:
            flags.update(dict.fromkeys(report.get("parser_flags", ["adjust_for_dla"])))
        platform = self.platform or report.get("platform") or "tensorrt-11.4.1"
        return dataclasses.replace(request, parser_flags=tuple(flags)), find_platform(platform, explicit=True).tensorrt


def _fallbacks(files: "TranslationFiles") -> List[str]:
    """A word about layers that the plan sends to the GPU."""
    try:
        rows = [row for row in files.read_report()["dla"]["layers"] if row["verdict"] == "gpu"]
    except (UserError, KeyError, TypeError):
        return []
    if not rows:
        return []
    return [
        f"The plan sends {rows[0]['op']} '{rows[0]['name']}'{others(rows)} to the GPU, and without --allow_gpu_fallback the build fails."
    ]
