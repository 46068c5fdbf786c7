"""Quantizers of activations (rules Q1, Q6 to Q10): each found as a value object, or the reason why it cannot be used.

Integer tensors are followed from their source (a QuantizeLinear, an int8 graph input) through Clip and data movement to
their end (a DequantizeLinear, a graph output).
"""

from __future__ import annotations

from typing import Optional

import numpy as np
from onnx import TensorProto

from qdq_translator.translation.ir.constants import Constants, is_dequantize, is_quantize
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import cast_type
from qdq_translator.translation.ir.qparams import QuantParams
from qdq_translator.translation.ir.types import FLOAT_TYPES, MAKE_INTEGERS
from qdq_translator.translation.quantizers import steps
from qdq_translator.translation.quantizers.parameters import Approximated, Rejected, read_parameters

SYMMETRICALLY = (
    "Quantize symmetrically in int8 (ONNX Runtime's quantize_static: activation_type=QuantType.QInt8, "
    "extra_options={'ActivationSymmetric': True, 'WeightSymmetric': True})"
)


class ActivationQuantizers:
    """Walks the graph once: steps, and what is rejected or approximated, in graph order. Options as in TranslateOptions
    (`asymmetric`, `per_channel_activations`)."""

    def __init__(self, constants: Constants, asymmetric: str, per_channel: str) -> None:
        self.graph, self.constants = constants.graph, constants
        self.asymmetric, self.per_channel = asymmetric, per_channel
        self.steps: list[steps.Step] = []
        self.rejected: list[Rejected] = []
        self.approximated: list[Approximated] = []
        self.codes: dict[str, Optional[steps.Codes]] = {}
        """Integer tensors on their way from Q to DQ; None: already rejected, consequences are not reported."""
        self.integers: set[str] = set()
        """Tensors that hold integers or booleans, quantized values included."""

    def run(self) -> ActivationQuantizers:
        for name, value in self.graph.inputs.items():
            elem_type = value.type.tensor_type.elem_type
            if elem_type in (TensorProto.INT8, TensorProto.UINT8):
                self._graph_input(name)
            if elem_type and elem_type not in FLOAT_TYPES:
                self.integers.add(name)
        as_codes = self.codes.keys()
        for node in self.constants.varying:
            if is_quantize(node) or (not is_dequantize(node) and _makes_integers(node, self.integers)):
                self.integers.update(node.outputs)
            try:
                if is_quantize(node):
                    self._quantize(node)
                elif is_dequantize(node):
                    self._dequantize(node)
                elif not as_codes.isdisjoint(node.reads()):
                    self._between(node)
            except Rejected as why:
                self._reject(why, node)
        for name in self.graph.outputs:
            codes = self.codes.get(name)
            if codes is not None:
                self.steps.append(steps.End(name, False, codes.scale, codes.params))
        return self

    def _reject(self, rejected: Rejected, node: Node) -> None:
        self.rejected.append(rejected)
        self.codes.update((name, None) for name in node.outputs)

    def _codes(self, node: Node, tensor: str, stored: Optional[str], made_by: str) -> steps.Codes:
        """Quantized values that a Q makes from `tensor`, or that a DQ reads from it."""
        params = read_parameters(self.constants, node, stored)
        return steps.Codes(params, self._symmetric(node, tensor, params), params.code_range, made_by)

    def _symmetric(self, node: Node, tensor: str, params: QuantParams) -> float:
        """The one symmetric scale for `params`. Raises Rejected if the options do not allow it."""
        if params.dtype == "int32":
            raise Rejected(f"{node.op_type} {node.label} on tensor '{tensor}' uses int32.", "Quantize it to int8.")
        scale = float(params.symmetric_scale())
        coarser = float(scale / params.scale.min())
        # channels with one scale and zero point are per tensor: nothing is lost
        if params.per_channel and not (np.ptp(params.scale) == 0 and np.ptp(params.zero_point) == 0):
            what = f"Activation '{tensor}' has {params.scale.size} scales, one per channel ({node.label})."
            if self.per_channel == "error":
                hint = "TensorRT has one scale per activation; --per_channel_activations max uses the largest."
                raise Rejected(what, hint)
            note = f"{what} The largest, {scale:.6g}, is used."
            option = "--per_channel_activations max"
            self.approximated.append(Approximated(node.name, tensor, option, note, coarser))
        if params.symmetric:
            return scale
        zero = int(params.zero_point.reshape(-1)[0])
        without = "" if node.input(2) else " (no zero point given: uint8 by the ONNX standard)"
        what = f"Activation '{tensor}' is quantized to {params.dtype} with zero point {zero}{without} at {node.label}."
        note = f"{what} Its symmetric scale is {scale:.6g} (resolution {float(params.scale.max()):.6g})."
        option = f"--asymmetric {self.asymmetric}"
        self.approximated.append(Approximated(node.name, tensor, option, note, coarser, asymmetric=True))
        if self.asymmetric != "error":
            return scale
        if without:
            raise Rejected(
                what, "If the exporter meant int8, use --missing_zero_point int8; if uint8, --asymmetric widen."
            )
        raise Rejected(
            what, f"{SYMMETRICALLY}, or use --asymmetric widen for the smallest symmetric scale that covers it."
        )

    def _quantize(self, node: Node) -> None:
        source = node.inputs[0]
        codes = self.codes[node.outputs[0]] = self._codes(node, source, None, node.label)
        self.steps.append(steps.Quantize(node, codes, codes.scale, source in self.integers))

    def _graph_input(self, name: str) -> None:
        """Accept an integer graph input only if a DequantizeLinear reads it, directly or through data movement."""
        node = self._first_dequantize(name)
        if node is None:
            return
        stored = "int8" if self.graph.inputs[name].type.tensor_type.elem_type == TensorProto.INT8 else "uint8"
        try:
            codes = self.codes[name] = self._codes(node, name, stored, f"graph input '{name}'")
        except Rejected as why:
            self.codes[name] = None
            self._reject(why, node)
        else:
            self.steps.append(steps.End(name, True, codes.scale, codes.params))

    def _first_dequantize(self, name: str) -> Optional[Node]:
        frontier, seen = [name], {name}
        while frontier:
            tensor = frontier.pop()
            for node in self.graph.consumers(tensor):
                if is_dequantize(node) and node.inputs[0] == tensor:
                    return node
                if node.is_op(*steps.BETWEEN_OPS):
                    fresh = [o for o in node.outputs if o and o not in seen]
                    seen.update(fresh)
                    frontier.extend(fresh)
        return None

    def _dequantize(self, node: Node) -> None:
        tensor = node.inputs[0]
        if tensor not in self.codes:
            producer = self.graph.producer.get(tensor)
            made = f"{producer.op_type} {producer.label}" if producer is not None else f"graph input '{tensor}'"
            what = f"DequantizeLinear {node.label} reads '{tensor}', which comes from {made} and not from a quantizer."
            raise Rejected(what, "Export with QuantizeLinear/DequantizeLinear pairs (QDQ format).")
        codes = self.codes[tensor]
        if codes is None:
            return
        params = read_parameters(self.constants, node, codes.params.dtype)
        if not steps.same_grid(codes.params, params):
            raise Rejected(
                f"DequantizeLinear {node.label} has scale {_first(params)} and its quantizer {codes.made_by} has "
                f"{_first(codes.params)}.",
                "Both must be equal; otherwise the pair multiplies, which one scale cannot represent. Export again.",
            )
        cast = params.real if params.real != codes.params.real else None
        self.steps.append(steps.Dequantize(node, codes.scale, cast))

    def _between(self, node: Node) -> None:
        """A node other than DequantizeLinear that reads quantized values."""
        held = {name: self.codes[name] for name in node.reads() if name in self.codes}
        read = {name: codes for name, codes in held.items() if codes is not None}
        if len(read) < len(held):
            self.codes.update((output, None) for output in node.outputs)
            return
        step, made = steps.between(node, read, self.constants)
        self.codes.update(made)
        self.steps.append(step)


def _makes_integers(node: Node, integers: set[str]) -> bool:
    """Whether an operator other than Q and DQ outputs integers or booleans, by itself or because of its data input."""
    if node.op_type in MAKE_INTEGERS:
        return True
    if node.is_op("Cast"):
        return cast_type(node) not in FLOAT_TYPES
    data = node.input(1 if node.is_op("Where") else 0)
    return data in integers and not node.is_op("OneHot", "ConstantOfShape", "CastLike")


def _first(params: QuantParams) -> str:
    text = f"{float(params.scale.reshape(-1)[0]):.6g}"
    return text + (f" (zero point {int(params.zero_point.reshape(-1)[0])})" if not params.centred else "")
