"""The arguments of `polygraphy` that build the same engine, and those that compare it with the explicit model."""

from __future__ import annotations

import shlex
from typing import Mapping, Sequence

from qdq_translator.core.errors import UserError
from qdq_translator.translation.files.trtexec.checks import Settings, shell_command
from qdq_translator.translation.files.trtexec.request import POOLS, BuildRequest, per_tensor

_POLYGRAPHY_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def polygraphy_arguments(settings: Settings) -> list[str]:
    """The equivalent arguments of `polygraphy`.

    Its grammar differs: every layer is a separate word, split at its last ':', without wildcards or quotes; types are
    `float16`, pools are bytes, formats name their tensor; a DLA is always core 0. Raises UserError for unsupported
    requests.
    """
    request, files = settings.request, settings.files
    if request.on_dla and request.dla_core != 0:
        raise UserError(
            "Polygraphy builds for DLA core 0 only.", "Use --dla_core 0, trtexec, or 'qdq-translator build'."
        )
    words = ["convert", str(files.model), "--model-type", "onnx", "--convert-to", "trt"]
    words += ["-o", request.save_engine or f"{files.name}.engine"]
    words += ["--int8", "--fp16", "--calibration-cache", str(files.cache), *_of_device(request)]
    if settings.layers:
        words += ["--precision-constraints", request.constraints, "--layer-precisions"]
        words += [f"{name}:{_POLYGRAPHY_TYPES.get(p, p)}" for name, p in settings.layers.items()]
    formats = {
        **per_tensor(settings.input_formats, dict.fromkeys(settings.network.inputs, ())),
        **per_tensor(settings.output_formats, dict.fromkeys(settings.network.outputs, ())),
    }
    words += _of_tensors(formats, settings)
    if request.pools:
        words += ["--pool-limit", *(f"{POOLS[n]}:{int(mib * (1 << 20))}" for n, mib in request.pools.items())]
    if request.builder_optimization_level is not None:
        words += ["--builder-optimization-level", str(request.builder_optimization_level)]
    if request.timing_cache:
        words += ["--load-timing-cache", request.timing_cache, "--save-timing-cache", request.timing_cache]
    words += ["--profiling-verbosity", "detailed", *["--verbose"] * request.verbose]
    wrong = [name for name in (*settings.layers, *formats, *settings.shapes) if name.startswith("-")]
    if wrong:
        raise UserError(f"Polygraphy would read the name '{wrong[0]}' as an option.", "Use trtexec.")
    if request.layer_info:
        settings.notes.append(
            "Polygraphy writes no layer information while converting; "
            "'polygraphy inspect model ENGINE --show layers attrs' shows it."
        )
    return words


def _of_device(request: BuildRequest) -> list[str]:
    if not request.on_dla:
        return []
    # as trtexec sets DIRECT_IO: without a GPU the DLA reads and writes the given formats
    words = ["--use-dla", "--allow-gpu-fallback" if request.allow_gpu_fallback else "--direct-io"]
    return [*words, *["--engine-capability", "dla_standalone"] * request.dla_standalone]


def _of_tensors(entries: Mapping[str, str], settings: Settings) -> list[str]:
    """Types, formats and shapes. entries: tensor -> 'TYPE:FORMAT+FORMAT'."""
    words, formats = [], {name: entry.split(":") for name, entry in entries.items()}
    if formats:
        words += ["--tensor-dtypes", *(f"{n}:{_POLYGRAPHY_TYPES.get(kind, kind)}" for n, (kind, _) in formats.items())]
        linear = {n: ["linear" if k == "chw" else k for k in given.split("+")] for n, (_, given) in formats.items()}
        words += ["--tensor-formats", *(f"{n}:[{','.join(keys)}]" for n, keys in linear.items())]
    for index, flag in enumerate(("--trt-min-shapes", "--trt-opt-shapes", "--trt-max-shapes")):
        if settings.shapes:
            words.append(flag)
            words += [f"{n}:[{','.join(map(str, triple[index]))}]" for n, triple in settings.shapes.items()]
    return words


LEAST_COSINE = 0.99
"""`polygraphy run` fails below this value; its own tolerances are meant for two networks in FP32."""


def comparison_files(settings: Settings) -> dict[str, str]:
    """The files of the comparison: inputs, outputs of the explicit model, and outputs of the engine."""
    folder, name = settings.files.folder, settings.files.name
    return {what: str(folder / f"{name}_{what}.json") for what in ("inputs", "explicit_outputs", "engine_outputs")}


def comparison_commands(settings: Settings, explicit: str) -> list[list[str]]:
    """Runs the explicit model in ONNX Runtime, then the engine on the same inputs, and compares the two."""
    files, engine = comparison_files(settings), settings.request.save_engine
    shapes = [f"{n}:[{','.join(map(str, triple[1]))}]" for n, triple in settings.shapes.items()]
    first = ["run", explicit, "--onnxrt", *(["--input-shapes", *shapes] if shapes else [])]
    first += ["--save-inputs", files["inputs"], "--save-outputs", files["explicit_outputs"]]
    second = ["run", engine, "--model-type", "engine", "--trt", "--load-inputs", files["inputs"]]
    second += ["--load-outputs", files["explicit_outputs"], "--save-outputs", files["engine_outputs"]]
    second += ["--compare", "cosine_similarity", "--cosine-similarity-threshold", str(LEAST_COSINE)]
    return [first, second]


def polygraphy_command(words: Sequence[str]) -> str:
    """`polygraphy convert` with one option and its values per line, and one layer per line in a list of layers."""
    lines: list[str] = []
    many = {"--layer-precisions"}
    current = ""
    for word in words:
        if word.startswith("-") or current in many or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
        current = word if word.startswith("-") else current
    return shell_command("polygraphy", lines)
