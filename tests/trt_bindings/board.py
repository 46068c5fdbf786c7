"""A machine with TensorRT, as far as its Python module can tell: the real module, with doubles for what it cannot make."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import onnx

from tests.trt_bindings import surface
from tests.trt_bindings.doubles import Double, Recorder, bind, memory
from tests.trt_bindings.virtual_calls import Calibrator

_KINDS = {
    "Conv": "CONVOLUTION",
    "Relu": "ACTIVATION",
    "Add": "ELEMENTWISE",
    "Shape": "SHAPE",
    "Flatten": "SHUFFLE",
    "GlobalAveragePool": "REDUCE",
    "QuantizeLinear": "QUANTIZE",
    "DequantizeLinear": "DEQUANTIZE",
}


def called(calibrator: Any, trt: Any) -> Any:
    """The calibrator as TensorRT calls it."""
    recorded = hasattr(trt, "RECORDED")
    return surface.Calibrator(calibrator) if recorded else Calibrator(calibrator, trt.__version__)


@dataclasses.dataclass
class Behaviour:
    """What TensorRT does on this machine. `engine` None: the build fails after logging `says` (letter, text)."""

    dla_cores: int = 2
    not_on_dla: tuple[str, ...] = ()
    engine: bytes | None = b"engine bytes"
    says: Sequence[tuple[str, str]] = ()
    parser_error: dict[str, Any] | None = None
    rejects_cache: bool = False
    refuses_timing_cache: bool = False
    execute: Callable[[dict[str, int], dict[str, tuple[int, ...]]], None] | None = None


class Board:
    """`module` stands for `import tensorrt`; `recorder.calls` holds what was done with it."""

    def __init__(self, trt: Any, behaviour: Behaviour | None = None) -> None:
        self.trt = trt
        self.behaviour = behaviour or Behaviour()
        self.recorder = Recorder(trt)
        self.logger: Any = None
        self.config: Any = None
        self.tensors: dict[str, Double] = {}
        self.layers: list[Double] = []
        self.inputs: list[Double] = []
        self.outputs: list[Double] = []
        board = self

        class Module:
            def __getattr__(self, name: str) -> Any:
                return {
                    "Builder": board.make_builder,
                    "OnnxParser": board.make_parser,
                    "Runtime": board.make_runtime,
                }.get(name) or getattr(trt, name)

        self.module = Module()

    def double(self, kind: str, label: str = "", values: Any = None, **methods: Callable[..., Any]) -> Double:
        gone = [] if hasattr(self.trt.BuilderFlag, "INT8") else ["set_calibration_profile", "set_dynamic_range"]
        known = {name: method for name, method in methods.items() if name not in gone}  # in TensorRT 11
        return Double(self.recorder, kind, label, values, known)

    def make_builder(self, *args: Any, **kwargs: Any) -> Double:
        self.logger = bind(self.trt, "Builder", self.trt.Builder.__init__.__doc__, (None, *args), kwargs)[1]
        self.recorder.record("Builder", self.logger)
        self.network = self.double(
            "INetworkDefinition",
            "network",
            {"num_layers": 0, "num_inputs": 0, "num_outputs": 0},
            get_layer=lambda i: self.layers[i],
            get_input=lambda i: self.inputs[i],
            get_output=lambda i: self.outputs[i],
        )
        self.config = self.double(
            "IBuilderConfig",
            "config",
            add_optimization_profile=lambda profile: 0,
            set_calibration_profile=lambda profile: True,
            can_run_on_DLA=lambda layer: layer.name not in self.behaviour.not_on_dla,
            create_timing_cache=lambda data: self.double("ITimingCache", f"timing cache of {len(data)} bytes"),
            set_timing_cache=lambda cache, ignore: (
                not (
                    self.behaviour.refuses_timing_cache and "of 0 bytes" not in object.__getattribute__(cache, "_label")
                )
            ),
            get_timing_cache=lambda: self.double(
                "ITimingCache", "timing cache", serialize=lambda: memory(self.recorder, b"timings")
            ),
        )
        return self.double(
            "Builder",
            "builder",
            {"num_DLA_cores": self.behaviour.dla_cores},
            create_network=lambda flags: self.network,
            create_builder_config=lambda: self.config,
            create_optimization_profile=lambda: self.double("IOptimizationProfile", "profile"),
            build_serialized_network=self.build,
        )

    # ---------------------------------------------------------------- parser

    def make_parser(self, *args: Any, **kwargs: Any) -> Double:
        bind(self.trt, "OnnxParser", self.trt.OnnxParser.__init__.__doc__, (None, *args), kwargs)
        self.recorder.record("OnnxParser", *args)
        described = self.behaviour.parser_error or {}
        error = self.double("ParserError", "error", **{key: (lambda v=value: v) for key, value in described.items()})
        return self.double(
            "OnnxParser",
            "parser",
            {"num_errors": 1 if described else 0},
            parse_from_file=self.parse,
            get_error=lambda index: error,
        )

    def parse(self, path: str) -> bool:
        if self.behaviour.parser_error:
            return False
        graph = onnx.load(path).graph
        constants = {t.name for t in graph.initializer}
        ends = {v.name: v for v in (*graph.input, *graph.output)}
        for value in graph.input:
            if value.name not in constants:
                self.inputs.append(self.tensor(value.name, ends, is_input=True))
        for node in graph.node:
            self.add_layers(node, constants, ends)
        self.outputs += [self.tensors[v.name] for v in graph.output]
        for name in ("layers", "inputs", "outputs"):
            object.__getattribute__(self.network, "_values")[f"num_{name}"] = len(getattr(self, name))
        return True

    def add_layers(self, node: onnx.NodeProto, constants: set[str], ends: dict[str, Any]) -> None:
        if node.op_type == "Gemm":  # fact 4.12: constant, product and an unnamed sum
            weight, product = f"{node.input[1]}_output", f"{node.name}_output"
            self.layer(node.input[1], "CONSTANT", [self.tensor(weight, ends)])
            self.layer(node.name, "MATRIX_MULTIPLY", [self.tensor(product, ends)])
            self.layer("(Unnamed Layer* 9) [ElementWise]", "ELEMENTWISE", [self.tensor(node.output[0], ends)])
            return
        shape = node.op_type == "Shape"
        outputs = [self.tensor(name, ends, shape=shape) for name in node.output]
        self.layer(node.name, _KINDS.get(node.op_type, "ELEMENTWISE"), outputs)

    def tensor(self, name: str, ends: dict[str, Any], is_input: bool = False, shape: bool = False) -> Double:
        dims: tuple[int, ...] = ()
        if name in ends:
            dims = tuple(d.dim_value or -1 for d in ends[name].type.tensor_type.shape.dim)
        types = self.trt.DataType
        self.tensors[name] = self.double(
            "ITensor",
            f"tensor {name}",
            {
                "name": name,
                "shape": dims,
                "dtype": types.INT32 if shape else types.FLOAT,
                "is_shape_tensor": shape,
                "is_network_input": is_input,
            },
            set_dynamic_range=lambda low, high: True,
        )
        return self.tensors[name]

    def layer(self, name: str, kind: str, outputs: list[Double]) -> None:
        self.layers.append(
            self.double(
                "ILayer",
                f"layer {name}",
                {"name": name, "type": self.trt.LayerType.__members__[kind], "num_outputs": len(outputs)},
                get_output=lambda i: outputs[i],
            )
        )

    # ---------------------------------------------------------------- build and run

    def log(self, letter: str, text: str) -> None:
        """Through the real base class: C++ calls the logger this way."""
        severity = {"E": "ERROR", "W": "WARNING", "I": "INFO", "V": "VERBOSE"}[letter]
        self.trt.ILogger.log(self.logger, self.trt.ILogger.Severity.__members__[severity], text)

    def build(self, network: Double, config: Double, *more: Any) -> Any | None:
        values = object.__getattribute__(config, "_values")
        calibrator = values.get("int8_calibrator")
        if calibrator is not None:
            self.calibrate(calibrator)
        monitor = values.get("progress_monitor")
        if monitor is not None:
            base = self.trt.IProgressMonitor
            base.phase_start(monitor, "Building Engine", None, 2)
            base.phase_start(monitor, "Timing", "Building Engine", 1)
            self.recorder.record("progress", base.step_complete(monitor, "Timing", 0))
            base.phase_finish(monitor, "Timing")
            base.phase_finish(monitor, "Building Engine")
        for letter, text in self.behaviour.says:
            self.log(letter, text)
        return None if self.behaviour.engine is None else memory(self.recorder, self.behaviour.engine)

    def calibrate(self, calibrator: Any) -> None:
        """What TensorRT asks of a calibrator, through its C++ object."""
        cpp = called(calibrator, self.trt)
        self.recorder.record("calibrator", cpp.algorithm(), cpp.batch_size(), cpp.cache().decode())
        if self.behaviour.rejects_cache:
            self.log("E", "Calibration table does not match calibrator algorithm type.")
            self.recorder.record("batch", cpp.batch(b"images"))
        cpp.write(b"written by TensorRT")

    def make_runtime(self, *args: Any, **kwargs: Any) -> Double:
        bind(self.trt, "Runtime", self.trt.Runtime.__init__.__doc__, (None, *args), kwargs)
        self.recorder.record("Runtime", *args)
        return self.double("Runtime", "runtime", deserialize_cuda_engine=self.deserialize)

    def deserialize(self, data: bytes) -> Double:
        info = json.dumps({"Layers": [layer.name for layer in self.layers], "Bindings": []})
        inspector = self.double("EngineInspector", "inspector", get_engine_information=lambda kind: info)
        ends = [*self.inputs, *self.outputs]
        shapes = {t.name: tuple(max(d, 1) for d in t.shape) for t in ends}
        addresses: dict[str, int] = {}
        modes = self.trt.TensorIOMode

        def execute(stream: int) -> bool:
            if self.behaviour.execute is not None:
                self.behaviour.execute(addresses, shapes)
            return True

        context = self.double(
            "IExecutionContext",
            "context",
            set_input_shape=lambda name, shape: bool(shapes.update({name: tuple(shape)}) or True),
            get_tensor_shape=lambda name: shapes[name],
            set_tensor_address=lambda name, address: bool(addresses.update({name: address}) or True),
            execute_async_v3=execute,
        )
        return self.double(
            "ICudaEngine",
            "engine",
            {"num_io_tensors": len(ends)},
            create_engine_inspector=lambda: inspector,
            create_execution_context=lambda *more: context,
            get_tensor_name=lambda i: ends[i].name,
            get_tensor_mode=lambda name: modes.INPUT if name in {t.name for t in self.inputs} else modes.OUTPUT,
            get_tensor_dtype=lambda name: self.tensors[name].dtype,
            get_tensor_shape=lambda name: tuple(self.tensors[name].shape),
        )
