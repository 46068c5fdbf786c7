"""Rules F7 (nodes that change nothing), F9 (half precision) and the constant expressions of F3: the function before and
after in ONNX Runtime, names, scales, and what stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator.translation.ir.weights import to_array
from qdq_translator.translation.translator import Translation
from tests.explicit_reference import random_inputs, run
from tests.small_models import f32, initializer, model, ops, pair, same_function, scales_of, translated

S = {"s": np.float32(0.05), "t": np.float32(0.2), "z": np.int8(0)}
SCALE = f32(0.05)
X = "float[2,3,4,4] x"


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def around(call: str, given: str = X, opset: int = 17, **arrays: np.ndarray) -> Translation:
    """`call` reads `a`, which a node makes, and nothing has a scale there."""
    text = f"g ({given}) => (float[p,q,u,v] y, float[p,q,u,v] w) {{ {pair('x', 'd')} a = Sin(d)  b = {call}  y = Exp(b)  w = Cos(a) }}"
    return same_function(model(text, opset, **arrays, **S))


NOTHING: list[tuple[str, dict[str, np.ndarray]]] = [
    ("Identity(a)", {}),
    ("Dropout(a)", {}),
    ("Cast<to=1>(a)", {}),
    ("CastLike(a, d)", {}),
    ("Reshape(a, k)", {"k": ints(2, 3, 4, 4)}),
    ("Reshape(a, k)", {"k": ints(0, 3, -1, 4)}),
    ("Squeeze(a)", {}),
    ("Transpose<perm=[0,1,2,3]>(a)", {}),
    ("Slice(a, k, l)", {"k": ints(0), "l": ints(2)}),
    ("Slice(a, k, l, m)", {"k": ints(0, -4), "l": ints(2**62, 9), "m": ints(1, -1)}),
    ("Expand(a, k)", {"k": ints(2, 3, 4, 4)}),
    ("Expand(a, k)", {"k": ints(4, 1)}),
    ("Pad(a, k)", {"k": ints(*[0] * 8)}),
    ('Pad<mode="reflect">(a, k)', {"k": ints(*[0] * 8)}),
    ("Tile(a, k)", {"k": ints(1, 1, 1, 1)}),
    ("Split<axis=1>(a)", {}),
    ("Concat<axis=1>(a)", {}),
    ("Sum(a)", {}),
    ("Max(a)", {}),
    ("DepthToSpace<blocksize=1>(a)", {}),
    ("Mul(a, k)", {"k": np.float32(1)}),
    ("Mul(k, a)", {"k": np.ones((1, 3, 1, 1), np.float32)}),
    ("Div(a, k)", {"k": np.ones(4, np.float32)}),
    ("Add(k, a)", {"k": np.zeros((4, 4), np.float32)}),
    ("Sub(a, k)", {"k": -np.zeros((2, 3, 4, 4), np.float32)}),
]


@pytest.mark.parametrize("call, arrays", NOTHING, ids=[f"{c.split('(')[0]}{i}" for i, (c, _) in enumerate(NOTHING)])
def test_f7_goes(call: str, arrays: dict[str, np.ndarray]) -> None:
    t = around(call, **arrays)
    assert ops(t) == ["Sin", "Exp", "Cos"]
    (told,) = t.diagnostics.of_rule("F7")
    assert told.data["operators"] == {call.split("(")[0].split("<")[0]: 1} and told.data["tensors"] == {"b": ["a"]}
    assert len(told.data["nodes"]) == 1 and told.severity == "info"


@pytest.mark.parametrize(
    "call, arrays",
    [
        ("Cast<to=7>(a)", {}),
        ("Reshape(a, k)", {"k": ints(2, 4, 3, 4)}),
        ("Transpose<perm=[0,1,3,2]>(a)", {}),  # the same shape, other places
        ("Slice(a, k, l)", {"k": ints(1), "l": ints(2)}),
        ("Slice(a, k, l, m, n)", {"k": ints(-1), "l": ints(-(2**62)), "m": ints(2), "n": ints(-1)}),  # backwards
        ("Expand(a, k)", {"k": ints(5, 1, 1, 1, 1)}),
        ("Pad(a, k)", {"k": ints(0, 0, 1, 0, 0, 0, -1, 0)}),  # the same shape, shifted
        ("Tile(a, k)", {"k": ints(1, 1, 1, 2)}),
        ("Concat<axis=1>(a, a)", {}),
        ("Sum(a, a)", {}),
        ("Mul(a, k)", {"k": np.array([1, 1, 1, 2], np.float32)}),
        ("Mul(a, k)", {"k": np.ones((5, 1, 1, 1, 1), np.float32)}),  # broadcasting makes it larger
        ("Add(a, k)", {"k": np.zeros((5, 2, 3, 4, 4), np.float32)}),
        ("Div(k, a)", {"k": np.float32(1)}),
        ("Sub(k, a)", {"k": np.float32(0)}),
        ("Dropout(a, half, yes)", {"half": np.float32(0.5), "yes": np.array(True)}),
    ],
)  # fmt: skip
def test_f7_what_changes_something_stays(call: str, arrays: dict[str, np.ndarray]) -> None:
    to_float = "b = Cast<to=1>(c)" if "Cast" in call else "b = Identity(c)"
    text = f"g ({X}) => (float y) {{ {pair('x', 'd')} a = Sin(d)  c = {call}  {to_float}  e = Exp(b)  y = ReduceSum<keepdims=0>(e) }}"
    explicit = model(text, **arrays, **S)
    t = translated(explicit) if "Dropout" in call else same_function(explicit)
    assert call.split("(")[0].split("<")[0] in ops(t)


# ------------------------------------------------------------------ F3: constant expressions


# ------------------------------------------------------------------ F9: half precision


def half(values: np.ndarray, kind: str) -> onnx.TensorProto:
    types = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "double": TensorProto.DOUBLE}
    if kind == "bfloat16":
        return helper.make_tensor("", types[kind], values.shape, values.astype(np.float32).reshape(-1).tolist())
    return numpy_helper.from_array(values.astype({"float16": np.float16, "double": np.float64}[kind]))


def network(kind: str, ends: str, body: str, **arrays: np.ndarray) -> onnx.ModelProto:
    explicit = model(f"g ({ends}) {{ {body} }}", opset=21, ir=10, **S)
    for name, values in arrays.items():
        tensor = half(values, kind)
        tensor.name = name
        explicit.graph.initializer.append(tensor)
    return explicit


TO = {"float16": 10, "bfloat16": 16, "double": 11}
W = np.random.default_rng(4).standard_normal((4, 3, 1, 1))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "double"])
def test_f9_a_network_becomes_float32(kind: str) -> None:
    """As ModelOpt writes it: float32 outside, Casts at both ends, half precision between."""
    body = f"{pair('x', 'q')} c = Cast<to={TO[kind]}>(q)  v = Conv(c, w, b)  r = Relu(v)  y = Cast<to=1>(r)"
    explicit = network(kind, "float[1,3,4,4] x) => (float[1,4,4,4] y", body, w=W, b=np.full(4, 1 / 3))
    t = translated(explicit)
    assert ops(t) == ["Conv", "Relu"] and scales_of(t) == {"x": SCALE}
    for name in ("w", "b"):
        stored = next(i for i in explicit.graph.initializer if i.name == name)
        np.testing.assert_array_equal(initializer(t, name), to_array(stored).astype(np.float32))
        assert initializer(t, name).dtype == np.float32
    x = random_inputs(t.model, 1)
    expected = np.einsum("oi,nihw->nohw", initializer(t, "w")[:, :, 0, 0], x["x"]) + initializer(t, "b")[:, None, None]
    np.testing.assert_allclose(run(t.model, x)[0], expected.clip(0), rtol=1e-5, atol=1e-6)
    (told,) = t.diagnostics.of_rule("F9")
    assert told.severity == "info" and told.data["casts"] == {} and sum(told.data["constants"].values()) == 2


@pytest.mark.parametrize("baked", ["baked", "float"])
def test_f9_trained_codes_stay(baked: str) -> None:
    """Rule W1 on half precision weights: every code of channels that reach 127, as before."""
    codes = np.random.default_rng(1).integers(-127, 128, (4, 3, 1, 1)).astype(np.int8)
    codes[:, 0] = 127
    body = f"{pair('x', 'q', 'hs', 'z')} wq = DequantizeLinear<axis=0>(codes, ws, wz)  y = Conv(q, wq)"
    explicit = network(
        "float16",
        "float16[1,3,4,4] x) => (float16[1,4,4,4] y",
        body,
        hs=np.float64(0.05),
        ws=np.array([0.01, 0.02, 0.003, 0.5]),
    )
    for name, values in (("codes", codes), ("wz", np.zeros(4, np.int8))):
        explicit.graph.initializer.append(numpy_helper.from_array(values, name))
    t = translated(explicit, weights=baked)
    assert [row.exact for row in t.weights] == [True]
