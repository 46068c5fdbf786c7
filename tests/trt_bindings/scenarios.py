"""Drives `build` and the on-device kit against one version of TensorRT's bindings, real or recorded (surface.py).

python -m tests.trt_bindings.scenarios FOLDER    ->  FOLDER/found.json      with the real ones, in a process of its own
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from qdq_translator.cli import main
from qdq_translator.core.formats.files import TranslationFiles
from tests.trt_bindings import models, surface
from tests.trt_bindings.board import Behaviour, Board, called

KIT = Path(__file__).resolve().parents[2] / "e2e_workflow" / "on_device" / "run_on_device.py"
trt: Any = None
WORK = Path()


def command(arguments: list[str], board: Board | None) -> dict[str, Any]:
    """`qdq-translator build ...` with the module of `board` (None: the real one) as TensorRT."""
    sys.modules["tensorrt"] = board.module if board else trt
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["build", *arguments])
    return {
        "status": status,
        "out": out.getvalue().replace(str(WORK), "WORK"),
        "err": err.getvalue().replace(str(WORK), "WORK"),
        "calls": json.loads(json.dumps(board.recorder.calls).replace(str(WORK), "WORK")) if board else [],
    }


def scenario(
    name: str,
    *arguments: str,
    model: onnx.ModelProto | None = None,
    translation: dict[str, Any] | None = None,
    before: Callable[[Path], None] | None = None,
    **behaviour: Any,
) -> dict[str, Any]:
    folder = WORK / name
    files = models.translation(folder, model or models.network(), **(translation or {}))
    if before is not None:
        before(folder)
    named = [a.replace("FOLDER", str(folder)) for a in arguments]
    if "-t" not in named:
        named = ["-t", str(files.folder), *named]
    found = command(named, Board(trt, Behaviour(**behaviour)))
    made = (p for p in folder.iterdir() if p.suffix in (".engine", ".loadable", ".json", ".log", ".timing"))
    found["files"] = {p.name: p.read_text(errors="replace") for p in sorted(made) if "precision_config" not in p.name}
    return found


def builds() -> dict[str, Any]:
    dynamic = models.network(batch="N")
    dla, formats = "--target orin-dla ", "--input_io_formats int8:hwc4 --output_io_formats fp16:chw16"
    refused = [("W", "odd"), ("E", "Layer 'pool' is not supported on DLA but GPU fallback is not enabled.")]
    failed = [("I", "info"), ("E", "1: [builder] first"), ("E", "4: no implementation for {fc}."), ("W", "w")]
    parser_error: dict[str, Any] = {"desc": "No importer registered for op: Frobnicate", "node": 3}
    if hasattr(trt.ParserError, "node_name"):
        parser_error.update(node_name="frob_3", node_operator="Frobnicate")

    def timings(folder: Path) -> None:
        (folder / "t.timing").write_text("old timings")

    def old_engine(folder: Path) -> None:
        (folder / "net_int8.engine").write_text("an engine of before")

    def explicit_model(folder: Path) -> None:
        onnx.save(models.quantized(), str(folder / "q.onnx"))

    rows: dict[str, tuple[str, dict[str, Any]]] = {
        "gpu": ("--log FOLDER/b.log", {"says": [("W", "Missing scale and zero-point for tensor mean")]}),
        "gpu_prefer": ("--precision_constraints prefer", {}),
        "options": (
            "--mem_pools workspace:64 dlaSRAM:0.5 --builder_optimization_level 4 --timing_cache FOLDER/t.timing "
            "--save_engine 'FOLDER/a b.engine' --layer_info FOLDER/i.json",
            {"before": timings},
        ),
        "stale_timing_cache": ("--timing_cache FOLDER/t.timing", {"before": timings, "refuses_timing_cache": True}),
        "fp16": ("--precision fp16", {}),
        "fp32": ("--precision fp32", {}),
        "explicit": ("-t FOLDER/q.onnx", {"before": explicit_model}),
        "left_over_qdq": ("", {"model": models.quantized()}),
        "dla": (f"{dla} --dla_core 1", {"not_on_dla": ("pool", "shape")}),
        "dla_fallback": (f"{dla} --allow_gpu_fallback", {"not_on_dla": ("pool",)}),
        "dla_refused": (dla, {"not_on_dla": ("pool",), "engine": None, "says": refused}),
        "dla_standalone": (f"{dla} --dla_standalone {formats}", {}),
        "dla_wrong_format": (f"{dla} --input_io_formats fp32:chw", {}),
        "dla_none_there": (dla, {"dla_cores": 0}),
        "dla_no_such_core": (f"{dla} --dla_core 1", {"dla_cores": 1}),
        "dla_fp16": (f"{dla} --precision fp16", {}),
        "int8_input_without_scale": ("--input_io_formats int8:chw32", {"translation": {"scales": {"r1_out": 1.0}}}),
        "hwc4_channels": (f"{dla} {formats}", {"model": models.network(channels=5)}),
        "dynamic": (
            "--min_shapes images:1x3x4x4 --opt_shapes images:4x3x4x4 --max_shapes images:8x3x4x4",
            {"model": dynamic},
        ),
        "dynamic_dla": (f"{dla} --opt_shapes images:2x3x4x4", {"model": dynamic}),
        "dynamic_dla_range": (f"{dla} --min_shapes images:1x3x4x4 --opt_shapes images:2x3x4x4", {"model": dynamic}),
        "dynamic_without_shapes": ("", {"model": dynamic}),
        "shapes_on_static": ("--opt_shapes images:9x3x4x4", {}),
        "parser_fails": ("", {"parser_error": parser_error}),
        "build_fails": ("", {"before": old_engine, "engine": None, "says": failed}),
        "no_place": ("--save_engine FOLDER", {}),
        "comma_in_input_name": ("--opt_shapes a,b:2x3x4x4", {"model": models.network(batch="N", first="a,b")}),
        "build_fails_silently": ("", {"engine": None}),
        "out_of_memory": ("", {"engine": None, "says": [("E", "Requested amount of GPU memory could not be had")]}),
        "cache_rejected": ("", {"rejects_cache": True, "engine": None}),
        "cache_rejected_but_built": ("", {"rejects_cache": True}),
        "odd_cache": ("", {"translation": {"header": "100300", "tail": ["zero: 0", "inf: 7f800000", "nonsense"]}}),
        "matching_names": ("", {"translation": {"scales": {"images": 0.5}}}),
        "verbose": ("--verbose", {"says": [("V", "a verbose line")]}),
        "parser_flags": ("--parser_flags adjust_for_dla report_capability_dla", {}),
    }
    return {name: scenario(name, *shlex.split(words), **more) for name, (words, more) in rows.items()}


def translated() -> dict[str, Any]:
    """The example that comes with the package, through translate and build."""
    folder = WORK / "example"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["translate", "--example", "-o", str(folder)]) == 0
    files = TranslationFiles.locate(folder)
    found = command(["-t", str(folder), "--opt_shapes", "input:1x1x16x16"], Board(trt))
    found["scales"] = len(files.read_cache().scales)
    found["layers"] = len(files.read_layer_precisions())
    return found


def callbacks() -> dict[str, Any]:
    """Our classes against the real base classes, without any double."""
    from qdq_translator.board.engine.builder import BuildJob, build, make_calibrator, make_logger
    from qdq_translator.board.engine.versions import Api

    api = Api(trt)
    logger = make_logger(api)
    for member in ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"):
        trt.ILogger.log(logger, trt.ILogger.Severity.__members__[member], member.lower())
    calibrator = make_calibrator(api, b"text")
    before = calibrator.asked_for_data
    cpp = called(calibrator, trt)
    batch = cpp.batch(b"images")
    found = {
        "messages": logger.messages,
        "is_calibrator": isinstance(calibrator, trt.IInt8Calibrator),
        "algorithm": [cpp.algorithm(), int(trt.CalibrationAlgoType.ENTROPY_CALIBRATION_2)],
        "cache": cpp.cache().decode(),
        "batch": batch,
        "asked": [before, calibrator.asked_for_data],
        "number": api.cache_number,
        "has_progress": api.has_progress_monitor,
        "network_flags": api.network_flags(False),
        "masks": [api.format_mask(["chw"]), api.format_mask(["dla_hwc4", "chw32"])],
        "expected_masks": [
            1 << int(trt.TensorFormat.LINEAR),
            (1 << int(trt.TensorFormat.DLA_HWC4)) | (1 << int(trt.TensorFormat.CHW32)),
        ],
    }
    board = Board(trt)
    files = models.translation(WORK / "progress", models.network())
    job = BuildJob(files.model, cache=files.read_cache(), layers=files.read_layer_precisions())
    with contextlib.redirect_stderr(io.StringIO()) as screen:
        build(job, Api(board.module), progress=True)
    found["progress"] = [c for c in board.recorder.calls if c[0] in ("progress", "config.progress_monitor =")]
    found["progress_screen"] = bool(screen.getvalue())
    return found


class HostCuda:
    """libcudart on a machine without GPU: device memory is host memory, events read a clock that goes in halves."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}
        self.clock = 0.0
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            does = type(self).__dict__.get(f"_{name}")
            if does is not None:
                does(self, *arguments)
            return 0

        return call

    def _cudaMalloc(self, out: Any, size: Any) -> None:
        block = ctypes.create_string_buffer(size.value)
        out._obj.value = ctypes.addressof(block)
        self.blocks[out._obj.value] = block

    def _cudaFree(self, address: Any) -> None:
        del self.blocks[address.value]

    def _cudaMemcpy(self, to: Any, source: Any, size: Any, kind: int) -> None:
        device = to.value if kind == 1 else source.value
        assert len(self.blocks[device]) >= size.value
        ctypes.memmove(to, source, size.value)

    def _cudaStreamCreate(self, out: Any) -> None:
        out._obj.value = 77

    def _cudaEventElapsedTime(self, out: Any, first: Any, second: Any) -> None:
        self.clock += 0.5
        out._obj.value = self.clock


def kit() -> dict[str, Any]:
    """The on-device script; the 'engine' answers with the sums of its input rows."""
    spec = importlib.util.spec_from_file_location("run_on_device", KIT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["run_on_device"] = script  # dataclasses look their module up
    spec.loader.exec_module(script)
    from qdq_translator.board.engine.versions import Api

    def execute(addresses: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> None:
        def view(name: str) -> np.ndarray:
            size = int(np.prod(shapes[name]))
            flat = (ctypes.c_float * size).from_address(addresses[name])
            return np.frombuffer(flat, np.float32).reshape(shapes[name])

        view("logits")[:] = view("images").reshape(shapes["images"][0], -1).sum(axis=1)[:, None] + np.arange(5)

    found: dict[str, Any] = {}
    images = np.arange(5 * 48, dtype=np.float32).reshape(5, 3, 4, 4) / 64
    folder = WORK / "kit"
    files = models.translation(folder / "translated", models.network(batch=2))
    np.savez(folder / "samples.npz", images=images)
    np.savez(folder / "wrong_shape.npz", images=images[:, :2])
    np.savez(folder / "wrong_name.npz", picture=images)
    for name, arguments, behaviour in (
        ("gpu", [], {}),
        ("dla", ["--target", "orin-dla", "--dla_core", "1"], {"not_on_dla": ("pool",)}),
        ("build_fails", [], {"engine": None, "says": [("E", "no kernel")]}),
        ("wrong_shape", ["--inputs", str(folder / "wrong_shape.npz")], {}),
        ("wrong_name", ["--inputs", str(folder / "wrong_name.npz")], {}),
    ):
        cuda = HostCuda()
        boards: list[Board] = []
        chosen: dict[str, Any] = dict(behaviour)

        class Fresh:
            """Every build and every run is a board of its own: the doubles hold one network."""

            def __getattr__(self, attribute: str) -> Any:
                if attribute == "Builder":
                    boards.append(Board(trt, Behaviour(execute=execute, **chosen)))  # noqa: B023
                return getattr(boards[-1].module if boards else trt, attribute)  # noqa: B023

        out = folder / f"out_{name}"
        base = ["-t", str(files.folder), "--inputs", str(folder / "samples.npz"), "-o", str(out)]
        options = script.parse([*base, "--iterations", "3", "--warmup", "2", *arguments])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            results = script.run(options, Api(Fresh()), script.Cuda(cuda))
        written = json.loads((out / "device_results.json").read_text())
        assert written == json.loads(json.dumps(results))
        outputs = {}
        for engine in results["engines"].values():
            if "outputs" in engine:
                with np.load(out / engine["outputs"]) as stored:
                    outputs[engine["outputs"]] = stored["logits"].tolist()
        found[name] = {
            "written": written,
            "outputs": outputs,
            "expected": (images.reshape(5, -1).sum(axis=1)[:, None] + np.arange(5)).tolist(),
            "left_on_device": len(cuda.blocks),
            "executions": [sum(c[0] == "context.execute_async_v3" for c in b.recorder.calls) for b in boards],
            "calls": [b.recorder.calls for b in boards],
            "files": sorted(os.listdir(out)),
        }
    return found


def gate() -> dict[str, Any]:
    """The real module itself, as a user's machine would have it."""
    models.translation(WORK / "real", models.network())
    found = command(["-t", str(WORK / "real")], None)
    found["files"] = sorted(p.name for p in (WORK / "real").iterdir())
    found["builder_flags"] = list(trt.BuilderFlag.__members__)
    found["has_calibrator"] = hasattr(trt, "IInt8EntropyCalibrator2")
    return found


def typed() -> dict[str, Any]:
    """What `explicit` writes of the example, for a GPU and for a DLA, through `build`."""
    ours = ("--preset", "dla", "--infer_average_pool_scales", "--shapes", "input:1x1x16x16")
    forms = {
        "gpu": ((), ("--opt_shapes", "input:1x1x16x16")),
        "dla": (ours, ("--input_io_formats", "dla_hwc4")),
        "loadable": (ours, ("--dla_standalone", "--parser_flags", "report_capability_dla")),
    }
    found = {}
    for name, (how, options) in forms.items():
        folder = WORK / f"typed_{name}"
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["explicit", "--example", "-o", str(folder), *how]) == 0
        network = str(folder / "digits_resnet_qat_explicit.onnx")
        found[name] = command(["-t", network, *options], Board(trt))
        found[name]["files"] = sorted(p.name for p in folder.iterdir())
    return found


def run_all(tensorrt: Any, folder: Path) -> dict[str, Any]:
    """Section -> what was found. tensorrt: the module."""
    global trt, WORK
    trt, WORK = tensorrt, folder
    found: dict[str, Any] = {"surface": surface.of(trt), "gate": gate()}
    if trt.__version__.startswith("11"):
        found["typed"] = typed()
    if hasattr(trt.BuilderFlag, "INT8"):
        found.update(builds=builds(), callbacks=callbacks(), translated=translated(), kit=kit())
    return dict(json.loads(json.dumps(found).replace(str(folder), "WORK")))


def _rows(files: Any) -> list[Any]:
    return list(files.items()) if isinstance(files, dict) else list(files)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """What was found as a transcript shows it."""
    parts = {"gate": found["gate"], **found.get("builds", {}), **found.get("typed", {})}
    for name, build in {**parts, "translated": found.get("translated", {})}.items():
        yield f"== {name}: status {build.get('status')}"
        yield from map(json.dumps, build.get("calls", ()))
        yield from (f"! {line}" for line in build.get("err", "").split("\n") if line)
        yield from build.get("out", "").split("\n")
        yield from (f"=> {json.dumps(row)}" for row in _rows(build.get("files", [])))
    yield json.dumps(found.get("callbacks"))
    for name, run in found.get("kit", {}).items():
        yield f"== kit: {name}"
        written = {key: value for key, value in run["written"].items() if key != "device"}
        yield from (json.dumps([key, value]) for key, value in {**run, "written": written}.items() if key != "calls")
        for call in (call for calls in run["calls"] for call in calls):
            yield json.dumps(call[:2] if call[0] == "context.set_tensor_address" else call)


def main_in_a_process() -> None:
    import tensorrt

    folder = Path(sys.argv[1])
    (folder / "found.json").write_text(json.dumps(run_all(tensorrt, folder)))


if __name__ == "__main__":
    main_in_a_process()
