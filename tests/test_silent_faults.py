"""What once went wrong in silence: an invalid model, a lost scale, another function, without a word."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import ModelError
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes import half_precision
from qdq_translator.translation.passes.names import name_nodes
from qdq_translator.translation.passes.normal_forms import apply_normal_forms
from qdq_translator.translation.scales.inference.formulas import inside_normalizations
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.platforms import installed_tensorrt
from qdq_translator.translation.targets.settings import resolve
from tests.small_models import model, pair

S = {"s": np.float32(0.5), "z": np.int8(0)}


def test_a_model_without_outputs(tmp_path: Path) -> None:
    explicit = model(f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}", **S)
    del explicit.graph.output[:]
    with pytest.raises(ModelError, match="no outputs"):
        translate(explicit)


def test_f8_normal_forms_are_logged_under_their_rule_once_each() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { c = Clip(x, k)  g1 = Gemm<alpha=0.5>(c, w)  y = Gemm(g1, w) }"
    graph = Graph.from_model(model(text, k=np.float32(0), w=np.eye(3, dtype=np.float32)))
    name_nodes(graph, Diagnostics())
    network = Network(graph, Diagnostics())
    apply_normal_forms(network, resolve(TranslateOptions(platform="jetpack-6.2"), Diagnostics()))
    logged = [(applied.rule, [name for name, _ in applied.before]) for applied in network.applied]
    assert sorted(logged) == [("F8", ["Clip_c"]), ("F8", ["Gemm_g1"])]


def test_k1_the_inside_of_a_normalization() -> None:
    text = """g (float[2,8] x) => (float[2,8] y) { m = ReduceMean<axes=[1]>(x)  d = Sub(x, m)  p = Pow(d, two)
        v = ReduceMean<axes=[1]>(p)  e = Add(v, eps)  r = Sqrt(e)  i = Reciprocal(r)  y = Mul(d, i) }"""
    graph = Graph.from_model(model(text, two=np.float32(2), eps=np.float32(1e-5)))
    inside = inside_normalizations(graph)
    assert inside == {"m", "d", "p", "v", "e", "r", "i"}


@pytest.mark.parametrize(("versions", "found"), [
    ({"tensorrt": "10.3.0"}, (10, 3, 0)),
    ({"tensorrt-cu12": "8.6.1.post1"}, (8, 6, 1)),
    ({"tensorrt": "10.0rc1", "tensorrt-cu11": "8.5.3.1"}, (8, 5, 3)),
    ({}, None),
])  # fmt: skip
def test_f6_the_version_of_the_installed_tensorrt(
    versions: dict[str, str], found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(metadata, "version", version)
    assert installed_tensorrt() == found


def test_f9_the_error_of_double_constants_is_that_of_rounding() -> None:
    """Of those that float32 holds as numbers with all their digits: what lies below is next to 0 anyway."""
    values = np.array([1 / 3, 1e-42, 1.0, -0.1])
    done = half_precision._Done()
    np.testing.assert_array_equal(done.converted(onnx.numpy_helper.from_array(values)), values.astype(np.float32))
    rounded = np.abs(values.astype(np.float32) / values - 1)
    assert done.error == max(rounded[0], rounded[3]) and done.error < 1e-7 < rounded[1]
