"""Facts about ONNX operators that several folders need: parameters in any opset, weights, and named sets.

A parameter is an attribute in older opsets and a constant input in newer ones. A reader gets the node and a look-up
from tensor to constant values (`graph.array`, `constants.value`), and returns None if the parameter is not constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Generic, Iterable, Optional, Sequence, TypeVar, Union

import numpy as np

from qdq_translator.translation.ir.graph import Item, Node
from qdq_translator.translation.ir.operator_table import OPERATORS, where

Size = TypeVar("Size")
Found = TypeVar("Found")
LookUp = Callable[[str], Optional[np.ndarray]]

# ---------------- named sets

CONVOLUTIONS = where(kind="convolution")
DENSE = where(kind="dense")
WEIGHTED = (*CONVOLUTIONS, *DENSE)
"""Layers that multiply with weights."""
ELEMENTWISE = where(kind="elementwise")
"""Of two or more tensors, value by value, as TensorRT has one layer for them."""
POOLING = where(kind="pooling")
RESIZES = where(kind="resize")
ACTIVATIONS = where(kind="activation")
"""TensorRT's activation layer, as the DLA has it."""
LEAST_BOUND, MOST_BOUND = 1.0, 127.0
"""Upper bounds of a clipped Relu of the DLA."""
CLAMPS = ("Relu", "Clip")
SIGMOIDS = ("Sigmoid", "Tanh")
"""They run in FP16 on the DLA with any scales (limit A1)."""
VIEWS = where(data="view")
"""Another shape for the same values in the same order."""
REARRANGES = where(data="view permute same")
"""Every value of the input comes out, once."""
PARTS = where(data="part")
"""A part of the values comes out."""
COMPARISONS = where(kind="comparison")
SPATIAL_MEANS = where(data="mean")
RANDOM = where(kind="random")
LAYER_NORMS = where(kind="layernorm")
QUANTIZERS = where(kind="quantizer")
_LAST_NUMBERS = tuple(float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64))

# ---------------- parameters


def parameter(node: Node, key: str, index: int, constant: LookUp) -> Optional[np.ndarray]:
    """Attribute `key`, else the constant at input `index`; None if both are missing, or the input is not constant."""
    given = node.get(key)
    if given is not None:
        return np.asarray(given)
    return constant(node.input(index)) if node.input(index) else None


def _attribute(key: str, default: object, kind: Callable[[Any], Found]) -> Callable[[Node], Found]:
    """The reader of an attribute that has this default in every opset."""
    return lambda node: kind(node.get(key, default))


cast_type = _attribute("to", 0, int)
"""ONNX element type that a Cast makes."""
keeps_dimensions = _attribute("keepdims", 1, bool)
"""Of a reduction: the reduced axes stay, with a size of 1."""
epsilon = _attribute("epsilon", 1e-5, float)
block_size = _attribute("blocksize", 0, int)
groups = _attribute("group", 1, int)
groups_of_channels = _attribute("num_groups", 0, int)
"""Of a GroupNormalization."""
truncates = _attribute("fmod", 0, bool)
"""A Mod whose result has the sign of the dividend."""
reduction = _attribute("reduction", "none", str)
"""How a ScatterND joins several updates of one place; with 'none' any may win."""
counts_padding = _attribute("count_include_pad", 0, bool)
"""An AveragePool whose average is over its padding too."""
output_padding = _attribute("output_padding", (), list)
states_output_shape = _attribute("output_shape", (), bool)
"""A ConvTranspose that gives the shape of its output and not its padding."""


def is_given(node: Node, key: str, index: int) -> bool:
    return key in node.attributes or bool(node.input(index))


def integers(node: Node, key: str, index: int, constant: LookUp) -> Optional[list[int]]:
    values = parameter(node, key, index, constant)
    if values is None or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        return None
    return [int(v) for v in values.reshape(-1)]


def number(node: Node, key: str, index: int, absent: float, constant: LookUp) -> Optional[float]:
    """A scalar parameter: `absent` if it is not given, None if it is not a constant of one element."""
    if not is_given(node, key, index):
        return absent
    values = parameter(node, key, index, constant)
    return float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None


def axes(node: Node, constant: LookUp, index: int = 1) -> Optional[list[int]]:
    """Axes as written, possibly negative, of Reduce operators, Squeeze, Unsqueeze (input 1) or Slice, Pad (input 3);
    None if not given or not constant."""
    return integers(node, "axes", index, constant)


def non_negative(axes_given: Optional[Iterable[int]], rank: Optional[int]) -> Optional[list[int]]:
    """Axes counted from the front, in the given order; None if one is negative and the rank is unknown."""
    if axes_given is None:
        return None
    found = list(axes_given)
    if rank is None and any(a < 0 for a in found):
        return None
    return [from_front(a, rank or 0) for a in found]


def from_front(axis_given: int, rank: int) -> int:
    return axis_given + rank if axis_given < 0 else axis_given


def pads(node: Node, constant: LookUp) -> Optional[list[int]]:
    """Pads of a constant Pad: all begins, then all ends, for every axis; None if not constant or only for some axes."""
    if mode(node) != "constant" or node.input(3):
        return None
    return integers(node, "pads", 1, constant)


def pad_value(node: Node, constant: LookUp) -> Optional[float]:
    """The fill value of a constant Pad; None if it is computed."""
    return number(node, "value", 2, 0.0, constant)


def clip_bounds(node: Node, constant: LookUp) -> tuple[Optional[float], Optional[float]]:
    """Lower and upper bound, infinite if missing (or the last finite number of a type, which rule F8 writes for it);
    None for a computed one."""
    found = (number(node, "min", 1, -math.inf, constant), number(node, "max", 2, math.inf, constant))
    low, high = (math.copysign(math.inf, v) if v is not None and abs(v) in _LAST_NUMBERS else v for v in found)
    return low, high


def split_sizes(node: Node, size: int, constant: LookUp) -> Optional[list[int]]:
    """Sizes of the parts along an axis of `size`; without any, equal ones and a smaller last one."""
    if is_given(node, "split", 1):
        return integers(node, "split", 1, constant)
    count = len(node.outputs)
    each = -(-size // count)
    return [*[each] * (count - 1), size - each * (count - 1)]


@dataclass(frozen=True)
class Slices:
    """Parameters of a Slice, one element an axis. axes: as written."""

    starts: list[int]
    ends: list[int]
    axes: list[int]
    steps: list[int]


def slices(node: Node, constant: LookUp) -> Optional[Slices]:
    """None if a parameter is computed."""
    found: dict[str, Optional[list[int]]] = {}
    for index, key in enumerate(("starts", "ends", "axes", "steps"), 1):
        found[key] = integers(node, key, index, constant)
        if found[key] is None and is_given(node, key, index):
            return None
    starts, ends = found["starts"], found["ends"]
    if starts is None or ends is None:
        return None
    return Slices(starts, ends, found["axes"] or list(range(len(starts))), found["steps"] or [1] * len(starts))


def resize_scales(node: Node, opset: int, constant: LookUp) -> Optional[np.ndarray]:
    """Factors of a Resize or Upsample, one per axis; None if it has none, or has sizes instead."""
    values = parameter(node, "scales", 1 if node.is_op("Upsample") or opset < 11 else 2, constant)
    return values if values is not None and values.size else None


def resize_coordinates(node: Node, opset: int) -> tuple[str, str]:
    """How a Resize or Upsample finds its inputs, and which of them is the nearest one."""
    if node.is_op("Upsample") or opset < 11:
        return "asymmetric", "floor"
    return node.get("coordinate_transformation_mode", "half_pixel"), node.get("nearest_mode", "round_prefer_floor")


def crops(node: Node) -> bool:
    """True for a Resize that may write a value of its own outside the image."""
    return bool(node.get("coordinate_transformation_mode", "") == "tf_crop_and_resize")


def takes_nearest(node: Node) -> bool:
    """True for a Resize or Upsample that makes no values of its own."""
    return mode(node) == "nearest" and not crops(node)


_MODES = {"Pad": "constant", "Resize": "nearest", "Upsample": "nearest", "DepthToSpace": "DCR"}


def mode(node: Node) -> str:
    return str(node.get("mode", _MODES.get(node.op_type, "")))


def axis(node: Node, opset: int) -> int:
    """The one axis of an operator that has one, as written, perhaps negative."""
    if node.is_op("Softmax", "LogSoftmax", "Hardmax"):
        return int(node.get("axis", -1 if opset >= 13 else 1))
    if node.is_op(*LAYER_NORMS):
        return int(node.get("axis", -1))
    return int(node.get("axis", 0 if node.is_op("Split", "Gather") else 1))


def axis_and_size(node: Node, opset: int, shape: Optional[Sequence[object]]) -> tuple[int, Optional[int]]:
    """The axis counted from the front, and the size of `shape` along it: None if it is open or absent."""
    known = shape or ()
    found = from_front(axis(node, opset), len(known))
    size = known[found] if 0 <= found < len(known) else None
    return found, size if isinstance(size, int) else None


def coefficients(node: Node) -> tuple[float, float]:
    """alpha and beta."""
    alpha, beta = (0.2, 0.5) if node.is_op("HardSigmoid") else (1.0, 1.0)
    return float(node.get("alpha", alpha)), float(node.get("beta", beta))


def exponential_linear(node: Node) -> tuple[float, float]:
    """Two factors of an Elu, Celu or Selu: that of the whole, and that of `exp(x) - 1` within it."""
    gain, alpha = (1.0507009873554804934193349852946, 1.6732632423543772848170429916717)
    if not node.is_op("Selu"):
        gain, alpha = (1.0, 1.0)
    return float(node.get("gamma", gain)), float(node.get("alpha", alpha))


def is_exact_gelu(node: Node) -> bool:
    """Whether a Gelu uses the error function rather than an approximation with Tanh."""
    return node.is_op("Gelu") and node.get("approximate", "none") == "none"


def scale_layer(node: Node, array: Callable[[str], Optional[np.ndarray]]) -> Optional[tuple[np.ndarray, np.ndarray]]:
    """(factors, shifts), float (C,), of a BatchNormalization with mean 0, variance 1 and epsilon 0; None for anything
    else.
    """
    if not node.is_op("BatchNormalization") or epsilon(node) != 0:
        return None
    factors, shifts, means, variances = (array(name) for name in node.inputs[1:5])
    if factors is None or shifts is None or means is None or variances is None:
        return None
    return None if np.any(means) or np.any(variances != 1) else (factors, shifts)


def permutation(node: Node) -> Optional[list[int]]:
    """Transpose order; None if it reverses the axes."""
    given = node.get("perm")
    return [int(a) for a in given] if given else None


def reshaped(node: Node, sizes: Sequence[Size], wanted: Iterable[int]) -> list[Union[Size, int]]:
    """The target sizes of a Reshape to `wanted` for a tensor of `sizes`; -1 stays. Raises IndexError if they do not
    fit.
    """
    if node.get("allowzero", 0):
        return list(wanted)
    return [sizes[i] if d == 0 else d for i, d in enumerate(wanted)]


def data_outputs(node: Node) -> list[str]:
    """Outputs that hold the node's values: all of a Split, else the first (not masks, indices or statistics)."""
    return [name for name in (node.outputs if node.op_type == "Split" else node.outputs[:1]) if name]


def in_training(node: Node, constant: LookUp) -> bool:
    """True for a Dropout that multiplies, or that may."""
    if node.input(2):
        values = constant(node.input(2))
        return values is None or bool(values.any())
    return not node.get("is_test", 1)


@dataclass(frozen=True)
class Window:
    """How a convolution or pooling moves over its spatial axes, one element an axis. pads: as written, all begins, then
    all ends; automatic: the `auto_pad` that holds in their stead, or ''. rounds_up: `ceil_mode`."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    automatic: str
    rounds_up: bool

    @property
    def dilated(self) -> bool:
        return any(d != 1 for d in self.dilations)


def window(node: Node, weight: Optional[Sequence[int]] = None) -> Optional[Window]:
    """The window of a pooling layer or convolution. weight: the shape of its weight, for one without `kernel_shape`;
    None if it is unknown, or a size or stride below 1."""
    kernel = node.get("kernel_shape")
    if kernel is None:
        if weight is None:
            return None
        kernel = weight[2:]
    count = len(kernel)

    def given(key: str, default: int, each: int = 1) -> list[int]:
        return [int(v) for v in node.get(key, [default] * (each * count))]

    strides = given("strides", 1)
    if any(value < 1 for value in (*kernel, *strides)):
        return None
    auto = node.get("auto_pad", "NOTSET")
    return Window(
        [int(k) for k in kernel],
        strides,
        given("dilations", 1),
        given("pads", 0, 2),
        "" if auto == "NOTSET" else auto,
        bool(node.get("ceil_mode", 0)),
    )


def transposed(node: Node, index: int) -> bool:
    """True for an operand that a Gemm transposes."""
    return node.op_type == "Gemm" and bool(node.get("transB" if index else "transA", 0))


def summed_size(node: Node, first: Sequence[int]) -> int:
    """How many products a Gemm or MatMul adds up for each of its values. first: the shape of its first operand."""
    return first[0 if transposed(node, 0) else -1]


# ---------------- weights

WEIGHT_INPUTS = {op: tuple(map(int, OPERATORS[op]["ports"].split(","))) for op in where(ports="1 0,1")}
"""Inputs whose constants TensorRT quantizes per output channel (fact 5.2)."""


@dataclass(frozen=True)
class OutputChannels:
    """Location of a layer's output channels in a constant operand: on `axis`, and with `groups` > 1 (ConvTranspose) in
    as many blocks of axis 0 as well."""

    axis: int
    groups: int = 1

    def count(self, shape: tuple[int, ...]) -> int:
        return shape[self.axis] * self.groups

    def rows(self, values: np.ndarray) -> np.ndarray:
        """(output channels, weights of each)."""
        if self.axis == 0:
            return values.reshape(values.shape[0], -1)
        blocks = self._blocks(values)
        return blocks.transpose(self._order(blocks.ndim)).reshape(self.count(values.shape), -1)

    def unrolled(self, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The inverse of `rows`, for a weight of `shape`."""
        if self.axis == 0:
            return rows.reshape(shape)
        blocks = (self.groups, shape[0] // self.groups, *shape[1:])
        order = self._order(len(blocks))
        moved = rows.reshape([blocks[a] for a in order])
        return np.ascontiguousarray(moved.transpose(np.argsort(order)).reshape(shape))

    def times(self, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Each output channel multiplied by its factor, in float32 or wider; in the type of `values`."""
        wide = np.float64 if values.dtype == np.float64 else np.float32
        if self.axis == 0:
            rows = factors.astype(wide).reshape(-1, *[1] * (values.ndim - 1))
            return np.multiply(values, rows, dtype=wide).astype(values.dtype, copy=False)
        blocks = self._blocks(values)
        sizes = [1] * blocks.ndim
        sizes[0], sizes[self.axis + 1] = self.groups, values.shape[self.axis]
        made = np.multiply(blocks, factors.reshape(sizes).astype(wide), dtype=wide)
        return made.astype(values.dtype, copy=False).reshape(values.shape)

    def _blocks(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(self.groups, values.shape[0] // self.groups, *values.shape[1:])

    def _order(self, rank: int) -> tuple[int, ...]:
        return (0, self.axis + 1, *(a for a in range(1, rank) if a != self.axis + 1))


_OF_CONV = OutputChannels(0)


def output_channels(node: Node, index: int, rank: int) -> Optional[OutputChannels]:
    """Output channels of the constant at input `index`; None if TensorRT has none for it (fact 5.2)."""
    if index not in WEIGHT_INPUTS.get(node.op_type, ()) or not node.is_standard or rank < 2:
        return None
    if node.op_type in CONVOLUTIONS:
        return _OF_CONV if node.op_type == "Conv" else OutputChannels(1, groups(node))
    if rank != 2:
        return None
    return OutputChannels(1 - index if transposed(node, index) else index)


def has_one_scale(node: Node, index: int, rank: int, data_rank: Optional[int]) -> bool:
    """True for a constant operand that TensorRT quantizes per tensor: of a MatMul or Gemm other than matrix by constant
    matrix (fact 5.2). data_rank: of the other operand, None if unknown."""
    if not node.is_op(*DENSE) or index not in WEIGHT_INPUTS[node.op_type]:
        return False
    return index == 0 or rank != 2 or (node.op_type == "MatMul" and data_rank != 2)


# ---------------- sets


class Unions(Generic[Item]):
    """Union-find: joined items have one root."""

    def __init__(self) -> None:
        self._parent: dict[Item, Item] = {}

    def root(self, item: Item) -> Item:
        parent = self._parent
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, item: Item, other: Item) -> None:
        """The root of `other` becomes that of both."""
        self._parent[self.root(item)] = self.root(other)

    def sets(self) -> list[list[Item]]:
        """Joined items, in the order in which they came."""
        found: dict[Item, list[Item]] = {}
        for item in self._parent:
            found.setdefault(self.root(item), []).append(item)
        return list(found.values())
