"""Builds the TensorRT engine or DLA loadable of a translation with TensorRT's Python API.

The scales are provided twice: through a calibrator that serves the calibration cache, and as the range of every tensor
of the network (+-127 * scale, fact 2.1; a range overrides the cache, fact 1.15). TensorRT is silent about names that
match nothing, so they are counted here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence

from qdq_translator.board.engine.versions import MIB, Api
from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache, is_usable
from qdq_translator.core.words import by_x, listed
from qdq_translator.translation.files.trtexec.checks import complete_shapes
from qdq_translator.translation.files.trtexec.request import (
    DLA_FORMATS,
    DLA_INPUT_FORMATS,
    BuildRequest,
    Network,
    direct_format,
    parse_formats,
    per_tensor,
)


@dataclasses.dataclass(frozen=True)
class BuildJob:
    """The input of a build. request: its mode is 'implicit' (INT8 with FP16), 'fp16' or 'fp32' (the baseline of the
    same network), 'explicit' (`model` has Q/DQ nodes, which determine precisions) or 'typed' (it has the types of all
    tensors too, because `explicit` wrote it). `cache`, `layers` (layer name -> precision) and `gpu_layers` (that the
    plan leaves to the GPU) belong to an implicit build only."""

    model: Path
    request: BuildRequest = dataclasses.field(default_factory=BuildRequest)
    cache: Optional[CalibrationCache] = None
    layers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gpu_layers: Sequence[str] = ()

    @property
    def implicit(self) -> bool:
        return self.request.mode == "implicit"

    @property
    def explicit(self) -> bool:
        return self.request.mode in ("explicit", "typed")

    def check(self) -> None:
        """Raises UsageError for incompatible settings."""
        request = self.request
        if request.mode == "explicit" and request.on_dla:
            raise UsageError(
                "The DLA of TensorRT 8 to 10 cannot run Q/DQ models (fact 4.9: implicit INT8 only).",
                "Build the translation for it; for TensorRT 11 build the output of 'qdq-translator explicit'.",
            )
        if request.on_dla and request.mode == "fp32":
            raise UsageError("The DLA computes in INT8 and FP16 only.", "Use --precision fp16.")
        if not request.on_dla and (request.allow_gpu_fallback or request.dla_standalone):
            raise UsageError("--allow_gpu_fallback and --dla_standalone are for a DLA.", "Add --target orin-dla.")
        if request.dla_standalone and request.allow_gpu_fallback:
            raise UsageError("A DLA loadable has no GPU to fall back to.", "Drop --allow_gpu_fallback.")


@dataclasses.dataclass
class Matched:
    """How many names matched something in the network, and which did not.

    `missing`: parts of the network that were left unchanged (tensors without scale, layers that accept no precision);
    `unmatched`: names of ours without a counterpart in the network.
    """

    count: int = 0
    missing: list[str] = dataclasses.field(default_factory=list)
    unmatched: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class BuildResult:
    """`engine`: the bytes of the engine or loadable; `layer_info`: TensorRT's JSON about it, None for a loadable.

    `gpu_layers`: layers that the DLA cannot run individually; `messages`: TensorRT's log as (E, W, I or V; text).
    """

    messages: list[tuple[str, str]]
    engine: bytes = b""
    layer_info: Optional[str] = None
    scales: Matched = dataclasses.field(default_factory=Matched)
    layers: Matched = dataclasses.field(default_factory=Matched)
    gpu_layers: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0


def build(job: BuildJob, api: Api, verbose: bool = False, progress: bool = False) -> BuildResult:
    """Build `job`. Raises UserError with TensorRT's own message if it refuses.

    `verbose` prints TensorRT's log to stderr; `progress` shows its phases there if this version reports them.
    """
    job.check()
    return _Build(job, api, verbose).run(progress)


class _Build:
    """One build; attributes keep objects alive that TensorRT references."""

    def __init__(self, job: BuildJob, api: Api, verbose: bool) -> None:
        self.job, self.api, self.trt, self.request = job, api, api.trt, job.request
        self.logger = make_logger(api, verbose)
        self.calibrator: Any = None
        self.made = BuildResult(self.logger.messages)
        self.notes, self.scales, self.layers = self.made.notes, self.made.scales, self.made.layers
        self.strongly_typed = job.request.mode == "typed" or (job.explicit and not api.has_implicit)

    def run(self, progress: bool) -> BuildResult:
        started = time.monotonic()
        try:
            self.builder = self.trt.Builder(self.logger)
        except (TypeError, RuntimeError) as error:  # pybind11's message for a null factory
            raise self._failed(
                "could not start",
                "It needs an NVIDIA GPU and its driver on this machine; on a Jetson check 'groups' for "
                "video and render.",
                str(error),
            ) from error
        if self.request.on_dla:
            self._check_cores()
        self.network = self.builder.create_network(self.api.network_flags(self.strongly_typed))
        self.config = self.builder.create_builder_config()
        self._parse()
        self._configure_device()
        if not self.strongly_typed:
            self._configure_precision()
        shapes = self._profile()
        self._formats()
        if self.job.implicit:
            self._set_scales(shapes)
            self._set_layer_precisions()
        self._configure_builder()
        if self.request.on_dla:
            layers = self._network_layers()
            self.made.gpu_layers = [layer.name for layer in layers if not self.config.can_run_on_DLA(layer)]
        with self._progress(progress):
            memory = self.builder.build_serialized_network(self.network, self.config)
        if memory is None:
            raise self._failed("could not build the engine", self._how_to_fix())
        made = self.made
        made.engine = bytes(memory)
        self._after_build()
        if not (self.request.dla_standalone or self.api.is_rtx):
            made.layer_info = self._layer_info(made.engine)
        made.seconds = time.monotonic() - started
        return made

    # ---------------------------------------------------------------- the network

    def _check_cores(self) -> None:
        cores, core = self.builder.num_DLA_cores, self.request.dla_core
        if cores == 0:
            without = " and public TensorRT packages from 10.8 to 11.3" if self.api.version >= (10, 8, 0) else ""
            raise UserError(
                f"TensorRT finds no DLA on this machine (PCs and Orin Nano{without} have none).",
                "Build on an Orin NX, AGX Orin or Xavier, or with --target gpu.",
            )
        if not 0 <= core < cores:
            raise UsageError(f"There is no DLA core {core}.", f"Cores here are 0 to {cores - 1}.")

    def _parse(self) -> None:
        parser = self.parser = self.trt.OnnxParser(self.network, self.logger)
        for flag in self.api.parser_flags(self.request.parser_flags):
            parser.set_flag(flag)
        if any(name.upper() == "REPORT_CAPABILITY_DLA" for name in self.request.parser_flags):
            parser.set_builder_config(self.config)
        if not parser.parse_from_file(str(self.job.model)):
            errors = [self.api.describe_parser_error(parser.get_error(i)) for i in range(parser.num_errors)]
            raise self._failed(
                f"does not read {self.job.model}",
                "Check the operator there, or simplify the model before translating it.",
                "; ".join(errors),
            )
        kinds = (self.trt.LayerType.QUANTIZE, self.trt.LayerType.DEQUANTIZE)
        quantizers = [layer.name for layer in self._network_layers() if layer.type in kinds]
        if self.job.explicit and not quantizers:
            raise UserError(
                f"{self.job.model} has no Q/DQ nodes, so there is nothing explicit in it.",
                "Give the model with Q/DQ: build model.onnx.",
            )
        if self.job.implicit and quantizers:
            raise UserError(
                f"{self.job.model} still has {len(quantizers)} Q/DQ layers (first: '{quantizers[0]}'); with them "
                "TensorRT would ignore the calibration cache.",
                "Translate the model again, or build the model with Q/DQ: build model.onnx.",
            )

    def _network_layers(self) -> Iterator[Any]:
        for index in range(self.network.num_layers):
            yield self.network.get_layer(index)

    def _ends(self) -> dict[str, list[Any]]:
        network = self.network
        return {
            "input": [network.get_input(i) for i in range(network.num_inputs)],
            "output": [network.get_output(i) for i in range(network.num_outputs)],
        }

    # ---------------------------------------------------------------- the configuration

    def _configure_device(self) -> None:
        if not self.request.on_dla:
            return
        config = self.config
        config.default_device_type = self.trt.DeviceType.DLA
        config.DLA_core = self.request.dla_core
        if self.request.allow_gpu_fallback:
            config.set_flag(self.api.flag("GPU_FALLBACK"))
        else:
            # the GPU would do the reformatting of network inputs and outputs (fact 3.11)
            config.set_flag(self.api.flag("DIRECT_IO"))
        if self.request.dla_standalone:
            config.engine_capability = self.trt.EngineCapability.DLA_STANDALONE

    def _configure_precision(self) -> None:
        # FP16 as well as INT8: layers without scale would run in FP32, or not at all on a DLA (fact 3.10);
        # exactly one of obey and prefer (fact 2.6)
        int8 = ("INT8", "FP16", f"{self.request.constraints.upper()}_PRECISION_CONSTRAINTS")
        for name in {"fp16": ("FP16",), "fp32": ()}.get(self.request.mode, int8):
            self.config.set_flag(self.api.flag(name))

    def _profile(self) -> Any:
        inputs = {t.name: tuple(t.shape) for t in self._ends()["input"]}
        request = self.request
        if not any(-1 in dims for dims in inputs.values()):
            for bound in ("min", "opt", "max"):
                for name, shape in getattr(request, f"{bound}_shapes").items():
                    if inputs.get(name) != tuple(shape):
                        has = ", ".join(f"{n}:{by_x(d)}" for n, d in inputs.items())
                        raise UsageError(
                            f"--{bound}_shapes: '{name}' is not an input of that shape, and all inputs are static.",
                            f"Inputs are {has}.",
                        )
            return None
        profile = self.builder.create_optimization_profile()
        for name, (low, mid, high) in complete_shapes(request, Network(inputs, (), ())).items():
            profile.set_shape(name, low, mid, high)
        if self.config.add_optimization_profile(profile) < 0:
            raise self._failed("refuses the shapes", "Correct --min_shapes, --opt_shapes and --max_shapes.")
        return profile

    def _formats(self) -> None:
        """Types and formats of the network's inputs and outputs."""
        direct = self.request.on_dla and not self.request.allow_gpu_fallback
        for end, tensors in self._ends().items():
            option = f"--{end}_io_formats"
            text = str(getattr(self.request, option[2:])) or ("dla_linear" if direct and self.strongly_typed else "")
            if self.strongly_typed:  # the graph specifies the types
                for tensor, entry in self._each(text.split(",") if text else [], tensors, option):
                    tensor.allowed_formats = self.api.format_mask(entry.split("+"))
                continue
            entries = parse_formats(text, option, self.api.version, self.notes)
            if direct and not entries:
                entries = [direct_format(is_usable(self._int8_scale(t.name)), end) for t in tensors]
                each_one = ", ".join(f"{t.name} {e}" for t, e in zip(tensors, entries))
                self.notes.append(
                    f"Without GPU fallback the DLA reads and writes itself; chosen: {each_one} ({option})."
                )
            for tensor, entry in self._each(entries, tensors, option):
                self._set_format(tensor, entry, end, option, direct)

    def _each(self, entries: Sequence[str], tensors: Sequence[Any], option: str) -> Iterator[tuple[Any, str]]:
        """Tensors with their entries; none without entries."""
        each = per_tensor(entries, {t.name: tuple(t.shape) for t in tensors}, option)
        return ((tensor, each[tensor.name]) for tensor in tensors if each)

    def _int8_scale(self, name: str) -> float:
        """The scale of a tensor in an implicit build, 0 if it has none."""
        return self.job.cache.scales.get(name, 0.0) if self.job.implicit and self.job.cache else 0.0

    def _set_format(self, tensor: Any, entry: str, end: str, option: str, direct: bool) -> None:
        kind, _, formats = entry.partition(":")
        keys, known = formats.split("+"), DLA_INPUT_FORMATS if end == "input" else DLA_FORMATS
        for key in keys if direct else ():
            if f"{kind}:{key}" not in known:
                raise UsageError(
                    f"{option}: the DLA alone has no {kind}:{key} for an {end}.", f"Choose from {', '.join(known)}."
                )
        if kind == "int8" and self.job.implicit and not is_usable(self._int8_scale(tensor.name)):
            raise UserError(
                f"The INT8 network {end} '{tensor.name}' has no scale in the calibration cache.",
                "Quantize it in the model, or choose fp16 for it.",
            )
        tensor.dtype = self.api.data_type(kind)
        tensor.allowed_formats = self.api.format_mask(keys)

    def _configure_builder(self) -> None:
        config, request = self.config, self.request
        config.profiling_verbosity = self.trt.ProfilingVerbosity.DETAILED
        for name, mib in request.pools.items():
            config.set_memory_pool_limit(self.api.pool(name), int(mib * MIB))
        if request.builder_optimization_level is not None:
            if self.api.version[:2] < (8, 6):
                raise UserError(
                    "This TensorRT has no builder optimization level (it came with 8.6).",
                    "Leave --builder_optimization_level out.",
                )
            config.builder_optimization_level = request.builder_optimization_level
        if request.timing_cache:
            path = Path(request.timing_cache)
            stored = path.read_bytes() if path.is_file() else b""
            self.timing_cache = config.create_timing_cache(stored)
            if self.timing_cache is None or not config.set_timing_cache(self.timing_cache, False):
                self.notes.append(f"TensorRT does not take the timing cache {path}; it is rebuilt.")
                self.timing_cache = config.create_timing_cache(b"")
                config.set_timing_cache(self.timing_cache, False)

    # ---------------------------------------------------------------- scales and precisions

    def _set_scales(self, profile: Any) -> None:
        if self.job.cache is None:
            raise UserError("An implicit INT8 build needs a calibration cache.", "Translate the model again.")
        cache, number = self.job.cache, self.api.cache_number
        usable = {name: scale for name, scale in cache.scales.items() if is_usable(scale)}
        dropped = len(cache.scales) - len(usable)
        if dropped or cache.unreadable:
            self.notes.append(
                f"{dropped + len(cache.unreadable)} lines of the calibration cache have no usable scale and are "
                "ignored."
            )
        served = CalibrationCache(number, usable)
        if cache.header != served.header:
            self.notes.append(
                f"The cache header {cache.header or '(none)'} is served as {served.header}, the number of this "
                "TensorRT; the file stays as it is."
            )
        self.calibrator = make_calibrator(self.api, served.to_text().encode("utf-8", "surrogateescape"))
        self.config.int8_calibrator = self.calibrator
        if profile is not None:
            self.config.set_calibration_profile(profile)  # calibration asks for one (fact 2.10)
        seen = set()
        for tensor in self._float_tensors():
            name = tensor.name
            seen.add(name)
            scale = usable.get(name)
            if scale is None:
                self.scales.missing.append(name)
            elif tensor.set_dynamic_range(-127.0 * scale, 127.0 * scale):
                self.scales.count += 1
            else:
                self.notes.append(f"TensorRT refuses the range of tensor '{name}'.")
        self.scales.unmatched = [name for name in usable if name not in seen]

    def _float_tensors(self) -> Iterator[Any]:
        """Every tensor of the network that can have a range, each once."""
        made = (layer.get_output(i) for layer in self._network_layers() for i in range(layer.num_outputs))
        seen = set()
        for tensor in (*self._ends()["input"], *made):
            if tensor is None or tensor.name in seen or tensor.is_shape_tensor:
                continue
            # an INT8 input or output was float before its format was set, and needs its range more than any other
            if self.api.is_float(tensor.dtype) or tensor.dtype == self.trt.DataType.INT8:
                seen.add(tensor.name)
                yield tensor

    def _set_layer_precisions(self) -> None:
        wanted, moved = dict(self.job.layers), set(self.job.gpu_layers if self.request.allow_gpu_fallback else ())
        for layer in self._network_layers():
            if layer.name in moved:
                self.config.set_device_type(layer, self.trt.DeviceType.GPU)
            precision = wanted.pop(layer.name, None)
            if precision is None:
                continue
            outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
            if layer.type == self.trt.LayerType.SHAPE or not any(
                self.api.is_float(t.dtype) or t.is_network_output for t in outputs if t
            ):
                self.layers.missing.append(layer.name)  # integer and shape layers accept no precision (fact 3.19)
                continue
            layer.precision = self.api.data_type(precision)
            # as trtexec logs it, for check-engine --log
            self.logger.messages.append(("I", f"Set layer {layer.name} to precision {precision}"))
            self.layers.count += 1
        self.layers.unmatched = list(wanted)

    # ---------------------------------------------------------------- after the build

    @contextlib.contextmanager
    def _progress(self, wanted: bool) -> Iterator[None]:
        if not wanted or not self.api.has_progress_monitor:
            yield
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(file=getattr(sys.stderr, "device", sys.stderr)), transient=True) as display:
            self.monitor = make_progress(self.api, display)
            self.config.progress_monitor = self.monitor
            yield

    def _after_build(self) -> None:
        if self.calibrator is not None and self.calibrator.asked_for_data:
            self.notes.append(
                "TensorRT rejected the calibration cache and asked for calibration data; only the ranges that were set "
                "tensor by tensor are used."
            )
        if self.request.timing_cache:
            write_file(Path(self.request.timing_cache), bytes(self.config.get_timing_cache().serialize()))

    def _layer_info(self, engine: bytes) -> str:
        runtime = self.runtime = self.trt.Runtime(self.logger)
        if self.request.on_dla:
            runtime.DLA_core = self.request.dla_core
        loaded = runtime.deserialize_cuda_engine(engine)
        if loaded is None:
            raise self._failed("cannot load the engine that it has just built", "Check the memory of this machine.")
        inspector = loaded.create_engine_inspector()
        return str(inspector.get_engine_information(self.trt.LayerInformationFormat.JSON))

    def _how_to_fix(self) -> str:
        text = " ".join(message for letter, message in self.logger.messages if letter in "EW")
        if self.calibrator is not None and self.calibrator.asked_for_data:
            return (
                "TensorRT did not take the calibration cache and wanted data; translate for this version (--platform)."
            )
        if "not supported on DLA" in text or "GPU fallback" in text:
            names = [f"'{name}'" for name in self.made.gpu_layers]
            refused = f" The DLA does not take {listed(names, 5)}." if names else ""
            return f"Add --allow_gpu_fallback, or translate with --dla_rewrites.{refused}"
        if "memory" in text.lower():
            return "Give it more memory: --mem_pools workspace:MIB, and close other programs on the GPU."
        if self.request.mode not in ("fp16", "fp32") and self.request.constraints == "obey":
            return "Try --precision_constraints prefer; --verbose shows the whole log."
        return "--verbose shows the whole log."

    def _failed(self, what: str, hint: str, words: str = "") -> UserError:
        """A UserError with TensorRT's last messages."""
        errors = list(dict.fromkeys(text.strip() for letter, text in self.logger.messages if letter == "E"))
        if words:
            errors = [words, *(e for e in errors if e not in words)]
        said = " | ".join(errors[-3:]) if errors else "it gives no reason"
        return UserError(f"{self.api.product} {what}: {said.rstrip('.')}.", hint)


# ---------------- callbacks, derived from the classes of the TensorRT that is loaded


def make_logger(api: Api, echo: bool = False) -> Any:
    """An ILogger that keeps `messages`: (letter E, W, I or V, text), and logs them if `echo` is set."""
    severity = api.trt.ILogger.Severity
    names = {"INTERNAL_ERROR": "E", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}
    letters = {getattr(severity, name): letter for name, letter in names.items()}

    class Collector(api.trt.ILogger):  # type: ignore[name-defined]
        def __init__(self) -> None:
            api.trt.ILogger.__init__(self)
            self.messages: list[tuple[str, str]] = []

        def log(self, severity: Any, msg: str) -> None:
            letter = letters.get(severity, "I")
            self.messages.append((letter, msg))
            if echo:
                logging.getLogger("qdq_translator").log(logging.INFO, "[%s] [TRT] %s", letter, msg)

    return Collector()


def make_calibrator(api: Api, cache: bytes) -> Any:
    """An IInt8EntropyCalibrator2 (required by DLA and trtexec, fact 1.5) that provides only `cache`.

    `asked_for_data` becomes True if TensorRT rejected the cache and tried to calibrate; it then gets no data.
    """

    class CacheCalibrator(api.trt.IInt8EntropyCalibrator2):  # type: ignore[name-defined]
        def __init__(self) -> None:
            api.trt.IInt8EntropyCalibrator2.__init__(self)
            self.asked_for_data = False

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: Any) -> None:
            self.asked_for_data = True

        def read_calibration_cache(self) -> bytes:
            return cache

        def write_calibration_cache(self, cache: Any) -> None:
            """Writes nothing: our file stays unchanged."""

    return CacheCalibrator()


def make_progress(api: Api, display: Any) -> Any:
    """An IProgressMonitor that draws TensorRT's phases into a `rich.progress.Progress`."""

    class Monitor(api.trt.IProgressMonitor):  # type: ignore[name-defined]
        def __init__(self) -> None:
            api.trt.IProgressMonitor.__init__(self)
            self.tasks: dict[str, Any] = {}

        def phase_start(self, phase_name: str, parent_phase: Any, num_steps: int) -> None:
            self.tasks[phase_name] = display.add_task(phase_name, total=num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            display.update(self.tasks[phase_name], completed=step + 1)
            return True

        def phase_finish(self, phase_name: str) -> None:
            display.remove_task(self.tasks.pop(phase_name))

    return Monitor()
