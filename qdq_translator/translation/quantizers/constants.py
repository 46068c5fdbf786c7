"""Quantizers of constants (rules Q2 to Q5, Q11): weights, biases and other dequantized constants.

A constant expression with a DequantizeLinear in it ends at its frontier: the tensor that a computing node reads. That
tensor is replaced by one initializer, regardless of the nodes before it.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

import numpy as np
from onnx import TensorProto

from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.translation.ir.constants import LAYOUT_OPS, Constants, is_dequantize, is_quantize, is_quantizer
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import WEIGHT_INPUTS, from_front
from qdq_translator.translation.ir.qparams import QuantParams, along, dequantize, largest, quantize
from qdq_translator.translation.ir.weights import Initializer, Weight, made_weight, weight_of
from qdq_translator.translation.quantizers.parameters import Rejected, known_parameters, read_parameters

_MOVES = tuple(op for op in LAYOUT_OPS if "Cast" not in op)
_SCALE_OFF = 1e-3
"""Relative distance of a scale from max|w| / 127 that is reported (rule W3)."""


@dataclasses.dataclass(frozen=True)
class QuantizedConstant:
    """One constant to bake. `tensor`: the frontier; `kind`: 'weight', 'bias', 'constant', or 'codes' for a quantized
    graph output; `chain`: the nodes of its expression; `name`: of the new initializer; `params`, `node`: parameters and
    name of the last quantizer."""

    tensor: str
    name: str
    kind: str
    params: QuantParams
    node: str
    chain: tuple[Node, ...]


def _kind_of(graph: Graph, tensor: str) -> str:
    """'weight' if a consumer uses the tensor as such, else 'constant' (a bias too)."""
    readers = ((node, index) for node in graph.consumers(tensor) for index in WEIGHT_INPUTS.get(node.op_type, ()))
    uses = any(node.domain == "" and node.input(index) == tensor for node, index in readers)
    return "weight" if uses else "constant"


def find_constant_quantizers(constants: Constants, asymmetric: str) -> tuple[list[QuantizedConstant], list[Rejected]]:
    """Every frontier tensor in graph order, and the reasons why others cannot be baked. asymmetric: as in
    TranslateOptions.
    """
    graph, dequantized = constants.graph, constants.dequantized
    reads = [name for node in constants.varying for name in node.reads() if name in dequantized]
    codes = [n for n in graph.outputs if constants.is_constant(n) and any(map(is_quantize, _chain(graph, n)))]
    tensors = dict.fromkeys([*reads, *(n for n in graph.outputs if n in dequantized), *codes])
    found: list[QuantizedConstant] = []
    rejected: list[Rejected] = []
    for tensor in tensors:
        try:
            found.append(_constant_at(constants, tensor, asymmetric))
        except Rejected as why:
            rejected.append(why)
    return found, rejected


def _constant_at(constants: Constants, tensor: str, asymmetric: str) -> QuantizedConstant:
    graph, chain = constants.graph, _chain(constants.graph, tensor)
    quantizers = [node for node in chain if is_quantizer(node)]
    params = [_params_at(constants, tensor, node, chain, asymmetric) for node in quantizers]
    if not params:
        raise Rejected(f"Constant '{tensor}' runs through no quantizer that can be read.", "Export again.")
    kind = "codes" if is_quantize(quantizers[-1]) else _kind_of(graph, tensor)
    if kind == "codes" and not all(is_quantizer(node) or node.is_op(*_MOVES) for node in chain):
        raise Rejected(
            f"Graph output '{tensor}' is integer arithmetic on the quantized values of the constant at "
            f"'{quantizers[-1].name}'.",
            "Make the graph output behind a DequantizeLinear.",
        )
    return QuantizedConstant(
        tensor, _name_for(graph, tensor, chain), kind, params[-1], quantizers[-1].name, tuple(chain)
    )


def _params_at(constants: Constants, tensor: str, node: Node, chain: list[Node], asymmetric: str) -> QuantParams:
    """Parameters of one quantizer behind the constant `tensor`."""
    read = read_parameters(constants, node, _stored_type(constants, node, chain))
    if read.dtype == "int32" and is_quantize(node):
        raise Rejected(f"Constant '{tensor}' is quantized to int32 at {node.label}.", "Use int8.")
    if read.dtype == "int32" or read.symmetric or asymmetric != "error":
        return read
    zero = int(read.zero_point.reshape(-1)[0])
    without = "" if node.input(2) else " (no zero point given)"
    raise Rejected(
        f"Constant '{tensor}' is quantized to {read.dtype} with zero point {zero}{without} at {node.label}.",
        "Quantize weights to symmetric int8, or use --asymmetric widen to keep their values and let TensorRT "
        "requantize them.",
    )


def _stored_type(constants: Constants, node: Node, chain: list[Node]) -> Optional[str]:
    """Type of the quantized values that a DQ reads, if known; None for a Q."""
    if is_quantize(node):
        return None
    stored = constants.type_name(node.inputs[0]) if constants.graph.is_constant(node.inputs[0]) else None
    makers = [n for n in chain if is_quantize(n)] if stored is None else []
    own = known_parameters(constants, makers[0]) if makers else None
    return stored if own is None else own.dtype


def _chain(graph: Graph, tensor: str) -> list[Node]:
    """The nodes of the constant expression behind `tensor` that carry its data, in graph order of first need."""
    chain: list[Node] = []
    stack, seen = [tensor], set()
    while stack:
        node = graph.producer.get(stack.pop())
        if node is None or id(node) in seen or node.is_op("Constant"):
            continue
        seen.add(id(node))
        chain.append(node)
        only_first = is_quantizer(node) or node.is_op(*LAYOUT_OPS, "Clip")
        stack.extend(node.inputs[:1] if only_first else node.inputs)
    return chain[::-1]


def _name_for(graph: Graph, tensor: str, chain: list[Node]) -> str:
    """The float initializer's own name if only `Q -> DQ` reads it, else the frontier's name.

    Rule S10 and NVIDIA's translator name a weight after its initializer; a name with a different shape or type would
    mislead.
    """
    if len(chain) == 2 and is_quantize(chain[0]) and is_dequantize(chain[1]):
        source = chain[0].inputs[0]
        alone = graph.only_consumer(source) is chain[0] and graph.only_consumer(chain[0].outputs[0]) is chain[1]
        if alone and source in graph.initializers:
            return source
    return tensor


class Bakery:
    """Evaluate the expression behind one constant. Its quantizers are read as requested: quantized values, real values
    or earlier float weights (`weights`: 'baked' or 'float' as in TranslateOptions).

    weight: value in the stripped model; codes: trained quantized values in the same layout (int8, weights only), None
    if arithmetic after the DequantizeLinear hides them; saturated: values -128 that became -127; scale_error: largest
    relative distance of a channel's scale from max|w| / 127 (rule W3), None if the exporter kept no float weights;
    scales_off: how many are too far. Raises UnsupportedQuantizer if the expression cannot be evaluated.
    """

    def __init__(self, constants: Constants, item: QuantizedConstant, weights: str) -> None:
        self.constants, self.item = constants, item
        self.is_weight = item.kind == "weight"
        self.saturated = self.scales_off = 0
        self.scale_error: Optional[float] = None
        self.met: list[QuantParams] = []
        """Quantizers that `_as_codes` has met."""
        found = self._codes()
        whole = _int8(found)
        self.codes = None if whole is None else Weight(item.name, TensorProto.INT8, whole.shape, whole)
        weight = self._from_codes(found, self.codes) if weights == "baked" and found is not None else None
        self.weight: Initializer = weight if weight is not None else self._evaluated(weights)

    def own(self) -> Initializer:
        """The weight for one graph, which names it."""
        return self.weight.copy() if isinstance(self.weight, Weight) else self.weight

    def _evaluated(self, weights: str) -> Initializer:
        read = self._as_float if weights == "float" else self._as_real
        values = self.constants.value(self.item.tensor, self._on_grid if self.item.kind == "codes" else read)
        if values is None:
            operators = ", ".join(node.op_type for node in self.item.chain)
            raise UnsupportedQuantizer(
                f"Constant '{self.item.tensor}' runs through operators that cannot be evaluated: {operators}.",
                "Export with constant folding on.",
            )
        return weight_of(self.item.name, values)

    def _codes(self) -> Optional[np.ndarray]:
        """Trained quantized values of a weight; floats if only those can be recovered; None if neither."""
        kept = (is_quantizer(n) or n.is_op(*LAYOUT_OPS, "Clip") for n in self.item.chain)
        return self.constants.value(self.item.tensor, self._as_codes) if self.is_weight and all(kept) else None

    def _from_codes(self, found: np.ndarray, codes: Optional[Weight]) -> Optional[Initializer]:
        """Real values, if the quantized values of one plain `[Q ->] DQ` give them: cheaper than requantizing."""
        node = self.item.chain[-1]
        if len(self.item.chain) > 2 or len(self.met) > 2 or not is_dequantize(node):
            return None
        plain = self.met[-1]
        if not plain.centred:  # these quantized values no longer have a zero point
            plain = dataclasses.replace(plain, zero_point=np.zeros((), np.int64))
        if codes is None or found.dtype != np.int8:
            return weight_of(self.item.name, dequantize(found, plain, plain.real))
        return made_weight(codes.name, plain.real, codes, lambda values: dequantize(values, plain, plain.real))

    def _parameters(self, node: Node, data: np.ndarray) -> QuantParams:
        params = read_parameters(self.constants, node, self.item.params.dtype)
        if params.axis is None:
            return params
        axis = from_front(params.axis, data.ndim)
        if not 0 <= axis < data.ndim or data.shape[axis] != params.scale.size:
            raise UnsupportedQuantizer(
                f"{node.op_type} {node.label} on constant '{self.item.tensor}' has {params.scale.size} scales along "
                f"axis {params.axis} of shape {list(data.shape)}.",
                "Export with one scale for each channel along that axis.",
            )
        return params if axis == params.axis else dataclasses.replace(params, axis=axis)

    def _quantized(self, data: np.ndarray, params: QuantParams) -> np.ndarray:
        self._amax(data, params)
        return quantize(data, params)

    def _amax(self, data: np.ndarray, params: QuantParams) -> np.ndarray:
        """Largest magnitude of the float values for each scale, float64. Raises UnsupportedQuantizer if they are not
        numbers."""
        if data.dtype.kind not in "fV":
            raise UnsupportedQuantizer(
                f"Constant '{self.item.tensor}' is {data.dtype.name} before its quantizer '{self.item.node}'.",
                "Quantize float weights.",
            )
        with np.errstate(invalid="ignore"):
            amax = largest(data, params.axis).astype(np.float64)
        if not amax.max(initial=0) < np.inf:  # NaN fails this too
            raise UnsupportedQuantizer(
                f"Constant '{self.item.tensor}' contains NaN or infinity before its quantizer '{self.item.node}'.",
                "Export a model whose training did not diverge.",
            )
        return amax

    def _as_codes(self, node: Node, data: np.ndarray, more: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Evaluates to quantized values of a weight: Q quantizes, DQ passes them on (less their zero point)."""
        if is_quantize(node):
            return self._quantized_once(data, self._parameters(node, data))
        if is_dequantize(node):
            params = self._parameters(node, data)
            self.met.append(params)
            return self._without_zero_point(data, params)
        if self.met and node.is_op("Cast", "CastLike"):
            return data
        if self.met and node.is_op("Clip") and any(i is not None and i.dtype.kind == "f" for i in more):
            return _hidden(data)
        return None

    def _quantized_once(self, data: np.ndarray, params: QuantParams) -> np.ndarray:
        if self.met:
            return data if params.same_grid(self.met[-1]) else _hidden(data)
        self.met.append(params)
        expected, used = self._amax(data, params) / 127, params.scale.astype(np.float64)
        if params.dtype == "int8":  # rule W3: how far each is from max|w| / 127
            error = np.where(expected > 1e-12, np.abs(used - expected) / np.maximum(expected, 1e-12), 0)
            self.scale_error, self.scales_off = float(error.max(initial=0)), int(np.count_nonzero(error > _SCALE_OFF))
        return quantize(data, params)

    def _without_zero_point(self, codes: np.ndarray, params: QuantParams) -> np.ndarray:
        if not params.centred:
            codes = codes.astype(np.int32) - along(params.zero_point, params.axis, codes.ndim).astype(np.int32)
        if params.symmetric and codes.dtype in (np.int8, np.int32):
            self.saturated = int(np.count_nonzero(codes == -128)) if codes.min(initial=0) <= -128 else 0
            if self.saturated:  # TensorRT's weights end at -127 (fact 5.1)
                return np.maximum(codes, -127)
        return codes

    def _as_real(self, node: Node, data: np.ndarray, more: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Q quantizes, DQ dequantizes, in the type of the scale."""
        if is_quantize(node):
            return self._quantized(data, self._parameters(node, data))
        if is_dequantize(node):
            params = self._parameters(node, data)
            if data.dtype.name != params.dtype:
                raise UnsupportedQuantizer(
                    f"DequantizeLinear {node.label} reads {data.dtype.name} where {params.dtype} is meant.",
                    "Export without a Cast of integers.",
                )
            if self.is_weight and params.dtype == "int8" and params.centred:  # TensorRT's weights end at -127
                data = np.maximum(data, -127)
            return dequantize(data, params, params.real)
        return None

    def _on_grid(self, node: Node, data: np.ndarray, more: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Q output as dequantized values, which later nodes move (rule Q7)."""
        if is_quantize(node):
            params = self._parameters(node, data)
            return dequantize(self._quantized(data, params), params, params.real)
        return data if is_dequantize(node) else None

    def _as_float(self, node: Node, data: np.ndarray, more: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
        """Quantizers pass the float weights through (rule W2)."""
        if is_quantize(node) or (is_dequantize(node) and data.dtype.kind == "f"):
            return data
        limit = more[0] if more else None
        if node.is_op("Clip") and data.dtype.kind == "f" and limit is not None and limit.dtype.kind != "f":
            return data
        return self._as_real(node, data, more)


def _int8(codes: Optional[np.ndarray]) -> Optional[np.ndarray]:
    """Quantized values as in TensorRT's weights; None if they do not fit or are hidden."""
    if codes is None or codes.dtype == np.int8:
        return codes
    fits = codes.dtype.kind != "f" and codes.min(initial=0) >= -127 and codes.max(initial=0) <= 127
    return codes.astype(np.int8) if fits else None


def _hidden(codes: np.ndarray) -> np.ndarray:
    """Mark quantized values as unrecoverable by making them floats."""
    return codes.astype(np.float32)
