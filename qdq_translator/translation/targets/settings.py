"""Settings of a translation, resolved once: later code does not parse options or check installed software."""

from __future__ import annotations

import dataclasses
import re
from typing import Mapping, Optional, Sequence, Union

from qdq_translator.core.boards import find_board
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.options import IMAGES, PRESETS, TranslateOptions, parse_methods
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.core.rules import RULES
from qdq_translator.translation.scales.inference.context import Policy
from qdq_translator.translation.targets import platforms
from qdq_translator.translation.targets.cost.gpu import GpuModel, gpu_model
from qdq_translator.translation.targets.cost.model import NO_FIGURE, CostModel, choose_model

ANY_RULE = "*"


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Scales from data (rules K1, K2). data: a file or a folder. samples: the most to read. method: of all tensors but
    those of `own`: operator -> method for its outputs. recalibrate: tensors, or the number of worst ones."""

    data: str
    samples: Optional[int]
    image_mean: Sequence[float]
    image_std: Sequence[float]
    resize: str
    colors: str
    layout: str
    method: str
    own: Mapping[str, str]
    outputs: bool
    ignore_nonfinite: bool
    recalibrate: Union[int, tuple[str, ...]]
    equalize: bool = False


@dataclasses.dataclass(frozen=True)
class Settings:
    """Fields with the name of an option have its value. input_shapes: sizes for dynamic graph inputs; fixed:
    graph input -> its value. cost: the model of time on a DLA (or None) and its description, or why there is none. gpu:
    the model of time on the GPU. rewrites: 'off', 'on', 'force' or 'approximate'. image_outputs: rule D16.
    assume_scales: a plan only, as if every tensor had a scale. float_model: a model without quantizers is allowed.
    refuted: rewrite rule (or ANY_RULE) -> node to which it must not be applied -> reason (rules F12 and R1).
    given: scales of a calibration cache for a float model, applied before all others. saturating:
    symmetric quantizers whose saturation the planned engine does not have (rule Q9). idle:
    (quantizer, 0 or 1) of lower and upper bounds that no data reach."""

    hardware: platforms.Hardware
    input_shapes: dict[str, list[int]]
    fixed: dict[str, float]
    cost: tuple[Optional[CostModel], str]
    gpu: GpuModel
    policy: Policy
    calibration: Optional[Calibration]
    rewrites: str
    image_outputs: bool
    assume_scales: bool
    float_model: bool
    asymmetric: str
    per_channel_activations: str
    missing_zero_point: str
    on_conflict: str
    weights: str
    calibration_type: str
    keep_fp16: Sequence[str]
    graph_optimizer: str
    rename_node_outputs: bool
    scales: Optional[str]
    keep_model: bool
    refuted: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    given: Optional[Mapping[str, float]] = None
    gpu_module: Optional[str] = None
    saturating: frozenset[str] = frozenset()
    idle: frozenset[tuple[str, int]] = frozenset()


def resolve(
    options: TranslateOptions,
    diagnostics: Optional[Diagnostics] = None,
    assume_scales: bool = False,
    explicit: bool = False,
    given: Optional[Mapping[str, float]] = None,
) -> Settings:
    """Settings of the options. explicit: for a network with Q/DQ, for TensorRT 10 and later. Raises UsageError for
    impossible options, UserError for TensorRT 11 and later if `explicit` is not set. diagnostics: receives notes and
    warnings."""
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    _check(options, explicit)
    calibration = _calibration(options)
    hardware = explicit_hardware(options) if explicit else resolve_hardware(options, diagnostics)
    hardware = dataclasses.replace(hardware, assumed=(options.assume,) if options.assume else ())
    if hardware.generation and hardware.platform is not None:
        _warn_of_platform(options, hardware.platform, diagnostics)
    from_data = calibration is not None or assume_scales or given is not None
    same = (field.name for field in dataclasses.fields(Settings) if field.name in options.__dataclass_fields__)
    return Settings(
        hardware,
        options.sizes,
        options.fixed,
        _cost_model(options, hardware),
        gpu_model(options.power_mode or "MAXN", _gpu_module(options) or "agx-orin", options.float_type == "fp32"),
        scale_policy(options),
        calibration,
        _rewrites(options),
        options.dla_output == "4d",
        assume_scales,
        from_data or bool(options.scales and options.keep_model),
        given=given,
        gpu_module=_gpu_module(options),
        **{name: getattr(options, name) for name in same},
    )


def with_other_rules(settings: Settings, options: TranslateOptions) -> Settings:
    """The settings with the scale rules and rewrites of `options`."""
    return dataclasses.replace(settings, policy=scale_policy(options), rewrites=_rewrites(options))


def scale_policy(options: TranslateOptions) -> Policy:
    """The scale rules that the options enable."""
    switches = dict.fromkeys(name for row in RULES.values() for name in row.options)
    return Policy(
        frozenset(name for name in switches if getattr(options, name)),
        tuple(options.addtl_ops_to_infer_adjacent_scales),
        options.inference,
        options.target,
        options.unify_scales,
        options.max_bits_lost,
        options.calibrate is not None,
        options.keep_norm_fp16,
    )


def _calibration(options: TranslateOptions) -> Optional[Calibration]:
    method, own = parse_methods(options.calibrate_method)
    named = options.recalibrate
    if options.calibrate is None:
        for name in ("recalibrate", "equalize"):
            if getattr(options, name):
                raise UsageError(f"--{name} needs inputs.", "Give them with --calibrate.")
        return None
    worst = re.fullmatch(r"worst:(\d+)", named[0]) if len(named) == 1 else None
    recalibrate = int(worst[1]) if worst else tuple(named)
    same = {name: getattr(options, name) for name in (*IMAGES, "ignore_nonfinite", "equalize")}
    data, samples, outputs = options.calibrate, options.calibrate_samples, options.calibrate_outputs
    return Calibration(data, samples, method=method, own=own, outputs=outputs, recalibrate=recalibrate, **same)


def _rewrites(options: TranslateOptions) -> str:
    value = False if options.keep_model else options.dla_rewrites
    mode = value if isinstance(value, str) else "on" if value else "off"
    if mode not in ("off", "on", "force", "approximate"):
        raise UsageError(
            f"--dla_rewrites {mode} is not known.", "Use --dla_rewrites, or --dla_rewrites list, force or approximate."
        )
    return mode


def _check(options: TranslateOptions, explicit: bool) -> None:
    """Raises UsageError for impossible values, and if `--without` names an option that the preset does not set."""
    flags = [name for name in PRESETS.get(options.preset or "", {}) if name != "target"]
    for name in options.without:
        if not flags:
            raise UsageError(
                f"--without {name} has nothing to leave out: with --as_is nothing is added.", "Leave it out."
            )
        if name not in flags:
            raise UsageError(
                f"--without {name}: that is not among what is added.",
                did_you_mean(name, flags) or f"It sets {', '.join(flags)}.",
            )
    if not 0 <= options.max_bits_lost <= 64:
        raise UsageError(
            f"--max_bits_lost {options.max_bits_lost!s:.20} is not possible.", "Give a number of bits, 0 or more."
        )
    if options.dla_output != "same" and not options.dla_rewrites:
        raise UsageError("--dla_output 4d is a rewrite for the DLA.", "Add --dla_rewrites, or give --on dla.")
    for name, value in (("asymmetric", options.asymmetric), ("unify_scales", options.unify_scales)):
        if value in ("data", "requantize") and not options.calibrate:
            raise UsageError(f"--{name} {value} computes ranges from inputs.", "Give them with --calibrate.")
    _check_target(options, explicit)


def _check_target(options: TranslateOptions, explicit: bool) -> None:
    """Raises UsageError for options that the target or `--keep_model` does not allow."""
    if options.asymmetric == "keep" and not (explicit and options.target == "orin-dla"):
        raise UsageError(
            "--asymmetric keep is for explicit networks on Orin's DLA: elsewhere zero points are 0.",
            "Use 'qdq-translator explicit --on dla', or --asymmetric widen.",
        )
    if options.keep_model and options.rename_node_outputs:
        raise UsageError("--keep_model keeps every name.", "Leave --rename_node_outputs out.")
    if options.keep_model and options.unify_scales == "requantize":
        raise UsageError("--keep_model adds no layers.", "Leave --unify_scales requantize out.")
    if options.cache_algorithm != "entropy2" and options.target != "gpu":
        raise UsageError(
            f"A DLA needs a cache of entropy2 (fact 1.5), not {options.cache_algorithm}.",
            "Leave --cache_algorithm out.",
        )


def _warn_of_platform(options: TranslateOptions, platform: platforms.Platform, diagnostics: Diagnostics) -> None:
    """Warn of features of the target DLA that the user's platform lacks."""
    if not platform.dla and platform.note:
        diagnostics.warning(
            "D0",
            f"The target is {options.target}, and {platform.name} has no DLA: {platform.note} ({platform.source}).",
            hint="Use another --platform, or translate with --on gpu.",
        )
    if platform.dla_too_old:
        diagnostics.warning(
            "D0", f"{platform.dla_too_old}.", hint="Check accuracy and layers on the board, or use JetPack 6 and later."
        )
    if options.add_unary_ew_scales_for_dla and platform.dla and platform.tensorrt < platforms.TRANSLATED_SINCE:
        diagnostics.warning(
            "S9",
            f"{platform.name} is older than DLA software 3.13, which unary scales before Add need (fact 6.8).",
            hint="Leave --add_unary_ew_scales_for_dla out: --infer_add_scales gives such tensors a range.",
        )


def _gpu_module(options: TranslateOptions) -> Optional[str]:
    return find_board(options.board).board.gpu if options.board else None


def _cost_model(options: TranslateOptions, hardware: platforms.Hardware) -> tuple[Optional[CostModel], str]:
    platform = "" if hardware.platform is None else hardware.platform.name
    chosen = choose_model(options.power_mode, options.dla_clock, options.cost_model, platform)
    board = find_board(options.board).board if options.board else None
    covered = hardware.generation == "orin" and (board is None or board.gpu == "agx-orin")
    if not covered and options.cost_model is None:
        return None, f"{board.name if board else hardware.target}: {NO_FIGURE}"
    return chosen


def explicit_hardware(options: TranslateOptions) -> platforms.Hardware:
    """Hardware of a network with Q/DQ. Without `--platform`: TensorRT 11.4.1, the first 11.x with a DLA. Raises
    UserError for platforms without strong typing, and for Xavier's DLA, which no TensorRT 11 supports."""
    name = options.platform or ("tensorrt-11.4.1" if options.target == "gpu" else "jetpack-7.2.2")
    platform = platforms.find_platform(name, explicit=True)
    if platform.tensorrt < (10, 0, 0) or options.target == "xavier-dla":
        what = (
            "TensorRT 8 is not strongly typed" if options.target != "xavier-dla" else "Xavier's DLA has no TensorRT 11"
        )
        raise UserError(f"{what}.", "Use 'qdq-translator translate' there: implicit quantization.")
    return platforms.Hardware(options.target, platform.cache_version, "platform", platform)


def resolve_hardware(options: TranslateOptions, diagnostics: Diagnostics) -> platforms.Hardware:
    """`--trt_calib_version`, else `--platform`, else the installed TensorRT, else 8600 with a note."""
    target = options.target
    platform = platforms.find_platform(options.platform) if options.platform else None
    if options.trt_calib_version:
        number = str(options.trt_calib_version)
        if not (number.isascii() and number.isdigit()) or not 4 <= len(number) <= 6 or number.startswith("0"):
            raise UsageError(
                f"--trt_calib_version {number} is not a TensorRT version number.",
                "It counts like 8602 (8.6.2) or 100300 (10.3.0).",
            )
        if platforms.tensorrt_version(number)[0] >= 11:
            raise UserError(
                (
                    f"--trt_calib_version {number} means TensorRT {platforms.tensorrt_version(number)[0]}, which has "
                    "no implicit quantization."
                ),
                "Use 'qdq-translator explicit' there.",
            )
        return platforms.Hardware(target, number, "option", platform)
    if platform is not None:
        return platforms.Hardware(target, platform.cache_version, "platform", platform)
    installed = platforms.installed_tensorrt()
    if installed is not None and installed[0] < 11:
        return platforms.Hardware(target, platforms.cache_version(installed), "installed")
    diagnostics.info(
        "F6",
        f"No platform was given and no TensorRT with implicit INT8 is installed: the cache header has "
        f"{platforms.DEFAULT_CACHE_VERSION}. TensorRT 10 rejects it.",
        hint="Give the target with --platform (for example jetpack-6.2) or --trt_calib_version.",
    )
    return platforms.Hardware(target, platforms.DEFAULT_CACHE_VERSION, "default")
