"""Checks of a request against the network, the cache and the trtexec of that version (fact 3).

trtexec is silent about most mistakes, so they are found here.
"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Iterable, Mapping, Optional, Sequence, Tuple

from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache, is_usable
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.layer_precisions import is_expressible
from qdq_translator.core.words import by_x, dotted
from qdq_translator.translation.files.trtexec.request import (
    DLA_FORMATS,
    DLA_INPUT_FORMATS,
    BuildRequest,
    Network,
    Version,
    direct_format,
    parse_formats,
    parse_version,
    per_tensor,
)
from qdq_translator.translation.targets.platforms import cache_version, dla_too_old

_STANDALONE_INPUTS = (*DLA_INPUT_FORMATS, "int8:chw4", "fp16:chw4")
Shapes = Tuple[Tuple[int, ...], Tuple[int, ...], Tuple[int, ...]]
"""min, opt, max."""


@dataclasses.dataclass
class Settings:
    """A checked request. `shapes`: input -> (min, opt, max), for every input or none. gpu_layers: layers that the plan
    leaves to the GPU. formats: `type:format+format`."""

    files: TranslationFiles
    request: BuildRequest
    version: Version
    network: Network
    cache: CalibrationCache
    layers: dict[str, str]
    input_formats: list[str]
    output_formats: list[str]
    shapes: dict[str, Shapes]
    gpu_layers: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def model(self) -> Path:
        """The model to build."""
        return Path(self.request.explicit_model) if self.request.mode in ("explicit", "typed") else self.files.model


def prepare(files: TranslationFiles, request: BuildRequest, version: Optional[Version] = None) -> Settings:
    """Checks the request. `version`: by default that of the cache's header.

    Raises UserError or UsageError with a remedy; mere information is added to `notes`.
    """
    cache = files.read_cache()
    version = version or parse_version(cache.version or "8600")
    notes = _header_notes(cache.version, version)
    explicit = request.mode == "explicit"
    network = Network.read(Path(request.explicit_model) if explicit else files.model)
    _check_device(request, version)
    if request.target == "orin-dla" and not explicit and dla_too_old("", version):
        notes.append(f"{dla_too_old(f'TensorRT {dotted(version)}', version)}.")
    _check_mode(request, version)
    formats = {
        end: parse_formats(text, f"--{end}_io_formats", version, notes)
        for end, text in (("input", request.input_io_formats), ("output", request.output_io_formats))
    }
    _check_formats(request, version, network, cache, formats, notes)
    layers = files.read_layer_precisions() if request.mode == "implicit" else {}
    shapes = complete_shapes(request, network)
    for name in layers:
        if not is_expressible(name):
            raise UserError(
                f"{files.layer_arg} names a layer {name!r}, which trtexec's grammar cannot express.",
                "Translate the model again.",
            )
    for name in shapes:
        if not is_expressible(name):
            raise UserError(
                f"trtexec's grammar cannot express the input name {name!r} in a list of shapes.",
                "Rename the input, or use 'qdq-translator build'.",
            )
    ends = formats["input"], formats["output"]
    return Settings(files, request, version, network, cache, layers, *ends, shapes, _on_gpu(files, request), notes)


def _on_gpu(files: TranslationFiles, request: BuildRequest) -> list[str]:
    """The layers that the plan for a DLA leaves to the GPU."""
    if not request.on_dla or request.mode != "implicit" or not files.config.exists():
        return []
    return [name for name in files.read_config().get("gpu_nodes", ()) if is_expressible(name)]


def _header_notes(number: str, version: Version) -> list[str]:
    """What to know about the header of the cache, whose number this is, a sentence each."""
    if number and parse_version(number)[:2] == version[:2]:
        return []
    return [
        f"The cache header has {number or 'nothing'}, and TensorRT {dotted(version)} skips a cache of another version: "
        f"translate with --trt_calib_version {cache_version(version)}, or let --script write a script that puts the "
        "right header into a copy."
    ]


def prepare_network(model: Path, request: BuildRequest, version: Version) -> Settings:
    """Check a request for a network with Q/DQ: mode 'explicit', or 'typed' for the output of `explicit`. No cache, no
    layer argument; TensorRT 11 has no typed formats, and a standalone build needs layouts there.

    Raises UserError or UsageError for settings that do not apply to it."""
    if request.precision_constraints:
        raise UsageError("An explicit network has no precision constraints.", "Leave --precision_constraints out.")
    if request.mode != "typed" and request.on_dla:
        _check_mode(request, version)
    _check_device(request, version)
    layouts: dict[str, list[str]] = {}
    for end, text in (("input", request.input_io_formats), ("output", request.output_io_formats)):
        if request.mode == "typed" and ":" in text:
            raise UsageError(
                f"--{end}_io_formats {text}: formats of TensorRT 11 carry no type.",
                "Name layouts alone (dla_linear, chw16); types are those of the graph: explicit --io_types.",
            )
        layouts[f"{end}_formats"] = [text or "dla_linear"] if text or request.dla_standalone else []
    files, request = TranslationFiles(model.parent, model.stem), dataclasses.replace(request, explicit_model=str(model))
    network = Network.read(model)
    shapes = complete_shapes(request, network)
    return Settings(files, request, version, network, CalibrationCache("", {}), {}, shapes=shapes, **layouts)


def _check_device(request: BuildRequest, version: Version) -> None:
    if not request.on_dla:
        given = [n for n in ("allow_gpu_fallback", "dla_standalone", "dla_core") if getattr(request, n)]
        dla_pools = [p for p in request.pools if p != "workspace"]
        if given or dla_pools:
            what = f"--{given[0]}" if given else f"memory pool {dla_pools[0]}"
            raise UsageError(f"{what} is for a DLA target.", "Add --target orin-dla (or xavier-dla).")
        return
    if request.dla_standalone:
        if request.allow_gpu_fallback:
            raise UsageError("A DLA loadable has no GPU to fall back to.", "Drop --allow_gpu_fallback.")
        if version < (8, 6, 0):
            raise UserError(
                f"trtexec of TensorRT {dotted(version)} has no --buildDLAStandalone (it came with 8.6).",
                "Build with TensorRT 8.6 or later, or with --safe there.",
            )
    if request.dla_core not in (0, 1):
        raise UsageError("--dla_core is 0 or 1.", "Orin and Xavier have two cores.")


def _check_mode(request: BuildRequest, version: Version) -> None:
    if request.mode in ("fp16", "fp32") and "int8:" in f"{request.input_io_formats},{request.output_io_formats}":
        raise UsageError(
            f"An engine in {request.mode.upper()} has no INT8 inputs or outputs.",
            "Choose fp16 formats, or another --precision.",
        )
    if request.mode == "explicit" and request.on_dla:
        raise UserError(
            f"TensorRT {dotted(version)} builds Q/DQ models for a GPU only: a DLA supports them from TensorRT 11.4.1 "
            "on (fact 0.2).",
            "Leave --precision explicit out (implicit INT8 is the way to that DLA), or choose --target gpu.",
        )
    if request.builder_optimization_level is not None and version < (8, 6, 0):
        raise UserError(
            f"TensorRT {dotted(version)} has no builder optimization level (it came with 8.6).",
            "Leave --builder_optimization_level out, or name another version.",
        )
    if request.profile and (request.skip_inference or request.dla_standalone):
        what = "--skip_inference" if request.skip_inference else "a DLA loadable"
        raise UsageError(f"A profile needs inference, and {what} has none.", "Leave --profile out.")


def _check_formats(
    request: BuildRequest,
    version: Version,
    network: Network,
    cache: CalibrationCache,
    formats: dict[str, list[str]],
    notes: list[str],
) -> None:
    """Completes the entries of 'input' and 'output' in `formats`."""
    ends: dict[str, Mapping[str, Sequence[int]]] = {
        "input": network.inputs,
        "output": dict.fromkeys(network.outputs, ()),
    }
    if request.dla_standalone:
        _check_standalone(formats)
    elif request.on_dla and not request.allow_gpu_fallback and not all(formats.values()):
        for end, names in ends.items():
            formats[end] = formats[end] or [direct_format(is_usable(cache.scales.get(n, 0.0)), end) for n in names]
        notes.append(
            "Without --allow_gpu_fallback trtexec sets DIRECT_IO, and the DLA reads and writes itself: types and "
            "layouts are chosen. --input_io_formats and --output_io_formats choose others, for example int8:dla_hwc4 "
            "and fp16:chw16."
        )
    int8 = []
    for end, shapes in ends.items():
        entries = formats[end]
        each = per_tensor(entries, shapes, f"--{end}_io_formats")
        int8 += [(end, name) for name, entry in each.items() if entry.startswith("int8:")]
        if len(set(entries)) == 1:
            formats[end] = entries[:1]
    for end, name in int8:
        if name not in cache.scales:
            raise UserError(
                f"The INT8 network {end} '{name}' has no scale in the calibration cache, so trtexec would fail.",
                "Quantize it in the model, or choose fp16 for it.",
            )
    if int8:
        _check_int8_ends(version, cache, len(network.inputs), len(formats["output"]))


def _check_standalone(formats: dict[str, list[str]]) -> None:
    for end, allowed in (("input", _STANDALONE_INPUTS), ("output", DLA_FORMATS)):
        wrong = [entry for entry in formats[end] if entry not in allowed]
        if wrong or not formats[end]:
            found = f"'{wrong[0]}' is none a DLA loadable can have" if wrong else "a DLA loadable needs it"
            raise UsageError(f"--{end}_io_formats: {found}.", f"Choose from {', '.join(allowed)}.")


def _check_int8_ends(version: Version, cache: CalibrationCache, inputs: int, formats: int) -> None:
    """The reason why trtexec would fail with INT8 inputs or outputs. formats: of the outputs."""
    if cache.unreadable:
        number, line = cache.unreadable[0]
        raise UserError(
            f"Line {number} of the calibration cache ({line!r}) makes trtexec fail for INT8 inputs and outputs.",
            "Translate the model again.",
        )
    if version[0] < 10 and formats not in (0, 1, inputs):
        raise UserError(
            f"trtexec of TensorRT {dotted(version)} compares the output formats with the number of INPUTS "
            f"({formats} against {inputs}) and fails.",
            "Use one format for all outputs, or 'qdq-translator build'.",
        )


def complete_shapes(request: BuildRequest, network: Network) -> dict[str, Shapes]:
    """(min, opt, max) of every input, or nothing for a static model.

    With --calib trtexec needs shapes for the static inputs too (fact 3.19). Raises UserError if the shapes do not fit.
    """
    given = {"min": request.min_shapes, "opt": request.opt_shapes, "max": request.max_shapes}
    named = set()
    for bound, shapes in given.items():
        for name in shapes:
            named.add(name)
            if name not in network.inputs:
                raise UsageError(
                    f"--{bound}_shapes: there is no input '{name}'.", f"Inputs are {', '.join(network.inputs)}."
                )
    dynamic = [name for name, dims in network.inputs.items() if -1 in dims]
    if not dynamic and named:
        raise UsageError("The model's inputs are static, and trtexec then refuses shapes.", "Leave the shapes out.")
    for name in dynamic:
        if name not in named:
            dims = network.inputs[name]
            example = shlex.quote(f"{name}:{by_x(abs(size) for size in dims)}")  # 1 for an unknown size
            raise UserError(
                f"Input '{name}' has dynamic dimensions {by_x(dims)}.",
                f"Give --opt_shapes (and --min_shapes, --max_shapes), for example --opt_shapes {example}.",
            )
    return {name: _shapes(name, dims, request) for name, dims in network.inputs.items()} if dynamic else {}


def _shapes(name: str, dims: tuple[int, ...], request: BuildRequest) -> Shapes:
    bounds = (request.min_shapes, request.opt_shapes, request.max_shapes)
    low, opt, high = (tuple(given.get(name, ())) for given in bounds)
    opt = opt or high or low or dims
    shapes = (low or opt, opt, high or opt)
    for shape in shapes:
        if len(shape) != len(dims) or any(d not in (-1, s) for d, s in zip(dims, shape)):
            raise UserError(
                f"Shape {by_x(shape)} does not fit input '{name}', which is {by_x(dims)} (-1: any size).",
                "Correct the shape.",
            )
    if any(sorted(sizes) != list(sizes) for sizes in zip(*shapes)):
        raise UsageError(f"The shapes of '{name}' are not in the order min, opt, max.", "Correct them.")
    if request.on_dla and len(set(shapes)) > 1:
        raise UsageError(
            f"The DLA needs static shapes: min, opt and max of '{name}' differ.", "Give --opt_shapes alone."
        )
    return shapes


def shell_command(program: str, words: Iterable[str]) -> str:
    """One command over several lines, to paste into a shell. `words` are already quoted."""
    return " \\\n  ".join([program, *words]) + "\n"
