#!/usr/bin/env python3
"""Run on the board: builds the INT8 engine of a translation and a baseline, times both, runs saved inputs through them.

Needs Python, numpy, TensorRT 8.6 to 10.x with its CUDA runtime, and this project (a checkout will do); nothing else.
Writes `device_results.json` (schema: README.md beside this file) with the outputs as .npz files next to it.

    python3 run_on_device.py -t translated/ --inputs samples.npz -o device_results --target orin-dla
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qdq_translator.board.engine import versions
from qdq_translator.board.engine.builder import BuildJob, BuildResult, build, make_logger
from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import EXPLICIT_SUFFIX, TranslationFiles
from qdq_translator.core.options import TARGETS, parse_shapes
from qdq_translator.translation.files.trtexec.request import BuildRequest, Remembered

SCHEMA_VERSION = 1
_NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
}
_TO_DEVICE, _TO_HOST = 1, 2


class Cuda:
    """The dozen functions of the CUDA runtime that are needed, through ctypes. Raises UserError where one fails."""

    def __init__(self, library: Any = None) -> None:
        self.library = library or self._find()

    @staticmethod
    def _find() -> Any:
        for name in ("libcudart.so", "libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0"):
            for folder in ("", "/usr/local/cuda/lib64/"):
                try:
                    return ctypes.CDLL(folder + name)
                except OSError:
                    continue
        raise UserError("The CUDA runtime (libcudart.so) is not found.", "Add its folder to LD_LIBRARY_PATH.")

    def call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise UserError(f"{function} failed with CUDA error {status}.", "Look it up under cudaError_t.")

    def allocate(self, size: int) -> int:
        """Device address of `size` bytes (at least one)."""
        address = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value or 0

    def free(self, address: int) -> None:
        self.call("cudaFree", ctypes.c_void_p(address))

    def upload(self, address: int, values: np.ndarray) -> None:
        self._copy(address, values.ctypes.data, values.nbytes, _TO_DEVICE)

    def download(self, values: np.ndarray, address: int) -> None:
        self._copy(values.ctypes.data, address, values.nbytes, _TO_HOST)

    def _copy(self, to: int, source: int, size: int, kind: int) -> None:
        self.call("cudaMemcpy", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), kind)

    def handle(self, function: str) -> ctypes.c_void_p:
        """A new stream or event."""
        made = ctypes.c_void_p()
        self.call(function, ctypes.byref(made))
        return made

    def milliseconds(self, stream: ctypes.c_void_p, events: tuple[Any, Any], work: Callable[[], None]) -> float:
        """Time of `work` on the stream, by the two events around it."""
        self.call("cudaEventRecord", events[0], stream)
        work()
        self.call("cudaEventRecord", events[1], stream)
        self.call("cudaEventSynchronize", events[1])
        time = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(time), events[0], events[1])
        return float(time.value)


@dataclasses.dataclass
class Run:
    """`outputs`: name -> array, first axis = samples (or runs, where an output has no batch axis)."""

    outputs: dict[str, np.ndarray]
    latency_ms: dict[str, float]
    batch: int


def run_engine(
    api: versions.Api,
    engine_bytes: bytes,
    inputs: Mapping[str, np.ndarray],
    cuda: Cuda,
    iterations: int,
    warmup: int,
    dla_core: int | None = None,
) -> Run:
    """Runs every sample through the engine, then times it on the last ones.

    `inputs`: one array per network input, first axis = samples; the last, partial batch is filled up with its last
    sample. Raises UserError where names or shapes do not fit.
    """
    trt = api.trt
    logger = make_logger(api)
    runtime = trt.Runtime(logger)
    if dla_core is not None:
        runtime.DLA_core = dla_core
    engine = runtime.deserialize_cuda_engine(engine_bytes)
    context = engine.create_execution_context() if engine is not None else None
    if context is None:
        said = " | ".join(text for letter, text in logger.messages if letter == "E") or "no reason given"
        raise UserError(f"TensorRT cannot load the engine: {said}.", "Build it again on this machine.")
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    takes = [n for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT]
    gives = [n for n in names if n not in takes]
    missing = [n for n in takes if n not in inputs]
    if missing:
        raise UserError(
            f"The saved inputs have no array '{missing[0]}'.", f"Name the arrays after the inputs: {', '.join(takes)}."
        )
    shapes = {}
    for name in takes:
        dims = tuple(engine.get_tensor_shape(name))
        if -1 in dims:
            dims = tuple(engine.get_tensor_profile_shape(name, 0)[1])
            context.set_input_shape(name, dims)
        if inputs[name].shape[1:] != dims[1:]:
            raise UserError(
                f"Input '{name}' is {inputs[name].shape[1:]} for each sample, the engine takes {dims[1:]}.",
                "Save the inputs with that shape.",
            )
        shapes[name] = dims
    shapes.update({name: tuple(context.get_tensor_shape(name)) for name in gives})
    buffers = {n: np.zeros(shapes[n], _NUMPY[engine.get_tensor_dtype(n).name]) for n in names}
    addresses = {n: cuda.allocate(buffer.nbytes) for n, buffer in buffers.items()}
    stream = cuda.handle("cudaStreamCreate")
    events = (cuda.handle("cudaEventCreate"), cuda.handle("cudaEventCreate"))
    try:
        for name, address in addresses.items():
            context.set_tensor_address(name, address)

        def execute() -> None:
            if not context.execute_async_v3(stream.value or 0):
                said = " | ".join(text for letter, text in logger.messages if letter == "E") or "no reason given"
                raise UserError(f"TensorRT cannot run the engine: {said}.", "Build it again on this machine.")

        batch = shapes[takes[0]][0] if takes and shapes[takes[0]] else 1
        samples = min(len(inputs[n]) for n in takes)
        parts: dict[str, list[np.ndarray]] = {n: [] for n in gives}
        for start in range(0, samples, batch):
            valid = min(batch, samples - start)
            rows = np.minimum(np.arange(start, start + batch), samples - 1)
            for name in takes:
                cuda.upload(addresses[name], np.ascontiguousarray(inputs[name][rows], buffers[name].dtype))
            execute()
            cuda.call("cudaStreamSynchronize", stream)
            for name in gives:
                cuda.download(buffers[name], addresses[name])
                has_batch = shapes[name][:1] == (batch,)
                parts[name].append(buffers[name][:valid].copy() if has_batch else buffers[name][None].copy())
        times = [cuda.milliseconds(stream, events, execute) for _ in range(warmup + iterations)][warmup:]
    finally:
        for address in addresses.values():
            cuda.free(address)
    return Run({n: np.concatenate(p) for n, p in parts.items()}, latency(times), batch)


def latency(times: list[float]) -> dict[str, float]:
    """Milliseconds of one execution, without copies: statistics over the timed iterations."""
    ordered = np.sort(np.asarray(times, dtype=np.float64))
    return {
        "mean": round(float(ordered.mean()), 6),
        "median": round(float(np.median(ordered)), 6),
        "p99": round(float(np.percentile(ordered, 99)), 6),
        "min": round(float(ordered[0]), 6),
        "max": round(float(ordered[-1]), 6),
        "iterations": len(times),
    }


def load_inputs(path: Path) -> dict[str, np.ndarray]:
    """An .npz with one array per network input, first axis = samples. Raises UserError."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            inputs = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be read as .npz: {error}.", "Save it with numpy.savez(path, images=...)."
        ) from error
    if not inputs or any(array.ndim == 0 or len(array) == 0 for array in inputs.values()):
        raise UserError(f"{path} holds an array without samples.", "The first axis counts the samples.")
    return inputs


def describe_device() -> dict[str, str]:
    """What this machine says of itself; nothing that names a person or a network."""
    found = {"machine": platform.machine(), "python": platform.python_version()}
    for key, path in (("model", "/proc/device-tree/model"), ("l4t", "/etc/nv_tegra_release")):
        try:
            found[key] = Path(path).read_text(errors="replace").split("\n")[0].strip("\0 #")
        except OSError:
            continue
    return found


def jobs(files: TranslationFiles, options: argparse.Namespace) -> dict[str, BuildJob]:
    """What is built, by its name in the results; the ends of the networks stay float, so that outputs compare."""
    request = BuildRequest(
        target=options.target,
        dla_core=options.dla_core,
        allow_gpu_fallback=options.target != "gpu",
        opt_shapes=Remembered.of(files).sizes_to_build(parse_shapes(options.opt_shapes)),
    )
    wanted = {
        "implicit": BuildJob(files.model, request, cache=files.read_cache(), layers=files.read_layer_precisions()),
        "fp16": BuildJob(files.model, dataclasses.replace(request, mode="fp16")),
    }
    if options.explicit:
        mode = "typed" if options.explicit.endswith(EXPLICIT_SUFFIX) else "explicit"
        on_gpu = dataclasses.replace(request, target="gpu", allow_gpu_fallback=False, mode=mode)
        wanted["explicit"] = BuildJob(Path(options.explicit), on_gpu)
    return wanted


def measure(
    name: str,
    job: BuildJob,
    api: versions.Api,
    inputs: Mapping[str, np.ndarray],
    cuda: Cuda,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Builds, runs and times one engine; writes engine, layer information and outputs; returns its part of the JSON."""
    folder = Path(options.output_dir)
    result = build(job, api, options.verbose)
    write_file(folder / f"{name}.engine", result.engine)
    write_file(folder / f"{name}_layer_info.json", (result.layer_info or "").encode())
    core = job.request.dla_core if job.request.on_dla else None
    run = run_engine(api, result.engine, inputs, cuda, options.iterations, options.warmup, core)
    with open(folder / f"{name}_outputs.npz", "wb") as file:
        np.savez(file, **run.outputs)
    return {
        "status": "ok",
        "precision": "fp16" if job.request.mode == "fp16" else "int8",
        "target": job.request.target,
        "engine": f"{name}.engine",
        "engine_bytes": len(result.engine),
        "layer_info": f"{name}_layer_info.json",
        "outputs": f"{name}_outputs.npz",
        "batch": run.batch,
        "latency_ms": run.latency_ms,
        "build_seconds": round(result.seconds, 3),
        **_counts(job, result),
    }


def _counts(job: BuildJob, result: BuildResult) -> dict[str, Any]:
    counts: dict[str, Any] = {"notes": result.notes, "gpu_layers": result.gpu_layers}
    if job.implicit:
        counts["scales"] = dataclasses.asdict(result.scales)
        counts["layer_precisions"] = dataclasses.asdict(result.layers)
    return counts


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(options: argparse.Namespace, api: versions.Api, cuda: Cuda) -> dict[str, Any]:
    """Everything; returns what `device_results.json` holds. An engine that fails is recorded, the others still run."""
    files = TranslationFiles.locate(options.translation)
    made = Remembered.of(files)
    options.target, notes = made.target_for(options.target)
    platform = made.platform_for(None)
    if platform is not None and platform.tensorrt[:2] != api.version[:2]:
        raise UserError(
            f"TensorRT {api.dotted} is installed here, but the model was translated for {platform.name} with TensorRT "
            f"{'.'.join(map(str, platform.tensorrt))}.",
            f"Translate it for this machine, for example with --platform tensorrt-{api.dotted}.",
        )
    for note in notes:
        print(f"note: {note}", flush=True)
    inputs = load_inputs(Path(options.inputs))
    wanted = jobs(files, options)
    Path(options.output_dir).mkdir(parents=True, exist_ok=True)
    engines: dict[str, Any] = {}
    for name, job in wanted.items():
        print(f"{name}: building ...", flush=True)
        try:
            engines[name] = measure(name, job, api, inputs, cuda, options)
            print(f"{name}: median {engines[name]['latency_ms']['median']:.3f} ms", flush=True)
        except UserError as error:
            engines[name] = {
                "status": "failed",
                "precision": "fp16" if job.request.mode == "fp16" else "int8",
                "error": str(error),
            }
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    results = {
        "schema_version": SCHEMA_VERSION,
        "kind": "qdq-translator device results",
        "model": {"file": files.model.name, "sha256": sha256(files.model)},
        "cache": {"file": files.cache.name, "sha256": sha256(files.cache)},
        "inputs": {
            "file": Path(options.inputs).name,
            "sha256": sha256(Path(options.inputs)),
            "samples": min(len(a) for a in inputs.values()),
        },
        "device": describe_device(),
        "tensorrt": api.dotted,
        "target": options.target,
        "dla_core": options.dla_core if options.target != "gpu" else None,
        "engines": engines,
    }
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    write_file(Path(options.output_dir) / "device_results.json", text.encode())
    return results


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("-t", "--translation", required=True, help="output folder of translate, or NAME_noqdq.onnx")
    parser.add_argument("--inputs", required=True, help=".npz: one array per network input, first axis = samples")
    parser.add_argument("-o", "--output_dir", default="device_results", help="(default: device_results)")
    parser.add_argument("--target", choices=TARGETS, help="(default: what the model was translated for)")
    parser.add_argument("--dla_core", type=int, default=0, help="(default: 0)")
    parser.add_argument("--explicit", default="", metavar="MODEL", help="the Q/DQ model, built too (on the GPU)")
    parser.add_argument("--opt_shapes", nargs="+", default=[], metavar="NAME:DIMS", help="sizes of dynamic inputs")
    parser.add_argument("--iterations", type=int, default=200, help="timed executions (default: 200)")
    parser.add_argument("--warmup", type=int, default=50, help="executions before them (default: 50)")
    parser.add_argument("--verbose", action="store_true", help="TensorRT's whole log")
    options = parser.parse_args(argv)
    if options.iterations < 1 or options.warmup < 0:
        parser.error("--iterations is at least 1, --warmup at least 0")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        results = run(options, versions.load(), Cuda())
    except (UserError, OSError) as error:
        print(f"run_on_device.py: {error}", file=sys.stderr)
        return 1
    print(
        f"{Path(options.output_dir) / 'device_results.json'}: take the folder to 'qdq-translator verify --device_results'."
    )
    return 0 if all(e["status"] == "ok" for e in results["engines"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
