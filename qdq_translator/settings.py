"""What a translation was asked for, resolved once: below this nothing parses an option or asks what is installed."""

from __future__ import annotations

import dataclasses
import re
from typing import Mapping, Optional, Union

from qdq_translator.cost.model import NO_FIGURE, CostModel, choose_model
from qdq_translator.diagnostics import Diagnostics
from qdq_translator.errors import UsageError, UserError
from qdq_translator.options import PRESETS, TranslateOptions, parse_methods, parse_shapes
from qdq_translator.parsing import did_you_mean
from qdq_translator.targets.platforms import (
    DEFAULT_CACHE_VERSION,
    Hardware,
    Platform,
    cache_version,
    find_platform,
    installed_tensorrt,
    tensorrt_major,
)

_UNARY_SINCE = (8, 6, 0)
"""TensorRT that comes with DLA software 3.13 (DRIVE OS 6.0.7) or 3.14.1 (JetPack 6.0) (fact 6.8, 7)."""


EVERYWHERE = "*"


@dataclasses.dataclass(frozen=True)
class Settings:
    """input_shapes: sizes for dynamic graph inputs. cost: the model of time on a DLA (None where there is none), and what it
    stands for or why there is none. assume_scales: a plan only, as if every tensor had a scale; the model may be float. refuted:
    rule that rewrites -> nodes (or EVERYWHERE) to which `--prove` found that it may not be applied."""

    options: TranslateOptions
    hardware: Hardware
    input_shapes: dict[str, list[int]]
    cost: tuple[Optional[CostModel], str]
    assume_scales: bool = False
    refuted: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    @property
    def rewrites(self) -> str:
        """`--dla_rewrites`: 'off', 'on' or 'force'. Raises UsageError for anything else."""
        value: Union[bool, str] = self.options.dla_rewrites
        mode = value if isinstance(value, str) else "on" if value else "off"
        if mode not in ("off", "on", "force"):
            raise UsageError(
                f"--dla_rewrites {mode} is not known.", "Say --dla_rewrites, or --dla_rewrites list or force."
            )
        return mode

    @property
    def recalibrate(self) -> Union[int, tuple[str, ...]]:
        """`--recalibrate`: the tensors that it names, or how many of the worst."""
        named = self.options.recalibrate
        worst = re.fullmatch(r"worst:(\d+)", named[0]) if len(named) == 1 else None
        return int(worst[1]) if worst else tuple(named)


def resolve(options: TranslateOptions, diagnostics: Diagnostics) -> Settings:
    """Raises UsageError for what no option can mean, UserError for TensorRT 11 and later."""
    _check_preset(options)
    if options.dla_output != "same" and not options.dla_rewrites:
        raise UsageError("--dla_output 4d is a rewrite for the DLA.", "Add --dla_rewrites, or take --preset dla.")
    if options.prove and not options.dla_rewrites:
        raise UsageError("--prove is about rewrites for the DLA.", "Add --dla_rewrites, or take --preset dla.")
    parse_methods(options.calibrate_method)
    hardware = resolve_hardware(options, diagnostics)
    if hardware.generation and hardware.platform is not None:
        _warn_of_platform(options, hardware.platform, diagnostics)
    return Settings(options, hardware, parse_shapes(options.shapes), _cost_model(options, hardware))


def _check_preset(options: TranslateOptions) -> None:
    """Raises UsageError where `--without` names what the preset does not set."""
    flags = [name for name in PRESETS.get(options.preset or "", {}) if name != "target"]
    for name in options.without:
        if not flags:
            raise UsageError(f"--without {name} needs a --preset to leave it out of.", "Leave --without out.")
        if name not in flags:
            raise UsageError(
                f"--preset {options.preset} does not set '{name}'.",
                did_you_mean(name, flags) or f"It sets {', '.join(flags)}.",
            )


def _warn_of_platform(options: TranslateOptions, platform: Platform, diagnostics: Diagnostics) -> None:
    """What the user's platform does not have of the DLA that is the target."""
    if not platform.dla and platform.note:
        diagnostics.warning(
            "D0",
            f"The target is {options.target}, and {platform.name} has no DLA: {platform.note} ({platform.source}).",
            hint="Name another --platform, or translate with --target gpu.",
        )
    if options.add_unary_ew_scales_for_dla and platform.dla and platform.tensorrt < _UNARY_SINCE:
        diagnostics.warning(
            "S9",
            f"{platform.name} comes before DLA software 3.13, and unary scales between Conv and Add need it (fact 6.8).",
            hint="Leave --add_unary_ew_scales_for_dla out: --infer_add_scales gives such tensors a range.",
        )


def _cost_model(options: TranslateOptions, hardware: Hardware) -> tuple[Optional[CostModel], str]:
    platform = "" if hardware.platform is None else hardware.platform.name
    chosen = choose_model(options.power_mode, options.dla_clock, options.cost_model, platform)
    if hardware.generation != "orin" and options.cost_model is None:
        return None, f"{hardware.target}: {NO_FIGURE}"
    return chosen


def resolve_hardware(options: TranslateOptions, diagnostics: Diagnostics) -> Hardware:
    """`--trt_calib_version`, else `--platform`, else the installed TensorRT, else 8600 with a note."""
    target = options.target
    platform = find_platform(options.platform) if options.platform else None
    if options.trt_calib_version:
        number = str(options.trt_calib_version)
        if not number.isdigit() or not 4 <= len(number) <= 6 or number.startswith("0"):
            raise UsageError(
                f"--trt_calib_version {number} is not a TensorRT version number.",
                "It counts like 8602 (8.6.2) or 100300 (10.3.0).",
            )
        if tensorrt_major(number) >= 11:
            raise UserError(
                f"--trt_calib_version {number} means TensorRT {tensorrt_major(number)}, which has no implicit quantization.",
                "Build the Q/DQ model itself there, strongly typed ('qdq-translator restore --complete').",
            )
        return Hardware(target, number, "option", platform)
    if platform is not None:
        return Hardware(target, platform.cache_version, "platform", platform)
    installed = installed_tensorrt()
    if installed is not None and installed[0] < 11:
        return Hardware(target, cache_version(installed), "installed")
    diagnostics.info(
        "F6",
        f"No platform was named and no TensorRT with implicit INT8 is installed: the cache header says {DEFAULT_CACHE_VERSION}. "
        "TensorRT 10 rejects it.",
        hint="Name the target with --platform (for example jetpack-6.2) or --trt_calib_version.",
    )
    return Hardware(target, DEFAULT_CACHE_VERSION, "default")
