"""Rule D18: linear layers over the last of several axes work on [N, C, H, W] (ViT, ConvNeXt, Swin).

1. `MatMul` or `Gemm` of a tensor [..., C] with a constant matrix -> Conv with a 1x1 kernel, weights and bias as in rule
   D5. [N, H, W, C] becomes [N, C, H, W], [N, T, C] becomes [N, C, T, 1]; if the batch size is 1 and the first axis is
   not the batch, [T, C] becomes [1, C, T, 1] and [A, B, C] becomes [1, C, A, B]; so does [A * B, C] between Reshapes
   (as OnnxSlim writes a MatMul).
2. Layers between and around them that work value by value (Add, Relu, the parts of GELU, ...) keep their operator, as
   do Softmax, Concat, Split and Slice over the last axis, which then is the second one; so do the parts of
   normalizations if Pow is assumed.
3. Reshapes and Transposes between tensors whose [N, C, H, W] form is the same are removed.
4. `LayerNormalization` or `RMSNormalization` over the last axis keeps its operator and works on [N, H, W, C] between
   two Transposes; on [N, T, 1, C] if it worked on [N, T, C].

Between such tensors and other layers there is a Transpose (and a Reshape, if they do not have four dimensions), which
rule D17 merges with its neighbours or removes. Tensors inside are named `NAME_nchw` and keep their scales. Output
channels stay output channels, so every weight keeps its quantized value.
Not: where the DLA gains nothing (more Reshapes are added than GPU layers removed, counting the Reshapes of rule W1);
weights that are not constant matrices; transA 1; unknown sizes other than the batch size; more than 8192 channels;
first axes that are not the batch where the batch size is not 1; tensors of five and more dimensions.
"""

from __future__ import annotations

import functools
import math
from typing import Iterable, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import DENSE, ELEMENTWISE
from qdq_translator.translation.ir.types import Dim
from qdq_translator.translation.passes.dla import dense, lifting
from qdq_translator.translation.passes.dla.rewriter import MOST_CHANNELS, Rewriter
from qdq_translator.translation.passes.matmul_2d import trained_by_column

RULE = "D18"
_VALUE_BY_VALUE = where(alone="lifted last")
_NARY = ("Pow", *ELEMENTWISE)
_REDUCTIONS = ("ReduceMean", "ReduceL2")
_OVER_LAST = ("Softmax", "Concat", "Split", "Slice")
_CURED = frozenset(("A3", "E2", "K1", "S2", "S3"))
"""Limits that hold on four dimensions with channels second."""
_TO_NCHW, _TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]
_MOVES = (*operators.VIEWS, "Transpose")


class _Form(NamedTuple):
    """The form of a tensor. shape: its sizes. rows: H and W, the axes before the last. batch: whether its first axis is
    the batch."""

    shape: Tuple[Dim, ...]
    rows: Tuple[int, int]
    batch: bool

    @property
    def channels(self) -> int:
        return int(self.shape[-1] or 0)

    @property
    def is_image(self) -> bool:
        """[N, H, W, C], which needs no Reshape."""
        return len(self.shape) == 4

    @property
    def nhwc(self) -> list[int]:
        return [0 if self.batch else 1, *self.rows, self.channels]

    @property
    def sizes(self) -> list[int]:
        """The tensor's own sizes, as in a Reshape."""
        sizes = [size if isinstance(size, int) else 0 for size in self.shape]
        return [0, *sizes[1:]] if self.batch else sizes

    def constant(self, values: np.ndarray) -> np.ndarray:
        """Convert a constant that broadcasts to the tensor for its [N, C, H, W] form; along axes that change their
        position it has one value, unless it has all axes."""
        sizes: list[int] = [1] * (len(self.shape) - values.ndim) + list(values.shape)
        height, width = [*sizes[int(self.batch) : -1], 1][:2]
        if len(self.shape) == 2 and height > 1:
            height, width = self.rows
        return values.reshape(1, height, width, sizes[-1]).transpose(0, 3, 1, 2)


def apply(rewriter: Rewriter) -> None:
    batch = _batch(rewriter)
    if batch is None:
        return
    matching = _Matching(rewriter, batch)
    for region in lifting.regions(rewriter, lambda _, node: matching.fits(node)):
        if matching.wanted(region):
            _lift(matching, region)


def _batch(rewriter: Rewriter) -> Dim:
    """The first size of every graph input; None if they differ or it has no name."""
    shapes = [rewriter.types.shape(name) for name in rewriter.graph.inputs if rewriter.is_float(name)]
    found = {shape[0] for shape in shapes if shape}
    return found.pop() if len(found) == 1 else None


class _Matching:
    """Finds nodes that can work on [N, C, H, W], and those of them that tensors connect."""

    def __init__(self, rewriter: Rewriter, batch: Dim) -> None:
        self.rewriter, self.graph, self.batch = rewriter, rewriter.graph, batch
        self.form = functools.lru_cache(maxsize=None)(self._form)

    def _form(self, tensor: str) -> Optional[_Form]:
        """The form of a float activation [..., C] to which rule D5 does not apply; None for anything else."""
        shape = self.rewriter.activation(tensor)
        sizes = [size for size in shape[1:] if isinstance(size, int) and size > 0]
        if len(shape) not in (2, 3, 4) or len(sizes) < len(shape) - 1 or sizes[-1] > MOST_CHANNELS:
            return None
        if shape[0] == self.batch:
            return None if len(shape) == 2 else _Form(shape, (sizes[0], [*sizes[1:-1], 1][0]), True)
        if self.batch != 1 or not isinstance(shape[0], int) or len(shape) == 4:
            return None
        return _Form(shape, (shape[0], sizes[0]) if len(shape) == 3 else self._rows(tensor, shape[0]), False)

    def _rows(self, tensor: str, count: int) -> tuple[int, int]:
        """H and W of a matrix [T, C]: those of the tensor before or after a Reshape."""
        maker, found = self.graph.producer.get(tensor), None
        if maker is not None:
            source = next((name for name in maker.reads() if self.form(name)), "")
            matrix = self.rewriter.rank(source) == 2
            found = self._unfolded(source, count) if matrix or maker.is_op("Reshape") else None
        while found is None and self.graph.consumers(tensor) and self.rewriter.rank(tensor) == 2:
            tensor = self.graph.consumers(tensor)[0].outputs[0]
            found = self._unfolded(tensor, count) if self.rewriter.rank(tensor) != 2 else None
        return found or (count, 1)

    def _unfolded(self, tensor: str, count: int) -> Optional[tuple[int, int]]:
        """H and W of a tensor with H * W = count."""
        form = self.form(tensor)
        return form.rows if form is not None and math.prod(form.rows) == count else None

    def fits(self, node: Node) -> bool:
        form = self.form(node.outputs[0])
        if form is None:
            return False
        if node.is_op(*_MOVES):
            return self._is_view(node, form)
        if node.is_op("Split"):
            forms = [self.form(name) for name in (node.inputs[0], *node.outputs)]
            return self._over_last(node) and all(other is not None and other.rows == form.rows for other in forms)
        if not lifting.one_output(self.rewriter, node):
            return False
        if node.is_op(*DENSE):
            source = self.form(node.inputs[0])
            return source is not None and self.rewriter.attempt(dense.check, node) and source.rows == form.rows
        if node.is_op(*_REDUCTIONS):
            return self.reduced(node) is not None
        if node.is_op(*_VALUE_BY_VALUE, *_NARY):
            same, constant = (lambda n: self._spreads(n, form)), (lambda dims: self._broadcasts(dims, form))
            return lifting.value_by_value(self.rewriter, node, same, constant, _VALUE_BY_VALUE, _NARY)
        return self._works_over_last(node, form)

    def _works_over_last(self, node: Node, form: _Form) -> bool:
        """True for normalizations, Softmax, Concat and Slice over the last axis of their input."""
        read = [self.form(name) for name in node.inputs if name]
        if any(other.rows != form.rows for other in read if other is not None):
            return False
        if node.is_op(*operators.LAYER_NORMS):
            last = operators.axis(node, self.graph.opset()) in (-1, len(form.shape) - 1)
            return last and self._spreads(node.inputs[0], form)
        # below opset 13 Softmax is over all axes from `axis` on
        known = node.is_op(*_OVER_LAST) and not (node.is_op("Softmax") and self.graph.opset() < 13)
        return known and self._over_last(node) and all(read if node.is_op("Concat") else read[:1])

    def _is_view(self, node: Node, form: _Form) -> bool:
        """True for a shape change that keeps the [N, C, H, W] form."""
        source, target = node.inputs[0], node.outputs[0]
        other, order = self.form(source), operators.permutation(node) if node.is_op("Transpose") else []
        if other is None or order is None or other.nhwc[1:] != form.nhwc[1:] or target in self.graph.outputs:
            return False
        own, before = self.rewriter.scales.value(target), self.rewriter.scales.value(source)
        moved = [axis for axis in order if other.shape[axis] != 1]
        passed = before is None and self.graph.only_consumer(source) is node
        return (
            (own is None or own == before or passed)
            and moved == sorted(moved)
            and (other.batch == form.batch or self.batch == 1)
        )

    def _spreads(self, tensor: str, form: _Form) -> bool:
        """True for the same shape; if the DLA has Pow, also with axes of size 1, as in parts of a normalization."""
        other = self.form(tensor)
        if other is None or other.batch != form.batch or len(other.shape) != len(form.shape):
            return False
        if other.rows == form.rows and other.shape == form.shape:
            return True
        fits = all(size in (1, full) for size, full in zip((*other.rows, other.channels), (*form.rows, form.channels)))
        return self.rewriter.has_power() and fits

    def reduced(self, node: Node) -> Optional[list[int]]:
        """The axes of [N, C, H, W] of a reduction in a normalization; None for other nodes or without Pow."""
        form, target, array = self.form(node.inputs[0]), self.form(node.outputs[0]), self.graph.array
        own = operators.non_negative(operators.axes(node, array), self.rewriter.types.rank(node.inputs[0]))
        if form is None or target is None or own is None or not self.rewriter.has_power() or form.batch != target.batch:
            return None
        last = len(form.shape) - 1
        kept = operators.keeps_dimensions(node) and not (form.batch and 0 in own) and (last > 1 or own == [1])
        return sorted(1 if axis == last else axis + (1 if form.batch else 2) for axis in own) if kept else None

    def _broadcasts(self, dims: Iterable[int], form: _Form) -> bool:
        sizes = tuple(dims)
        if len(sizes) > len(form.shape):
            return False
        full = (1,) * (len(form.shape) - len(sizes)) + sizes
        return (not form.batch or full[0] == 1) and all(a in (1, b) for a, b in zip(full, form.shape))

    def _over_last(self, node: Node) -> bool:
        rank = self.rewriter.types.rank(node.inputs[0])
        if rank is None:
            return False
        if node.is_op("Slice"):
            cut = operators.slices(node, self.graph.array)
            return cut is not None and operators.non_negative(cut.axes, rank) == [rank - 1]
        return operators.axis(node, self.graph.opset()) in (-1, rank - 1)

    def wanted(self, region: Sequence[Node]) -> bool:
        """True if the DLA gains layers, and no more Reshapes are added than removed. If values are moved anyway, rule
        D17 merges the moves."""
        graph, inside = self.graph, {id(node) for node in region}
        around: dict[str, list[Optional[Node]]] = {  # None for an end of the network
            name: [graph.producer.get(name)] for name in lifting.entering(self.rewriter, region)
        }
        for name in (name for node in region for name in node.outputs):
            around[name] = [reader for reader in graph.consumers(name) if id(reader) not in inside]
            if name in graph.outputs:
                around[name].append(None)
        cured, added = sum(map(self._cured, region)), 0
        for name, nodes in around.items():
            moving = [node for node in nodes if node is not None and node.is_op(*_MOVES)]
            cured += any(map(self.rewriter.rejected, moving))
            added += len(moving) < len(nodes) and self.rewriter.rank(name) != 4
        return 0 < cured >= added

    def _cured(self, node: Node) -> int:
        """Number of layers that leave the GPU with it: itself, and the Reshapes of rule W1."""
        limits = self.rewriter.rejected_by(node)
        own = bool(limits) and (limits <= _CURED or node.is_op(*_REDUCTIONS))
        by_column = node.is_op("MatMul") and trained_by_column(self.rewriter.network, node.inputs[1])
        return own + (2 if by_column and (self.rewriter.types.rank(node.inputs[0]) or 0) > 2 else 0)


# ---------------- lifting


def _lift(matching: _Matching, nodes: list[Node]) -> None:
    rewriter, graph = matching.rewriter, matching.graph
    region = lifting.Region(rewriter, RULE, nodes, "_nchw")
    into, back = functools.partial(_into, matching), functools.partial(_back, matching)
    axes = {id(node): (matching.reduced(node) if node.is_op(*_REDUCTIONS) else None) or [1] for node in nodes}
    for node in nodes:
        region.begin(node)
        for name in node.inputs:
            region.enter(name, into)
        if node.is_op("Add") and _as_bias(region, node):
            region.after = [graph.producer[region.names[node.outputs[0]]]]
        elif node.is_op(*_MOVES):
            _pass_on(matching, region, node)
        else:
            form = matching.form(node.outputs[0])
            assert form is not None
            for output in list(node.outputs):
                if not output or (output not in graph.outputs and not graph.consumer_count(output)):
                    continue  # an unused output
                if not region.exit(node, output, back, "the same values in another order"):
                    region.gone[output] = [rewriter.tensor(f"{output}_nchw")]
                    rewriter.network.rename_tensor(output, *region.gone[output])
            _convert(region, node, form, axes[id(node)])
        region.note()


def _into(matching: _Matching, name: str, lifted: str) -> list[Node]:
    """Makes the [N, C, H, W] form of a tensor."""
    rewriter, form = matching.rewriter, matching.form(name)
    assert form is not None
    if form.is_image:
        return [_transpose(rewriter, name, lifted, _TO_NCHW)]
    source = rewriter.tensor(f"{name}_nhwc")
    shape = rewriter.reshape(name, source, form.nhwc, rewriter.node(f"{source}_reshape"))
    return [shape, _transpose(rewriter, source, lifted, _TO_NCHW)]


def _back(matching: _Matching, lifted: str, output: str) -> list[Node]:
    """Restores a tensor from its [N, C, H, W] form."""
    rewriter, form = matching.rewriter, matching.form(output)
    assert form is not None
    if form.is_image:
        return [_transpose(rewriter, lifted, output, _TO_NHWC)]
    source = rewriter.tensor(f"{output}_nhwc")
    turned = _transpose(rewriter, lifted, source, _TO_NHWC)
    return [turned, rewriter.reshape(source, output, form.sizes, rewriter.node(f"{output}_reshape"))]


def _as_bias(region: lifting.Region, node: Node) -> bool:
    """Fold an Add of one constant per channel into the region's Conv before it, if the Conv has no bias and its result
    has no scale, so that nothing is rounded between them."""
    rewriter, graph, output = region.rewriter, region.rewriter.graph, node.outputs[0]
    constants = [index for index, name in enumerate(node.inputs) if name in graph.initializers]
    if len(node.inputs) != 2 or len(constants) != 1 or output in graph.outputs or region.outside(output):
        return False
    summed, bias = node.inputs[1 - constants[0]], node.inputs[constants[0]]
    conv, dims = graph.producer.get(summed), tuple(graph.initializers[bias].dims)
    if conv is None or not conv.is_op("Conv") or id(conv) not in region.inside or len(conv.inputs) > 2:
        return False
    width = graph.initializers[conv.inputs[1]].dims[0]
    alone = rewriter.is_closed([summed], {id(node)}) and summed not in rewriter.scales
    if not alone or dims[-1:] != (width,) or math.prod(dims) != width:
        return False
    graph.set_input(conv, 2, rewriter.weight(node, constants[0], f"{bias}_bias", lambda values: values.reshape(-1)))
    graph.remove(node)
    region.names[output] = lifted = rewriter.tensor(f"{output}_nchw")
    region.gone.update({summed: [lifted], output: [lifted]})
    graph.rename_output(conv, summed, lifted)
    rewriter.network.merge_tensor(output, lifted)
    return True


def _pass_on(matching: _Matching, region: lifting.Region, node: Node) -> None:
    """Remove a view: its readers in the region read its input."""
    output, source, anchor = node.outputs[0], region.inputs(node)[0], node.prev
    outside = region.outside(output)
    region.after.remove(node)
    matching.graph.remove(node)
    if outside:
        region.names[output] = source
        made = _back(matching, source, output)
        region.insert(made, region.after[-1] if region.after else anchor)
        region.new += [layer.inputs[0] for layer in made[1:]]
    else:
        matching.rewriter.network.merge_tensor(output, source)
        region.gone[output] = [source]


def _transpose(rewriter: Rewriter, source: str, target: str, order: list[int]) -> Node:
    return Node("Transpose", [source], [target], rewriter.node(f"{target}_transpose"), perm=order)


def _convert(region: lifting.Region, node: Node, form: _Form, axes: list[int]) -> None:
    """The node on [N, C, H, W], in place. axes: of a Slice or reduction."""
    rewriter, inputs = region.rewriter, region.inputs(node)
    if node.is_op(*DENSE):
        dense.convert(rewriter, node, inputs)
        return
    if node.is_op(*operators.LAYER_NORMS):
        _between_transposes(region, node, inputs)
        return
    if node.is_op("Slice", *_REDUCTIONS) and len(inputs) == 1:
        node.set("axes", axes)
    elif node.is_op("Slice", *_REDUCTIONS):
        inputs[3 if node.is_op("Slice") else 1] = rewriter.constant(f"{node.name}.axes", np.array(axes, np.int64))
    elif node.is_op(*_OVER_LAST):
        node.set("axis", 1)
    else:
        lifting.lift_constants(rewriter, inputs, "_nchw", form.constant)
    rewriter.graph.set_inputs(node, inputs)


def _between_transposes(region: lifting.Region, node: Node, inputs: list[str]) -> None:
    """Case 4."""
    rewriter, graph, output = region.rewriter, region.rewriter.graph, node.outputs[0]
    source, target = rewriter.tensor(f"{output}_in_nhwc"), rewriter.tensor(f"{output}_nhwc")
    region.insert([_transpose(rewriter, inputs[0], source, _TO_NHWC)], node.prev)
    graph.set_inputs(node, [source, *inputs[1:]])
    node.set("axis", -1)
    readers = graph.consumers(output)
    graph.rename_output(node, output, target)
    region.insert([_transpose(rewriter, target, output, _TO_NCHW)], node)
    for reader in readers:
        graph.replace_use(reader, target, output)
    region.new += [source, target]
