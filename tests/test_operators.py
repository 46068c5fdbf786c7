"""Parameters of operators read the same whatever the opset, and one place says where output channels lie."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any, Optional

import numpy as np
import onnx
import pytest

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operator_table import COLUMNS, OPERATORS, where
from qdq_translator.translation.ir.operators import OutputChannels, Slices, Unions, output_channels
from qdq_translator.translation.ir.qparams import tensorrt_weight_codes
from qdq_translator.translation.ir.types import TensorTypes
from tests.small_models import model


def node(op: str, count: int = 1, outputs: int = 1, **attributes: Any) -> Node:
    return Node(op, [f"i{k}" for k in range(count)], [f"o{k}" for k in range(outputs)], **attributes)


def look_up(**values: Any) -> operators.LookUp:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return arrays.get


NOTHING = look_up()


def test_every_operator_fills_every_column_with_known_values() -> None:
    assert len(OPERATORS) > 150 and list(OPERATORS) == sorted(OPERATORS)
    for name, row in OPERATORS.items():
        assert list(row) == list(COLUMNS), f"{name} leaves a column out"
        for column, value in row.items():
            known = COLUMNS[column]
            words = value.split("+")
            assert all(word in known or ("*" in known and re.fullmatch(r"\d+\.\d+", word)) for word in words), (
                name,
                column,
            )
    used = {(column, word) for row in OPERATORS.values() for column, value in row.items() for word in value.split("+")}
    assert [(c, word) for c, known in COLUMNS.items() for word in known if word != "*" and (c, word) not in used] == []


def test_queries_of_the_table() -> None:
    assert where(data="view") == ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
    assert where(kind="movement", traits="end", data="same permute") == ("Identity", "Transpose")
    assert "Split" in where(parser="several") and "Split" in where(parser="bare")
    with pytest.raises(KeyError):
        where(colour="red")


def test_no_other_module_lists_what_the_table_says() -> None:
    """A tuple or set of three or more operators that equals a query of one column belongs into the table."""
    queries = {frozenset(where(**{c: word})): f"{c}={word}" for c, known in COLUMNS.items() for word in known}
    for path in (Path(operators.__file__).parents[2]).rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Tuple, ast.Set)):
                names = frozenset(e.value for e in node.value.elts if isinstance(e, ast.Constant))
                if len(names) > 2:
                    assert names not in queries, f"{path.name} {node.lineno}: where({queries[names]})"


def test_axes() -> None:
    assert operators.axes(node("ReduceMean", axes=[-1, 2]), NOTHING) == [-1, 2]
    assert operators.axes(node("ReduceMean", 2), look_up(i1=[2, 3])) == [2, 3]
    assert operators.axes(node("ReduceMean", 2), NOTHING) is None
    assert operators.axes(node("ReduceMean"), NOTHING) is None
    assert operators.axes(node("Slice", 4), look_up(i3=[1]), 3) == [1]
    assert operators.non_negative([-1, 2], 4) == [3, 2]
    assert operators.non_negative([1], None) == [1]
    assert operators.non_negative([-1], None) is None


@pytest.mark.parametrize("made, constants, want", [
    (node("Pad", pads=[0, 1, 0, 1], value=2.0), {}, ([0, 1, 0, 1], 2.0)),
    (node("Pad", pads=[0, 1, 0, 1]), {}, ([0, 1, 0, 1], 0.0)),
    (node("Pad", 3), {"i1": [1, 1], "i2": 3.0}, ([1, 1], 3.0)),
    (node("Pad", 2), {"i1": [1, 1]}, ([1, 1], 0.0)),
    (node("Pad", 3), {"i1": [1, 1]}, ([1, 1], None)),
    (node("Pad", 2), {}, (None, 0.0)),
    (node("Pad", 4), {"i1": [1, 1], "i2": 0.0, "i3": [1]}, (None, 0.0)),
    (node("Pad", 2, mode="reflect"), {"i1": [1, 1]}, (None, 0.0)),
])  # fmt: skip
def test_pads(made: Node, constants: dict[str, Any], want: tuple[Optional[list[int]], Optional[float]]) -> None:
    assert (operators.pads(made, look_up(**constants)), operators.pad_value(made, look_up(**constants))) == want


def test_clip_bounds() -> None:
    assert operators.clip_bounds(node("Clip", min=0.0, max=6.0), NOTHING) == (0, 6)
    assert operators.clip_bounds(node("Clip"), NOTHING) == (-math.inf, math.inf)
    assert operators.clip_bounds(node("Clip", 3), look_up(i1=np.int8(-3))) == (-3, None)
    upper = Node("Clip", ["x", "", "h"], ["y"])
    assert operators.clip_bounds(upper, look_up(h=[6.0])) == (-math.inf, 6)


def test_split_sizes() -> None:
    assert operators.split_sizes(node("Split", outputs=2, split=[1, 4]), 5, NOTHING) == [1, 4]
    assert operators.split_sizes(node("Split", 2, outputs=2), 5, look_up(i1=[2, 3])) == [2, 3]
    assert operators.split_sizes(node("Split", 2, outputs=2), 5, NOTHING) is None
    assert operators.split_sizes(node("Split", outputs=3), 7, NOTHING) == [3, 3, 1]


def test_slices() -> None:
    old = node("Slice", starts=[1], ends=[3], axes=[-1])
    assert operators.slices(old, NOTHING) == Slices([1], [3], [-1], [1])
    assert operators.slices(node("Slice", 3), look_up(i1=[0, 1], i2=[4, 5])) == Slices([0, 1], [4, 5], [0, 1], [1, 1])
    assert operators.slices(node("Slice", 3), look_up(i1=[0])) is None
    assert operators.slices(node("Slice", 4), look_up(i1=[0], i2=[1])) is None
    without_axes = Node("Slice", ["x", "s", "e", "", "t"], ["y"])
    assert operators.slices(without_axes, look_up(s=[0], e=[4], t=[2])) == Slices([0], [4], [0], [2])


def test_shape_arithmetic_skips_an_omitted_input() -> None:
    """A Slice without axes and with steps: the steps are not the axes."""
    text = """g (float[2,3,4,5] x) => (float[n] y) {
        shape = Shape (x)
        start = Constant <value = int64[1] {0}> ()
        end = Constant <value = int64[1] {4}> ()
        step = Constant <value = int64[1] {2}> ()
        every = Slice (shape, start, end, , step)
        y = ConstantOfShape (every)
    }"""
    from qdq_translator.translation.ir.graph import Graph

    types = TensorTypes(Graph.from_model(model(text)))
    assert types.integers()["every"].tolist() == [2, 4]


def test_resize_scales_and_outputs() -> None:
    factors = look_up(i1=[1, 1, 2, 2], i2=[1, 1, 3, 3])
    assert np.array_equal(operators.resize_scales(node("Resize", 3), 13, factors), [1, 1, 3, 3])
    assert np.array_equal(operators.resize_scales(node("Resize", 2), 10, factors), [1, 1, 2, 2])
    assert np.array_equal(operators.resize_scales(node("Upsample", scales=[1.0, 2.0]), 7, NOTHING), [1, 2])
    assert operators.resize_scales(node("Resize", 3), 13, look_up(i2=[])) is None
    assert operators.data_outputs(node("Split", outputs=2)) == ["o0", "o1"]
    assert operators.data_outputs(node("MaxPool", outputs=2)) == ["o0"]


def test_training() -> None:
    assert not operators.in_training(node("Dropout", 2), NOTHING)
    assert not operators.in_training(node("Dropout", 3), look_up(i2=False))
    assert operators.in_training(node("Dropout", 3), look_up(i2=True))
    assert operators.in_training(node("Dropout", 3), NOTHING)


@pytest.mark.parametrize("made, index, shape, want", [
    (node("Conv"), 1, (4, 2, 3, 3), OutputChannels(0)),
    (node("ConvTranspose", group=2), 1, (4, 3, 2, 2), OutputChannels(1, 2)),
    (node("Gemm", transB=1), 1, (3, 4), OutputChannels(0)),
    (node("Gemm"), 1, (4, 3), OutputChannels(1)),
    (node("Gemm"), 0, (5, 4), OutputChannels(0)),
    (node("Gemm", transA=1), 0, (4, 5), OutputChannels(1)),
    (node("MatMul"), 1, (4, 3), OutputChannels(1)),
    (node("MatMul"), 0, (5, 4), OutputChannels(0)),
    (node("MatMul"), 1, (2, 4, 3), None),
    (node("Conv"), 2, (4,), None),
    (node("Add"), 1, (4, 3), None),
])  # fmt: skip
def test_output_channels(made: Node, index: int, shape: tuple[int, ...], want: Optional[OutputChannels]) -> None:
    channels = output_channels(made, index, len(shape))
    assert channels == want
    if channels is None:
        return
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) - 7
    rows = channels.rows(values)
    assert rows.shape == (channels.count(shape), values.size // channels.count(shape))
    np.testing.assert_array_equal(channels.unrolled(rows, shape), values)
    factors = np.arange(1, len(rows) + 1) / 3
    wanted = rows * factors[:, None].astype(np.float32)
    before = values.copy()
    np.testing.assert_array_equal(channels.rows(channels.times(values, factors)), wanted)
    np.testing.assert_array_equal(values, before)
    codes, _ = tensorrt_weight_codes(np.ascontiguousarray(rows), (0,))
    assert (np.abs(codes).max(axis=1) == 127).all()


def test_unions() -> None:
    unions: Unions[str] = Unions()
    unions.join("a", "b")
    unions.join("c", "d")
    assert unions.root("a") == unions.root("b") == "b" != unions.root("c")
    unions.join("b", "c")
    assert {unions.root(name) for name in "abcd"} == {"d"} and unions.sets() == [["b", "a", "d", "c"]]


def test_named_sets_are_written_once() -> None:
    """No other room spells out a set of three or more operators that has a name here."""
    named = {key: set(value) for key, value in vars(operators).items() if key.isupper() and isinstance(value, tuple)}
    again = []
    for path in sorted(Path(operators.__file__).parent.rglob("*.py")):
        if path.name == "operators.py":
            continue
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(found, (ast.Tuple, ast.List, ast.Set)):
                words = {e.value for e in found.elts if isinstance(e, ast.Constant)}
                again += [f"{path.name}:{found.lineno} has {k}" for k, v in named.items() if len(v) > 2 and v <= words]
    assert again == []


# ---------------------------------------------------------------- one reader a parameter

_READ_ELSEWHERE = {
    ("translation/passes/dla/one_dimension.py", "axes"): "of a Resize, which only that rule and D23 read",
    ("translation/passes/dla/axis_forms.py", "group"): "written by itself",
    ("translation/passes/dla/kernel_parts.py", "auto_pad"): "written: explicit padding takes its place",
    ("translation/passes/dla/products.py", "alpha"): "of that rule alone",
    ("translation/passes/dla/products.py", "bias"): "of that rule alone",
    ("translation/passes/dla/products.py", "lambd"): "of that rule alone",
    ("translation/passes/dla/axis_forms.py", "cubic_coeff_a"): "of that rule alone",
    ("translation/passes/dla/axis_forms.py", "exclude_outside"): "of that rule alone",
    ("translation/passes/dla/linear_axis.py", "exclusive"): "of that rule alone",
    ("translation/passes/dla/linear_axis.py", "reverse"): "of that rule alone",
    ("translation/passes/normal_forms/refused.py", "antialias"): "of forms that a parser refuses, checked there alone",
    ("translation/passes/normal_forms/refused.py", "axes"): "of forms that a parser refuses, checked there alone",
    ("translation/passes/normal_forms/refused.py", "equation"): "of forms that a parser refuses, checked there alone",
    (
        "translation/passes/normal_forms/refused.py",
        "extrapolation_value",
    ): "of forms that a parser refuses, checked there alone",
    (
        "translation/passes/normal_forms/refused.py",
        "keep_aspect_ratio_policy",
    ): "of forms that a parser refuses, checked there alone",
    ("translation/passes/dla/recurrent.py", "activations"): "of recurrent layers, the only rule that reads them",
    ("translation/passes/dla/recurrent.py", "clip"): "of recurrent layers, the only rule that reads them",
    ("translation/passes/dla/recurrent.py", "direction"): "of recurrent layers, the only rule that reads them",
    ("translation/passes/dla/recurrent.py", "input_forget"): "of recurrent layers, the only rule that reads them",
    ("translation/passes/dla/recurrent.py", "layout"): "of recurrent layers, the only rule that reads them",
    (
        "translation/passes/dla/recurrent.py",
        "linear_before_reset",
    ): "of recurrent layers, the only rule that reads them",
    ("translation/passes/normal_forms/refused.py", "mode"): "of forms that a parser refuses, checked there alone",
    ("translation/passes/opset.py", "ceil_mode"): "of that rule alone",
    ("translation/passes/opset.py", "pads"): "of that rule alone",
    ("translation/qdq/float_types.py", "axis"): "of that rule alone",
    (
        "translation/quantizers/dialects/qoperator.py",
        "alpha",
    ): "of another vocabulary's operator, the only one that reads them",
    (
        "translation/quantizers/dialects/qoperator.py",
        "axes",
    ): "of another vocabulary's operator, the only one that reads them",
    (
        "translation/quantizers/dialects/qoperator.py",
        "transB",
    ): "of another vocabulary's operator, the only one that reads them",
    ("translation/quantizers/sidecars.py", "dtype"): "of that rule alone",
    ("translation/scales/inference/formulas.py", "alpha"): "of that rule alone",
    ("lab/simulate/calibration/equalize.py", "group"): "of that rule alone",
    ("translation/targets/precision.py", "equation"): "of recurrent layers, the only one that reads them",
    ("translation/targets/precision.py", "layout"): "of recurrent layers, the only one that reads them",
    ("translation/targets/parser_network.py", "coordinate_transformation_mode"): "of that rule alone",
    ("translation/targets/parser_network.py", "equation"): "of that rule alone",
    ("translation/targets/parser_network.py", "kernel_shape"): "of that rule alone",
    ("translation/targets/parser_network.py", "nearest_mode"): "of that rule alone",
    ("translation/ir/constants.py", "value"): "the element type of a Constant, off the file and without its values",
    ("translation/ir/shape_arithmetic.py", "value"): "what a ConstantOfShape fills with",
    ("translation/ir/shape_arithmetic.py", "axis"): "of Concat and Gather on shapes; required, or 0",
    ("translation/ir/shape_arithmetic.py", "start"): "of Shape, the only one that reads them",
    ("translation/ir/shape_arithmetic.py", "end"): "of Shape, the only one that reads them",
    ("translation/quantizers/parameters.py", "axis"): "of a quantizer, the only one that reads them",
    ("translation/quantizers/parameters.py", "block_size"): "of a quantizer, the only one that reads them",
    ("translation/quantizers/parameters.py", "output_dtype"): "of a quantizer, the only one that reads them",
    ("translation/passes/fold_batchnorm.py", "spatial"): "of BatchNormalization, the only one that reads them",
    ("translation/passes/fold_batchnorm.py", "training_mode"): "of BatchNormalization, the only one that reads them",
    ("translation/passes/fold_batchnorm.py", "beta"): "written: it goes into the bias",
    ("translation/passes/normal_forms/parts.py", "beta"): "written: it goes into the bias",
    ("translation/passes/opset.py", "kernel_shape"): "written where it is not there",
    ("translation/passes/dla/conv_padding.py", "auto_pad"): "written: explicit padding takes its place",
    ("translation/passes/opset.py", "noop_with_empty_axes"): "in which opset it exists is the matter there",
    ("translation/passes/opset.py", "num_outputs"): "in which opset it exists is the matter there",
    ("translation/passes/dla/axis_forms.py", "keep_aspect_ratio_policy"): "of sizes, which only that rewrite takes",
    ("translation/passes/dla/axis_forms.py", "axes"): "of sizes, which only that rewrite takes",
    ("translation/targets/parser_network.py", "axes"): "whether an older opset leaves it out",
    ("translation/passes/dla/axis_forms.py", "antialias"): "of Resize, and only where it is refused",
    ("translation/targets/dla/checks.py", "size"): "of LRN, the only one that reads it",
    ("lab/simulate/calibration/fit.py", "alpha"): "of LeakyRelu, whose slope a range is fitted through",
}  # fmt: skip


def test_no_second_reader() -> None:
    """Every attribute of an operator is read in operators.py; what is read elsewhere is read there alone, and says why."""
    names = {key for schema in onnx.defs.get_all_schemas_with_history() for key in schema.attributes}
    package = Path(operators.__file__).parents[2]
    found: set[tuple[str, str]] = set()
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            key, owner = None, ""
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("get", "unset")
            ):
                key, owner = node.args[0] if node.args else None, ast.unparse(node.func.value)
            elif isinstance(node, ast.Subscript):
                key, owner = node.slice, ast.unparse(node.value)
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                key, owner = node.left, ast.unparse(node.comparators[0])
            if isinstance(key, ast.Constant) and key.value in names and re.search(_A_NODE, owner):
                found.add((room, key.value))
    elsewhere = {where for where in found if where[0] != "translation/ir/operators.py"}
    assert elsewhere - set(_READ_ELSEWHERE) == set(), "read it in operators.py, or say here why not"
    assert set(_READ_ELSEWHERE) - elsewhere == set(), "nothing reads it there any more"


_A_NODE = r"(^|\.)(node|norm|reader|first|pool|pad|maker|producer|conv|layer|split|gate)$|attributes$"
