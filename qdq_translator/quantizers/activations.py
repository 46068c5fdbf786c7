"""Quantizers of activations (rules Q1, Q6 to Q10): each found as a value object, or the reason why it cannot be used.

Integer tensors are followed from where they arise (a QuantizeLinear, an int8 graph input) through Clip and data
movement to where they end (a DequantizeLinear, a graph output).
"""

from __future__ import annotations

import dataclasses
from typing import Optional, Union

import numpy as np
from onnx import TensorProto

from qdq_translator.constants import Constants, is_dequantize, is_quantize
from qdq_translator.graph import Graph, Node
from qdq_translator.qparams import QuantParams
from qdq_translator.quantizers.parameters import Rejected, read_parameters

MOVEMENT_OPS = (
    "Identity",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "MaxPool",
    "Slice",
    "Split",
    "Gather",
    "Concat",
    "Expand",
    "Tile",
    "Pad",
    "DepthToSpace",
    "SpaceToDepth",
    "Resize",
)
"""Operators that may stand between Q and DQ: on int8 codes they do what they do on float values (rule Q10)."""
_ONE_DATA_INPUT = tuple(op for op in MOVEMENT_OPS if op != "Concat")


@dataclasses.dataclass(frozen=True)
class Quantize:
    """`source` (float) becomes codes: its scale is `scale`. `clamp`: real bounds that the type itself cuts at (Q9)."""

    node: Node
    source: str
    params: QuantParams
    scale: float
    clamp: Optional[tuple[Optional[float], Optional[float]]] = None


@dataclasses.dataclass(frozen=True)
class ClampCodes:
    """A Clip on codes; `clamp` holds its bounds as real values, None where it cuts nothing (rules Q1, Q9)."""

    node: Node
    scale: float
    clamp: Optional[tuple[Optional[float], Optional[float]]]
    real: np.dtype


@dataclasses.dataclass(frozen=True)
class Move:
    """Data movement on codes, to be done on float values (rule Q10): `moved` are its outputs that hold codes.
    `pad_value`: real value of a Pad's constant."""

    node: Node
    scale: float
    moved: tuple[str, ...]
    real: np.dtype
    pad_value: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Dequantize:
    """Codes become real again. `cast`: the real type, where it is another than the quantizer's was."""

    node: Node
    source: str
    scale: float
    cast: Optional[np.dtype] = None


@dataclasses.dataclass(frozen=True)
class QuantizedInput:
    """A graph input that arrives as codes (rule Q6); `real`: the float type that it becomes."""

    name: str
    scale: float
    real: np.dtype


@dataclasses.dataclass(frozen=True)
class QuantizedOutput:
    """A graph output that leaves as codes (rule Q7); `real`: the float type that it becomes."""

    name: str
    real: np.dtype


Step = Union[Quantize, ClampCodes, Move, Dequantize, QuantizedInput, QuantizedOutput]


@dataclasses.dataclass(frozen=True)
class Approximated:
    """A quantizer that is translated by an option and not exactly: what was found and what it becomes."""

    node: str
    tensor: str
    option: str
    what: str
    exact: bool


@dataclasses.dataclass
class Found:
    """What `find_activation_quantizers` returns, in graph order."""

    steps: list[Step] = dataclasses.field(default_factory=list)
    rejected: list[Rejected] = dataclasses.field(default_factory=list)
    approximated: list[Approximated] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Codes:
    params: QuantParams
    scale: float
    """The symmetric scale that represents `params`."""
    bounds: tuple[int, int]
    """Codes that can occur."""
    made_by: str


def find_activation_quantizers(
    graph: Graph, constants: Constants, *, asymmetric: str, per_channel: str, missing_zero_point: str
) -> Found:
    """Walks the graph once. Options as in TranslateOptions (`asymmetric`, `per_channel_activations`)."""
    return _Finder(graph, constants, asymmetric, per_channel, missing_zero_point).run()


class _Finder:
    def __init__(self, graph: Graph, constants: Constants, asymmetric: str, per_channel: str, missing: str) -> None:
        self.graph, self.constants = graph, constants
        self.asymmetric, self.per_channel, self.missing = asymmetric, per_channel, missing
        self.found = Found()
        self.codes: dict[str, Optional[_Codes]] = {}
        """Integer tensors on their way from Q to DQ; None: already rejected, do not report what follows from it."""

    def run(self) -> Found:
        for name, value in self.graph.inputs.items():
            if value.type.tensor_type.elem_type in (TensorProto.INT8, TensorProto.UINT8):
                self._graph_input(name)
        for node in self.graph.nodes:
            if node.outputs and self.constants.is_constant(node.outputs[0]):
                continue
            if is_quantize(node):
                self._quantize(node)
            elif is_dequantize(node):
                self._dequantize(node)
            elif any(name in self.codes for name in node.reads()):
                self._between(node)
        for name in self.graph.outputs:
            codes = self.codes.get(name)
            if codes is not None:
                self.found.steps.append(QuantizedOutput(name, codes.params.real))
        return self.found

    def _reject(self, node: Node, tensor: str, what: str, mend: str) -> None:
        self.found.rejected.append(Rejected(node.name, tensor, what, mend))
        self.codes.update((name, None) for name in node.outputs)

    def _read(self, node: Node, stored: Optional[str] = None) -> Optional[QuantParams]:
        params = read_parameters(self.graph, self.constants, node, self.missing, stored)
        if isinstance(params, Rejected):
            self.found.rejected.append(params)
            self.codes.update((name, None) for name in node.outputs)
            return None
        return params

    def _symmetric(self, node: Node, tensor: str, params: QuantParams) -> Optional[float]:
        """The one symmetric scale for `params`; None, with the reason noted, where the options do not allow it."""
        if params.dtype == "int32":
            self._reject(
                node, tensor, f"{node.op_type} {node.label} on tensor '{tensor}' uses int32.", "Quantize it to int8."
            )
            return None
        scale = float(params.symmetric_scale())
        if params.per_channel and not (np.ptp(params.scale) == 0 and np.ptp(params.zero_point) == 0):
            what = f"Activation '{tensor}' has {params.scale.size} scales, one per channel ({node.label})."
            if self.per_channel == "error":
                self._reject(
                    node,
                    tensor,
                    what,
                    "TensorRT has one scale per activation; --per_channel_activations max takes the largest.",
                )
                return None
            self.found.approximated.append(
                Approximated(
                    node.name,
                    tensor,
                    "--per_channel_activations max",
                    f"{what} The largest, {scale:.6g}, is used.",
                    False,
                )
            )
        if params.dtype != "int8" or params.zero_point.any():
            zero = int(params.zero_point.reshape(-1)[0])
            without = "" if node.input(2) else " (no zero point given: uint8 by the ONNX standard)"
            what = (
                f"Activation '{tensor}' is quantized to {params.dtype} with zero point {zero}{without} at {node.label}."
            )
            if self.asymmetric == "error":
                exact = params.dtype == "uint8" and zero == 128
                mend = (
                    "--asymmetric widen translates it exactly (the same grid as int8 with zero point 0)."
                    if exact
                    else "Calibrate symmetrically in int8, or use --asymmetric widen for the smallest symmetric scale that covers it."
                )
                if without:
                    mend = "If the exporter meant int8, use --missing_zero_point int8; if uint8, --asymmetric widen."
                self._reject(node, tensor, what, mend)
                return None
            exact = bool(np.all(params.scale == np.float32(scale)))
            verdict = "exactly the same grid" if exact else f"resolution {float(params.scale.max()):.6g}"
            self.found.approximated.append(
                Approximated(
                    node.name,
                    tensor,
                    "--asymmetric widen",
                    f"{what} Its symmetric scale is {scale:.6g} ({verdict}).",
                    exact,
                )
            )
        return scale

    def _quantize(self, node: Node) -> None:
        source = node.inputs[0]
        params = self._read(node)
        if params is None:
            return
        scale = self._symmetric(node, source, params)
        if scale is None:
            return
        self.codes[node.outputs[0]] = _Codes(params, scale, params.code_range, node.label)
        self.found.steps.append(Quantize(node, source, params, scale, self._clamp(params, scale, params.code_range)))

    def _graph_input(self, name: str) -> None:
        """An integer graph input counts as codes only where a DequantizeLinear reads it, movement in between."""
        frontier, seen, params = [name], {name}, None
        while frontier:
            tensor = frontier.pop()
            for node in self.graph.consumers(tensor):
                if is_dequantize(node) and node.inputs[0] == tensor:
                    stored = (
                        "int8" if self.graph.inputs[name].type.tensor_type.elem_type == TensorProto.INT8 else "uint8"
                    )
                    params = self._read(node, stored)
                    if params is None:
                        return
                    frontier.clear()
                    scale = self._symmetric(node, name, params)
                    if scale is None:
                        self.codes[name] = None
                        return
                    self.codes[name] = _Codes(params, scale, params.code_range, f"graph input '{name}'")
                    self.found.steps.append(QuantizedInput(name, scale, params.real))
                    return
                if node.is_op(*MOVEMENT_OPS, "Clip"):
                    fresh = [o for o in node.outputs if o and o not in seen]
                    seen.update(fresh)
                    frontier.extend(fresh)

    def _dequantize(self, node: Node) -> None:
        tensor = node.inputs[0]
        if tensor not in self.codes:
            producer = self.graph.producer.get(tensor)
            made = f"{producer.op_type} {producer.label}" if producer is not None else f"graph input '{tensor}'"
            self._reject(
                node,
                tensor,
                f"DequantizeLinear {node.label} reads '{tensor}', which comes from {made} and not from a quantizer.",
                "Export with QuantizeLinear/DequantizeLinear pairs (QDQ format).",
            )
            return
        codes = self.codes[tensor]
        if codes is None:
            return
        params = self._read(node, codes.params.dtype)
        if params is None:
            return
        if not _matches(codes.params, params):
            self._reject(
                node,
                tensor,
                f"DequantizeLinear {node.label} has scale {_first(params)} and its quantizer {codes.made_by} has "
                f"{_first(codes.params)}.",
                "Both must be equal; such a pair also multiplies, which one scale cannot say. Export again.",
            )
            return
        cast = params.real if params.real != codes.params.real else None
        self.found.steps.append(Dequantize(node, tensor, codes.scale, cast))

    def _between(self, node: Node) -> None:
        """A node that reads codes and is no DequantizeLinear."""
        read = [name for name in node.reads() if name in self.codes]
        codes = [self.codes[name] for name in read]
        known = [c for c in codes if c is not None]
        if len(known) < len(codes):
            self.codes.update((name, None) for name in node.outputs)
            return
        first = known[0]
        fixed = all(not name or self.constants.is_constant(name) for name in node.inputs[1:])
        if node.is_op("Clip") and node.inputs[0] == read[0] and len(read) == 1 and fixed:
            low, high = (self._bound(node, i) for i in (1, 2))
            bounds = (
                first.bounds[0] if low is None else max(first.bounds[0], low),
                first.bounds[1] if high is None else min(first.bounds[1], high),
            )
            self.codes[node.outputs[0]] = dataclasses.replace(first, bounds=bounds)
            before, after = (self._clamp(first.params, first.scale, b) for b in (first.bounds, bounds))
            self.found.steps.append(
                ClampCodes(node, first.scale, after if after != before else None, first.params.real)
            )
            return
        moves = node.is_op(*_ONE_DATA_INPUT) and read == [node.inputs[0]]
        if node.is_op("Resize"):
            cuts = node.get("coordinate_transformation_mode", "") == "tf_crop_and_resize"
            moves = moves and node.get("mode", "nearest") == "nearest" and not cuts
        if node.is_op("Concat"):
            moves = len(read) == len(set(node.inputs)) and all(_matches(first.params, c.params) for c in known)
        if not moves:
            self._reject(
                node,
                read[0],
                f"{node.op_type} {node.label} works on the integer tensor '{read[0]}' of quantizer {first.made_by}.",
                "Only Clip and data movement may stand between Q and DQ; export in QDQ format, not as integer operators.",
            )
            return
        pad_value = None
        bounds = (min(c.bounds[0] for c in known), max(c.bounds[1] for c in known))
        if node.is_op("Pad") and node.get("mode", "constant") == "constant":
            code = self._bound(node, 2) if node.input(2) else 0
            values = set() if code is None else set(((code - first.params.zero_point) * first.params.scale).flat)
            if code is None or len(values) > 1:
                why = "with a value that is not constant" if code is None else "to a different value in each channel"
                self._reject(
                    node,
                    read[0],
                    f"Pad {node.label} pads the integer tensor '{read[0]}' {why}.",
                    "Pad before the QuantizeLinear, with a constant.",
                )
                return
            pad_value = float(values.pop())
            bounds = (min(bounds[0], code), max(bounds[1], code))
        outputs = node.outputs if node.is_op("Split") else node.outputs[:1]
        moved = tuple(name for name in outputs if name)
        for name in moved:
            self.codes[name] = dataclasses.replace(first, bounds=bounds)
        self.found.steps.append(Move(node, first.scale, moved, first.params.real, pad_value))

    def _bound(self, node: Node, index: int) -> Optional[int]:
        value = self.constants.value(node.input(index)) if node.input(index) else None
        return None if value is None else int(value.reshape(-1)[0])

    @staticmethod
    def _clamp(
        params: QuantParams, scale: float, bounds: tuple[int, int]
    ) -> Optional[tuple[Optional[float], Optional[float]]]:
        """Real bounds that int8 saturation at `scale` does not already cut at, within one step (rule Q9).

        A lower bound of an asymmetric type counts only where it is 0: elsewhere it is plain saturation of the
        calibrated range. With one scale per channel the widest bounds count, as the largest scale does.
        """
        type_low, type_high = params.code_range
        step = params.scale.astype(np.float64)
        low: Optional[float] = float(np.min((bounds[0] - params.zero_point) * step))
        high: Optional[float] = float(np.max((bounds[1] - params.zero_point) * step))
        assert low is not None and high is not None
        if low <= -127 * scale or (bounds[0] <= type_low and low < 0):
            low = None
        if high >= 127 * scale * (1 - 1e-6) or (bounds[1] >= type_high and high > 0):
            high = None
        return None if low is None and high is None else (low, high)


def _matches(a: QuantParams, b: QuantParams) -> bool:
    """Equal grids; scales that went through float16 on one side count as equal."""
    if a.per_channel != b.per_channel or not np.array_equal(a.zero_point, b.zero_point):
        return False
    if a.per_channel and a.axis != b.axis:
        return False
    if np.array_equal(a.scale, b.scale):
        return True
    halves = [p.scale.astype(np.float16).astype(np.float32) for p in (a, b)]
    went_through_half = any(np.array_equal(h, p.scale) for h, p in zip(halves, (a, b)))
    return went_through_half and np.array_equal(halves[0], halves[1])


def _first(params: QuantParams) -> str:
    text = f"{float(params.scale.reshape(-1)[0]):.6g}"
    return text + (f" (zero point {int(params.zero_point.reshape(-1)[0])})" if params.zero_point.any() else "")
