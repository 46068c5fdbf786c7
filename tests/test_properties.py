"""Random small networks with quantizers of every dialect: the stripped model computes the same, names and bytes hold."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.translator import Translation
from tests.explicit_reference import assert_equal_function, bypassed, random_inputs, run
from tests.small_models import has_quantizers

SHAPE = (1, 4, 4, 4)
Choose = Callable[[int], int]
"""choose(n) draws one of 0 .. n-1."""


class Builder:
    """A network of (1, 4, 4, 4) tensors, grown by one random step after the other."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.tensors = ["x"]
        self.count = 0
        self.rng = np.random.default_rng(choose(1000))

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def any(self) -> str:
        return self.tensors[self.choose(len(self.tensors))]

    def constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        output = self.name()
        named = f"{op}_{output}" if self.choose(4) else ""
        self.nodes.append(helper.make_node(op, inputs, [output], named, **attributes))
        return output

    def scale(self) -> str:
        return self.constant(np.float32((0.02, 0.05, 0.1, 0.25)[self.choose(4)]))

    def quantized(self, source: str, wide: bool = False) -> str:
        """A pair in one of the dialects; sometimes movement or a Clip on the codes, or a second DequantizeLinear.

        `wide`: the tensor has another shape than the pool's."""
        dialect = self.choose(4)
        zero = self.constant((np.int8(0), np.int8(0), np.uint8(128), np.uint8(0))[dialect])
        scale = self.scale()
        if self.choose(3) == 0:
            scale = self.node("Identity", [scale])
        codes = self.node("QuantizeLinear", [source, scale, zero])
        between = self.choose(5)
        if between == 0 and dialect < 2:
            low, high = ((-127, 127), (0, 127), (-8, 7))[self.choose(3)]
            codes = self.node("Clip", [codes, self.constant(np.int8(low)), self.constant(np.int8(high))])
        elif between == 1:
            codes = self.node("Transpose", [codes], perm=[0, 1, 3, 2])
        elif between == 2 and not wide:
            real = self.node("DequantizeLinear", [codes, scale, zero])
            self.tensors.append(real)
        return self.node("DequantizeLinear", [codes, scale, zero])

    def weight(self, shape: tuple[int, ...], axis: int, positive: bool = False) -> str:
        """`positive`: no code is -128, which the reference saturates whatever reads it, and the translator in weights."""
        kind = self.choose(3)
        values = self.rng.standard_normal(shape).astype(np.float32)
        values = np.abs(values) if positive else values
        if kind == 0:
            return self.constant(values)
        scale = np.exp2(self.rng.uniform(-8, -5, shape[axis])).astype(np.float32)
        names = [self.constant(scale), self.constant(np.zeros(shape[axis], np.int8))]
        if kind == 1:
            codes = self.constant(self.rng.integers(0 if positive else -128, 128, shape).astype(np.int8))
        else:
            codes = self.node("QuantizeLinear", [self.constant(values), *names], axis=axis)
        return self.node("DequantizeLinear", [codes, *names], axis=axis)

    def convolution(self, source: str) -> str:
        if self.choose(3) == 0:
            pads = self.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))
            padded = self.node("Pad", [source, pads])
            padded = self.quantized(padded, wide=True) if self.choose(3) == 0 else padded
            made = self.node("Conv", [padded, self.weight((4, 4, 3, 3), 0)])
        elif self.choose(2):
            made = self.node("Conv", [source, self.weight((4, 2, 1, 1), 0)], group=2)
        else:
            made = self.node("ConvTranspose", [source, self.weight((4, 2, 1, 1), 1)], group=2)
        made = self.node("Mul", [made, self.constant(np.float32(0.1))]) if self.choose(2) else made
        if self.choose(2):
            values = [self.rng.uniform(-2, 2, 4), *self.rng.uniform(0.2, 1, (3, 4))]
            made = self.node("BatchNormalization", [made, *(self.constant(v.astype(np.float32)) for v in values)])
        return made

    def step(self) -> None:
        kind = self.choose(12)
        if kind < 4:
            made = self.quantized(self.any())
        elif kind < 6:
            made = self.convolution(self.any())
        elif kind == 6:
            made = self.node("Add", [self.any(), self.any()])
        elif kind == 7:
            made = self.node("Mul", [self.node("Sigmoid", [self.any()]), self.any()])
        elif kind == 8:
            both = self.node("Concat", [self.any(), self.any()], axis=1)
            both = self.quantized(both, wide=True) if self.choose(2) else both
            outputs = [self.name(), self.name()]
            self.nodes.append(helper.make_node("Split", [both], outputs, f"split_{outputs[0]}", axis=1))
            self.tensors += outputs
            made = outputs[0]
        elif kind == 9:
            low, high = self.constant(np.float32(0)), self.constant(np.float32(6))
            made = self.node("Clip", [self.any(), low, high])
        elif kind == 10:
            made = self.node("Add", [self.any(), self.weight((1, 4, 1, 1), 1, positive=True)])
        else:
            made = self.node(("Relu", "Abs", "Identity", "Tanh")[self.choose(4)], [self.any()])
        self.tensors.append(made)

    def model(self, steps: int) -> onnx.ModelProto:
        self.tensors.append(self.quantized("x"))
        for _ in range(steps):
            self.step()
        made = [t for t in self.tensors if t != "x"]
        outputs = list(dict.fromkeys([made[-1], *(made[self.choose(len(made))] for _ in range(self.choose(3)))]))
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in ["x", *outputs]]
        graph = helper.make_graph(self.nodes, "random", infos[:1], infos[1:], self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def seeded(seed: int, steps: int = 12) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    return Builder(lambda n: int(rng.integers(n))).model(steps)


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    steps = draw(st.integers(1, 9))
    return Builder(lambda n: draw(st.integers(0, n - 1))).model(steps)


OPTIONS = st.builds(
    TranslateOptions,
    asymmetric=st.just("widen"),
    rename_node_outputs=st.booleans(),
    infer_concat_scales=st.booleans(),
    infer_mul_scales=st.booleans(),
    infer_bounds=st.booleans(),
    infer_add_scales=st.booleans(),
    inference=st.sampled_from(["sound", "reference"]),
    infer_average_pool_scales=st.booleans(),
    add_unary_ew_scales_for_dla=st.booleans(),
    on_conflict=st.sampled_from(["max", "min", "first"]),
    platform=st.sampled_from([None, "jetpack-6.0", "jetpack-6.2"]),
)


def saturating(translation: Translation) -> set[str]:
    """Outputs of the quantizers whose saturation is a node (rule Q9)."""
    named = [str(d.data.get("quantizer", "")) for d in translation.diagnostics if d.rule == "Q9"]
    return {name.partition("_")[2] for name in named}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(models(), OPTIONS)
def test_random_networks(explicit: onnx.ModelProto, options: TranslateOptions) -> None:
    before = explicit.SerializeToString()
    translation = translate(explicit, options)
    stripped = translation.model
    assert explicit.SerializeToString() == before
    assert not has_quantizers(stripped.graph)
    onnx.checker.check_model(stripped, full_check=True)
    names = [v.name for v in explicit.graph.output]
    assert [v.name for v in stripped.graph.output] == names
    reference = bypassed(explicit, saturating=saturating(translation))
    feed = {n: 0.3 * v for n, v in random_inputs(reference, 0).items()}
    assert_equal_function(run(reference, feed, names), run(stripped, feed, names))
    tensors = {v.name for v in stripped.graph.input} | {o for n in stripped.graph.node for o in n.output}
    for name, scale in translation.tensor_scales.items():
        assert name in tensors and np.isfinite(scale) and scale >= np.finfo(np.float32).tiny
        assert name not in names or translation.scales[name].explicit  # rule S2
        sources = translation.scales[name].origin.source.split(", ")
        assert {s for s in sources if s} <= tensors | {i.name for i in stripped.graph.initializer}  # no stale name
    again = translate(explicit, options)
    assert again.model.SerializeToString(deterministic=True) == stripped.SerializeToString(deterministic=True)
    assert again.cache.to_text() == translation.cache.to_text()


@pytest.mark.parametrize("seed", range(60))
def test_larger_networks(seed: int) -> None:
    explicit = seeded(seed, steps=30)
    translation = translate(
        explicit, TranslateOptions(asymmetric="widen", infer_mul_scales=True, infer_concat_scales=True)
    )
    names = [v.name for v in explicit.graph.output]
    reference = bypassed(explicit, saturating=saturating(translation))
    feed = {n: 0.1 * v for n, v in random_inputs(reference, seed).items()}
    with np.errstate(all="ignore"):
        expected = run(reference, feed, names)
        if not all(np.isfinite(e).all() for e in expected):
            pytest.skip("this chain of products overflows")
        assert_equal_function(expected, run(translation.model, feed, names))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models())
def test_a_stripped_model_has_nothing_to_strip(explicit: onnx.ModelProto) -> None:
    stripped = translate(explicit, TranslateOptions(asymmetric="widen")).model
    with pytest.raises(UserError, match="no QuantizeLinear"):
        translate(stripped)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(explicit: onnx.ModelProto, rng: st.Random) -> None:  # type: ignore[name-defined]
    """The same scales from a file whose nodes stand in any order (the name of an unnamed node may differ)."""
    shuffled = onnx.ModelProto.FromString(explicit.SerializeToString())
    nodes = list(shuffled.graph.node)
    rng.shuffle(nodes)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    one, two = (translate(m, TranslateOptions(asymmetric="widen")) for m in (explicit, shuffled))
    explicit_scales = [{n: s for n, s in t.tensor_scales.items() if not n.endswith("_clamp")} for t in (one, two)]
    inputs_and_outputs = ["x", *(v.name for v in explicit.graph.output)]
    for name in inputs_and_outputs:
        assert explicit_scales[0].get(name) == explicit_scales[1].get(name)


SHARED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,4,4] x) => (float[1,4,4,4] y, float[1,4,4,4] e)
    <int8 z = {0}, float s = {0.02}, float t = {0.05}, int8 top = {127}, int8 low = {-8}, int8 high = {7}> {
    n = Neg(x) q = QuantizeLinear(n, s, z) c = Clip(q, z, top) d = DequantizeLinear(c, s, z)
    p = QuantizeLinear(n, t, z) a = Clip(p, z, top) e = DequantizeLinear(a, t, z)
    r = QuantizeLinear(d, s, z) b = Clip(r, low, high) y = DequantizeLinear(b, s, z) }"""


@pytest.mark.parametrize("seed", range(20))
def test_the_clamp_of_two_quantizers_is_not_narrowed_for_the_readers_of_one(seed: int) -> None:
    """It became [0, 0.14], of y, for both outputs, if the nodes before e came after those before y."""
    shuffled = onnx.parser.parse_model(SHARED)
    nodes = [shuffled.graph.node[k] for k in np.random.default_rng(seed).permutation(len(shuffled.graph.node))]
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    scales = translate(shuffled, TranslateOptions(asymmetric="widen")).tensor_scales
    assert (scales["y"], scales["e"]) == (np.float32(0.02), np.float32(0.05))


def test_the_same_bytes_with_every_hash_seed(tmp_path: Path) -> None:
    for seed in range(4):
        onnx.save(seeded(seed, 25), tmp_path / f"m{seed}.onnx")
    script = (
        "import sys\nfrom qdq_translator import TranslateOptions, translate\n"
        "for m in sys.argv[2:]:\n"
        "    translate(m, TranslateOptions(asymmetric='widen', infer_mul_scales=True, infer_concat_scales=True,"
        " add_unary_ew_scales_for_dla=True, target='orin-dla', platform='jetpack-6.2')).save(sys.argv[1])\n"
    )
    digests = []
    for seed in ("0", "1", "4711"):
        folder = tmp_path / seed
        files = sorted(str(p) for p in tmp_path.glob("m*.onnx"))
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        subprocess.run([sys.executable, "-c", script, str(folder), *files], check=True, env=environment)
        digests.append({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())})
    assert len(digests[0]) == 20 and digests[0] == digests[1] == digests[2]
