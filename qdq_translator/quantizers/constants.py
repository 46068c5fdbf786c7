"""Quantizers of constants (rules Q2 to Q5, Q11): weights, biases and other constants that run through DequantizeLinear.

A constant expression with a DequantizeLinear in it ends at its frontier: the tensor that a computing node reads.
That tensor is replaced by one initializer, whatever stands before it.
"""

from __future__ import annotations

import dataclasses
from typing import Optional, Union

import numpy as np

from qdq_translator.constants import LAYOUT_OPS, Constants, is_dequantize, is_quantize
from qdq_translator.errors import UnsupportedQuantizer
from qdq_translator.graph import Graph, Node
from qdq_translator.qparams import QuantParams, along, dequantize, quantize
from qdq_translator.quantizers.parameters import Rejected, read_parameters

WEIGHT_INPUTS = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (0, 1), "MatMul": (0, 1)}
"""Inputs whose constants TensorRT quantizes per output channel (fact sheet 5.2)."""
BIAS_INPUTS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}


@dataclasses.dataclass(frozen=True)
class QuantizedConstant:
    """One constant to bake. `tensor`: the frontier; `kind`: 'weight', 'bias' or 'constant'; `chain`: its nodes,
    `name`: what the new initializer is called; `params`: of the DequantizeLinear; `node`: that node's name."""

    tensor: str
    name: str
    kind: str
    params: QuantParams
    node: str
    chain: tuple[Node, ...]


@dataclasses.dataclass
class BakedConstant:
    """values: what the stripped model holds; codes: the trained codes in the same layout (int8, weights only), None
    where arithmetic behind the DequantizeLinear hides them; saturated: codes -128 that became -127;
    float_scale_error: largest relative distance of a channel's scale from max|w| / 127 (rule W3), None where the
    exporter kept no float weights."""

    values: np.ndarray
    codes: Optional[np.ndarray]
    saturated: int = 0
    float_scale_error: Optional[float] = None
    float_scale_off: int = 0


def kind_of(graph: Graph, tensor: str) -> str:
    """'weight' or 'bias' where some consumer takes the tensor as such, else 'constant'."""
    kinds = set()
    for node in graph.consumers(tensor):
        for index, name in enumerate(node.inputs):
            if name == tensor and node.is_standard:
                if index in WEIGHT_INPUTS.get(node.op_type, ()):
                    kinds.add("weight")
                elif index == BIAS_INPUTS.get(node.op_type):
                    kinds.add("bias")
    return "weight" if "weight" in kinds else "bias" if "bias" in kinds else "constant"


def find_constant_quantizers(
    graph: Graph, constants: Constants, *, asymmetric: str, missing_zero_point: str
) -> tuple[list[QuantizedConstant], list[Rejected]]:
    """Every frontier tensor in graph order, or the reason why it cannot be baked."""
    found: list[QuantizedConstant] = []
    rejected: list[Rejected] = []
    seen: set[str] = set()
    reads = [
        name
        for node in graph.nodes
        if not constants.is_constant(node.outputs[0] if node.outputs else "")
        for name in node.reads()
    ]
    for tensor in [*reads, *graph.outputs]:
        if tensor in seen or tensor not in constants.dequantized:
            continue
        seen.add(tensor)
        item = _constant_at(graph, constants, tensor, asymmetric, missing_zero_point)
        (rejected if isinstance(item, Rejected) else found).append(item)  # type: ignore[arg-type]
    return found, rejected


def _constant_at(
    graph: Graph, constants: Constants, tensor: str, asymmetric: str, missing: str
) -> Union[QuantizedConstant, Rejected]:
    chain = _chain(graph, constants, tensor)
    quantizers = [n for n in chain if is_dequantize(n)]
    params: Optional[QuantParams] = None
    for node in [n for n in chain if is_quantize(n) or is_dequantize(n)]:
        stored = None
        if is_dequantize(node):
            stored = constants.type_name(node.inputs[0]) if graph.is_constant(node.inputs[0]) else None
            if stored is None:
                makers = [n for n in chain if is_quantize(n)]
                if makers:
                    own = read_parameters(graph, constants, makers[0], missing)
                    stored = own.dtype if isinstance(own, QuantParams) else None
        read = read_parameters(graph, constants, node, missing, stored)
        if isinstance(read, Rejected):
            return read
        params = read
        if read.dtype == "int32" and is_quantize(node):
            return Rejected(
                node.name, tensor, f"Constant '{tensor}' is quantized to int32 at {node.label}.", "Use int8."
            )
        if read.dtype != "int32" and (read.dtype != "int8" or read.zero_point.any()) and asymmetric == "error":
            zero = int(read.zero_point.reshape(-1)[0])
            without = "" if node.input(2) else " (no zero point given)"
            return Rejected(
                node.name,
                tensor,
                f"Constant '{tensor}' is quantized to {read.dtype} with zero point {zero}{without} at {node.label}.",
                "Quantize weights to symmetric int8, or use --asymmetric widen to keep their values and let TensorRT requantize them.",
            )
    assert params is not None
    kind = kind_of(graph, tensor)
    return QuantizedConstant(tensor, _name_for(graph, tensor, chain), kind, params, quantizers[-1].name, tuple(chain))


def _chain(graph: Graph, constants: Constants, tensor: str) -> list[Node]:
    """The nodes of the constant expression behind `tensor` that carry its data, in graph order of first need."""
    chain: list[Node] = []
    stack, seen = [tensor], set()
    while stack:
        node = graph.producer.get(stack.pop())
        if node is None or id(node) in seen or node.is_op("Constant"):
            continue
        seen.add(id(node))
        chain.append(node)
        data = (
            node.inputs[:1]
            if is_quantize(node) or is_dequantize(node) or node.is_op(*LAYOUT_OPS, "Clip")
            else node.inputs
        )
        stack.extend(data)
    return chain[::-1]


def _name_for(graph: Graph, tensor: str, chain: list[Node]) -> str:
    """The float initializer's own name where `Q -> DQ` is all that reads it, else the frontier's name.

    Rule S10 and NVIDIA's translator name a weight after its initializer; a name with another shape or type behind it
    would mislead.
    """
    if len(chain) == 2 and is_quantize(chain[0]) and is_dequantize(chain[1]):
        source = chain[0].inputs[0]
        alone = graph.only_consumer(source) is chain[0] and graph.only_consumer(chain[0].outputs[0]) is chain[1]
        if alone and source in graph.initializers:
            return source
    return tensor


def bake(graph: Graph, constants: Constants, item: QuantizedConstant, weights: str, missing: str) -> BakedConstant:
    """The values of a constant (`weights`: 'baked' or 'float' as in TranslateOptions).

    Raises UnsupportedQuantizer where the expression cannot be evaluated.
    """
    saturated = 0
    float_error: Optional[float] = None
    float_off = 0
    is_weight = item.kind == "weight"

    on_codes: list[QuantParams] = []
    """Quantizers that `as_codes` has met."""

    def parameters(node: Node, data: np.ndarray) -> QuantParams:
        params = read_parameters(graph, constants, node, missing, item.params.dtype)
        assert isinstance(params, QuantParams)
        if params.axis is None:
            return params
        axis = params.axis + data.ndim if params.axis < 0 else params.axis
        if not 0 <= axis < data.ndim or data.shape[axis] != params.scale.size:
            raise UnsupportedQuantizer(
                f"{node.op_type} {node.label} on constant '{item.tensor}' has {params.scale.size} scales along axis "
                f"{params.axis} of shape {list(data.shape)}.",
                "Export with one scale for each channel along that axis.",
            )
        return dataclasses.replace(params, axis=axis)

    def quantized(data: np.ndarray, params: QuantParams) -> np.ndarray:
        if not np.isfinite(data.sum(dtype=np.float64)):
            raise UnsupportedQuantizer(
                f"Constant '{item.tensor}' holds NaN or infinity before its quantizer '{item.node}'.",
                "Export a model whose training did not diverge.",
            )
        return quantize(data, params)

    def as_codes(node: Node, inputs: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Q and DQ on the way to codes: Q quantizes, DQ passes codes (less their zero point) on."""
        nonlocal saturated, float_error, float_off
        data = inputs[0]
        assert data is not None
        if is_quantize(node) or is_dequantize(node):
            params = parameters(node, data)
            if on_codes and is_quantize(node):
                return data if params.same_grid(on_codes[-1]) else _hidden(data)
            on_codes.append(params)
        if is_quantize(node):
            codes_made = quantized(data, params)
            if is_weight and params.dtype == "int8":
                float_error, float_off = _scale_error(data, params)
            return codes_made
        if is_dequantize(node):
            if params.zero_point.any():
                return data.astype(np.int32) - along(params.zero_point, params.axis, data.ndim).astype(np.int32)
            if is_weight and params.dtype == "int8" and data.dtype == np.int8:
                saturated = int(np.count_nonzero(data == -128))
                if saturated:
                    return np.maximum(data, -127)
            return data
        if node.is_op("Cast", "CastLike") and on_codes:
            return data
        if node.is_op("Clip") and any(i is not None and i.dtype.kind == "f" for i in inputs[1:]) and on_codes:
            return _hidden(data)
        return None

    def as_real(node: Node, inputs: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Q quantizes, DQ dequantizes, in the type of the scale."""
        data = inputs[0]
        assert data is not None
        if is_quantize(node):
            return quantized(data, parameters(node, data))
        if is_dequantize(node):
            params = parameters(node, data)
            if is_weight and params.dtype == "int8" and not params.zero_point.any():
                data = np.maximum(data, -127)
            scale = constants.value(node.inputs[1])
            assert scale is not None
            return dequantize(data, params, scale.dtype)
        return None

    def as_float(node: Node, inputs: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Quantizers pass the float weights through (rule W2)."""
        data = inputs[0]
        assert data is not None
        if is_quantize(node):
            return data
        if is_dequantize(node) and data.dtype.kind == "f":
            return data
        if (
            node.is_op("Clip")
            and data.dtype.kind == "f"
            and inputs[1:]
            and inputs[1] is not None
            and inputs[1].dtype.kind != "f"
        ):
            return data
        return as_real(node, inputs)

    layout_only = all(is_quantize(n) or is_dequantize(n) or n.is_op(*LAYOUT_OPS, "Clip") for n in item.chain)
    codes: Optional[np.ndarray] = None
    values: Optional[np.ndarray]
    if is_weight and layout_only:
        codes = constants.value(item.tensor, as_codes)
    simple = (
        len(item.chain) <= 2
        and len(on_codes) <= 2
        and codes is not None
        and weights == "baked"
        and is_dequantize(item.chain[-1])
    )
    if simple and codes is not None:
        node = item.chain[-1]
        scale = constants.value(node.inputs[1])
        assert scale is not None
        plain = dataclasses.replace(parameters(node, codes), zero_point=np.zeros((), np.int64))
        values = dequantize(codes, plain, scale.dtype)
    else:
        values = constants.value(item.tensor, as_float if weights == "float" else as_real)
    if values is None:
        raise UnsupportedQuantizer(
            f"Constant '{item.tensor}' runs through operators that cannot be evaluated: "
            + ", ".join(n.op_type for n in item.chain)
            + ".",
            "Export with constant folding on.",
        )
    if codes is not None and codes.dtype.kind == "f":
        codes = None
    if codes is not None and codes.dtype != np.int8:
        codes = codes.astype(np.int8) if codes.min(initial=0) >= -127 and codes.max(initial=0) <= 127 else None
    return BakedConstant(values, codes, saturated, float_error, float_off)


def _hidden(codes: np.ndarray) -> np.ndarray:
    """Stands for codes that cannot be told any more: floats."""
    return codes.astype(np.float32)


def _scale_error(weight: np.ndarray, params: QuantParams) -> tuple[float, int]:
    """Rule W3: how far each scale is from max|w| / 127 (relative), and how many channels are off by over 0.1%."""
    if params.axis is None:
        amax = np.asarray(max(weight.max(initial=0), -weight.min(initial=0)))
    else:
        others = tuple(a for a in range(weight.ndim) if a != params.axis)
        amax = np.maximum(weight.max(axis=others), -weight.min(axis=others))
    expected = amax.astype(np.float64) / 127
    used = params.scale.astype(np.float64)
    error = np.where(expected > 1e-12, np.abs(used - expected) / np.maximum(expected, 1e-12), 0)
    return float(error.max()), int(np.count_nonzero(error > 1e-3))
