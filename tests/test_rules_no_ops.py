"""Rule F9: a network in half or double precision becomes float32. Records hold what rules F3 and F7 leave."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator.translation.ir.weights import to_array
from tests.explicit_reference import random_inputs, run
from tests.small_models import f32, initializer, model, ops, pair, scales_of, translated

S = {"s": np.float32(0.05), "t": np.float32(0.2), "z": np.int8(0)}
SCALE = f32(0.05)


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
