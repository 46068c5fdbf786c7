"""ONNX Runtime, as a calculator: graph optimizations off, so that the numbers are those of the graph as written."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.constants import Constants, is_quantize
from qdq_translator.diagnostics import Diagnostics
from qdq_translator.errors import MissingDependency, UserError
from qdq_translator.graph import Graph
from qdq_translator.io import PROTOBUF_LIMIT, write_model
from qdq_translator.passes import names


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependency(
            "verify and --calibrate run models in ONNX Runtime, which is not installed.",
            "pip install 'qdq-translator[verify]'",
        ) from error
    return onnxruntime


class Session:
    """A model loaded once. `run` returns the tensors that were asked for when it was made."""

    def __init__(
        self, model: onnx.ModelProto, what: str, fetch: Optional[Sequence[str]] = None, one_thread: bool = False
    ) -> None:
        """`fetch`: tensors of the graph to return instead of its outputs. one_thread: computed by whoever calls `run`, from
        packed weights, for callers that run several samples at a time. Raises UserError where ONNX Runtime refuses."""
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        if one_thread:
            options.intra_op_num_threads = 1
        else:
            # packed constant weights take another kernel, which adds up in another order than weights behind a Q/DQ pair
            options.add_session_config_entry("session.disable_prepacking", "1")
        # threads that spin between runs take the processor from the comparison
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.what = what
        model = model if fetch is None else _with_outputs(model, fetch)
        self.outputs = [v.name for v in model.graph.output]
        try:
            self._session = _load(runtime, model, options)
        except Exception as error:  # ONNX Runtime has no exception type of its own that is public
            raise UserError(
                f"ONNX Runtime cannot load the {what} model: {_first_line(error)}",
                "Check it with onnx.checker; a newer onnxruntime may know its operators.",
            ) from error

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            values = self._session.run(self.outputs, dict(feed))
        except Exception as error:
            raise UserError(
                f"The {self.what} model fails in ONNX Runtime: {_first_line(error)}",
                "Check the shapes of the inputs; --shapes sets dynamic ones.",
            ) from error
        return dict(zip(self.outputs, (np.asarray(v) for v in values)))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


def _load(runtime: Any, model: onnx.ModelProto, options: Any) -> Any:
    providers = ["CPUExecutionProvider"]
    if sum(len(t.raw_data) for t in model.graph.initializer) < PROTOBUF_LIMIT:
        return runtime.InferenceSession(model.SerializeToString(), options, providers=providers)
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="qdq-") as folder:
        path = Path(folder) / "model.onnx"
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        write_model(copy, path, "model.onnx.data", True)
        return runtime.InferenceSession(str(path), options, providers=providers)


def _with_outputs(model: onnx.ModelProto, fetch: Sequence[str]) -> onnx.ModelProto:
    """The same model with other graph outputs (types are left to ONNX Runtime)."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    known = {v.name: v for v in (*light.graph.output, *light.graph.input)}
    wanted = [known.get(n) or onnx.ValueInfoProto(name=n) for n in dict.fromkeys(fetch)]
    kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in wanted]
    del light.graph.output[:]
    light.graph.output.extend(kept)
    return light


# -------------------------------------------------------------------- the explicit model


@dataclasses.dataclass
class ExplicitNetwork:
    """The Q/DQ model as written, and what ties it to the stripped one.

    int8_inputs, int8_outputs: name -> (scale, zero point) of graph ends that hold codes; the stripped model's are float.
    """

    model: onnx.ModelProto
    graph: Graph
    int8_inputs: dict[str, tuple[float, int]]
    int8_outputs: dict[str, tuple[float, int]]

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ExplicitNetwork:
        """The model is used up. Node names are made unique, as the translator does; ONNX Runtime needs that too."""
        graph = Graph.from_model(model)
        names.name_nodes(graph, Diagnostics())
        constants = Constants(graph)

        def grid(scale_name: str, zero_name: str) -> tuple[float, int]:
            scale, zero = constants.value(scale_name), constants.value(zero_name) if zero_name else None
            return (
                float(scale.reshape(-1)[0]) if scale is not None and scale.size == 1 else 1.0,
                int(zero.reshape(-1)[0]) if zero is not None and zero.size == 1 else 0,
            )

        int8 = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
        inputs, outputs = {}, {}
        for name, value in graph.inputs.items():
            if value.type.tensor_type.elem_type in int8:
                for reader in graph.consumers(name):
                    if reader.op_type == "DequantizeLinear":
                        inputs[name] = grid(reader.inputs[1], reader.input(2))
        for name, value in graph.outputs.items():
            producer = graph.producer.get(name)
            if value.type.tensor_type.elem_type in int8 and producer is not None and is_quantize(producer):
                outputs[name] = grid(producer.inputs[1], producer.input(2))
        return cls(graph.to_model(), graph, inputs, outputs)

    def feed(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Float inputs of the stripped model as this one takes them."""
        result = dict(feed)
        for name, (scale, zero) in self.int8_inputs.items():
            is_signed = self.graph.inputs[name].type.tensor_type.elem_type == onnx.TensorProto.INT8
            low, high, dtype = (-128, 127, np.int8) if is_signed else (0, 255, np.uint8)
            codes = np.rint(feed[name].astype(np.float32) / np.float32(scale)) + zero
            result[name] = np.clip(codes, low, high).astype(dtype)
        return result

    def real(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs as real numbers."""
        result = dict(values)
        for name, (scale, zero) in self.int8_outputs.items():
            if name in result and result[name].dtype in (np.int8, np.uint8):
                result[name] = (result[name].astype(np.float32) - zero) * np.float32(scale)
        return result


def same_inputs(stripped: Iterable[str], other: Iterable[str], what: str) -> None:
    """Raises UserError where `other` has not the inputs that `stripped` has."""
    a, b = list(stripped), list(other)
    if set(a) != set(b):
        raise UserError(
            f"The {what} model has the inputs {', '.join(b)}; the translation has {', '.join(a)}.",
            "Give the model that the translation was made from.",
        )
