"""What the rules' own tests do not reach: bounds of a search, forms of older opsets, bodies in bodies, values at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, Translation
from qdq_translator.core.boards import no_dla_in
from qdq_translator.core.errors import ModelError, UsageError, UserError
from qdq_translator.core.parsing import normalise_flags
from qdq_translator.lab.laboratory import translate
from qdq_translator.translation.ir.bounds import is_non_negative
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.passes.opset import lower_opset
from qdq_translator.translation.targets.platforms import PLATFORMS, cache_version, find_platform, tensorrt_version
from tests.explicit_reference import assert_equal_function, random_inputs, run
from tests.small_models import model, pair

S: dict[str, Any] = {"s": np.float32(0.05), "z": np.int8(0)}
DLA = {"target": "orin-dla", "platform": "jetpack-6.2"}


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def planned(explicit: onnx.ModelProto, **options: Any) -> Translation:
    """As `qdq-translator plan`, with the same function as before."""
    made = translate(explicit, TranslateOptions(**{**DLA, **options}), assume_scales=True)
    feed = random_inputs(explicit, 3)
    names = [v.name for v in explicit.graph.output]
    assert_equal_function(run(explicit, feed, names), run(made.model, feed, names), 1e-5)
    return made


# ------------------------------------------------------------------ clamps, cleanup


@pytest.mark.parametrize(("length", "known"), [(1, True), (63, True), (64, False)])
def test_q9_looks_back_through_64_tensors(length: int, known: bool) -> None:
    lines = ["t0 = Relu (x)", *(f"t{i + 1} = Transpose <perm = [1, 0]> (t{i})" for i in range(length))]
    text = f"g (float[2, 2] x) => (float[2, 2] t{length}) {{ {chr(10).join(lines)} }}"
    assert is_non_negative(Graph.from_model(model(text)), f"t{length}") is known


@pytest.mark.parametrize(("body", "expected"), [
    ("o = Add (r, k)", True),
    ("o = Add (r, m)", False),
    ("o = Add (r, x)", False),
    ("o = Mul (r, k)", True),
    ("o = Sub (r, k)", False),
    ("e = Exp (x)\no = Concat <axis = 0> (r, e, k2)", True),
    ("o = Max (x, r)", True),
    ("o = Clip (x, zero)", True),
    ("o = ReduceSum (r)", True),
    ("n = Neg (r)\no = Abs (n)", True),
    ("o = Pad (r, side, half)", True),
    ("o = Pad (r, side, below)", False),
])  # fmt: skip
def test_q9_what_cannot_be_negative(body: str, expected: bool) -> None:
    arrays = {"k": np.float32(2), "m": np.float32(-1), "k2": np.ones((1, 2), np.float32), "zero": np.float32(0)}
    arrays.update(side=np.array([0, 0, 0, 1]), half=np.float32(0.5), below=np.float32(-0.5))
    used = {name: values for name, values in arrays.items() if name in body}
    graph = Graph.from_model(model(f"g (float[2, 2] x) => (float[a, b] o) {{ r = Relu (x)\n{body} }}", **used))
    assert is_non_negative(graph, "o") is expected


# ------------------------------------------------------------------ half precision


def test_f9_half_precision_in_bodies_of_bodies() -> None:
    def branch(inner: bool, value: float) -> onnx.GraphProto:
        half = numpy_helper.from_array(np.float16([value]), "h")
        nodes = [
            helper.make_node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["i", "f"], ["o"]),
        ]
        if inner:
            bodies = {"then_branch": branch(False, value + 1), "else_branch": branch(False, value + 2)}
            nodes = [helper.make_node("If", ["c"], ["o"], **bodies)]
        output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [2])
        return helper.make_graph(nodes, "body", [], [output], [] if inner else [half])

    explicit = model(f"g (float[2] x, bool c) => (float[2] y) {{ {pair('x', 'i')} y = Relu (i) }}", **S)
    node = helper.make_node("If", ["c"], ["o"], then_branch=branch(True, 1), else_branch=branch(False, 5))
    explicit.graph.node.insert(2, node)
    explicit.graph.node[-1].input[0] = "o"
    made = translate(explicit)
    held: list[int] = []

    def look(body: onnx.GraphProto) -> None:
        held.extend(tensor.data_type for tensor in body.initializer if tensor.name == "h")
        for each in body.node:
            for attribute in each.attribute:
                if attribute.HasField("g"):
                    look(attribute.g)

    look(made.model.graph)
    assert held == [TensorProto.FLOAT] * 3
    for condition in (True, False):
        feed = {"x": np.float32([1, 2]), "c": np.array(condition)}
        (got,) = run(made.model, feed, ["y"])
        np.testing.assert_array_equal(got, feed["x"] * (2 if condition else 5))


# ------------------------------------------------------------------ what the parser reads


def test_f6_an_operator_in_a_body_of_a_body_is_found() -> None:
    def branch(nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        return helper.make_graph(nodes, "body", [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])

    inner = branch([helper.make_node("StringNormalizer", ["i"], ["o"], name="deep")])
    plain = branch([helper.make_node("Relu", ["i"], ["o"], name="plain")])
    explicit = model(f"g (float[2] x, bool c) => (float[2] y) {{ {pair('x', 'i')} y = Relu (i) }}", **S)
    outer = branch([helper.make_node("If", ["c"], ["o"], name="second", then_branch=plain, else_branch=inner)])
    explicit.graph.node.insert(
        2, helper.make_node("If", ["c"], ["o"], name="first", then_branch=outer, else_branch=plain)
    )
    explicit.graph.node[-1].input[0] = "o"
    with pytest.raises(UserError, match="deep"):
        translate(explicit, TranslateOptions(platform="jetpack-6.2"))


def test_f6_an_opset_that_is_low_enough_stays() -> None:
    graph = Graph.from_model(model("g (float[2] x) => (float[2] y) { y = Relu (x) }", opset=15))
    assert lower_opset(graph, TensorTypes(graph)) == [] and graph.opset() == 15


def test_f6_a_network_that_cannot_be_lowered_is_as_it_was() -> None:
    text = "g (float[2, 4] x, int64[a] axes) => (float[2, 4] y) { a = ReduceMax (x, k)\nb = ReduceMean (x, axes)\ny = Add (a, b) }"
    graph = Graph.from_model(model(text, opset=18, k=np.array([1])))
    before = [(node.op_type, list(node.inputs), sorted(node.attributes)) for node in graph.nodes]
    with pytest.raises(UserError):
        lower_opset(graph, TensorTypes(graph))
    assert [(node.op_type, list(node.inputs), sorted(node.attributes)) for node in graph.nodes] == before
    assert graph.opset() == 18 and graph.consumer_count("k") == 1


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_older_opsets_keep_their_forms(opset: int) -> None:
    """A plan of a float network: limits and bounds are attributes there, and broadcasting is another."""
    text = "g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y, float[1, 2, 6, 6] z) {\n"
    text += "c = Conv <kernel_shape = [1, 1]> (x, w)\nl = Clip <min = -0.5> (c)\nh = HardSigmoid <alpha = 0.25> (l)\n"
    text += "d = Slice <axes = [1], starts = [1], ends = [3]> (c)\nz = Relu (d)\ny = Mul (c, h) }"
    if opset == 10:
        text = text.replace("Slice <axes = [1], starts = [1], ends = [3]> (c)", "Slice (c, one, three, one)")
    more = {"one": np.array([1]), "three": np.array([3])} if opset == 10 else {}
    made = planned(model(text, opset=opset, ir=4, w=weights(4, 4, 1, 1), **more), dla_rewrites=True)
    assert made.graph.opset() == opset
    clips = [node for node in made.graph.nodes if node.op_type == "Clip"]
    assert all(len(node.inputs) == 1 for node in clips)


# ------------------------------------------------------------------ platforms


@pytest.mark.parametrize(
    ("version", "number"),
    [((8, 5, 2), "8502"), ((8, 6, 12), "8612"), ((9, 3, 0), "9300"), ((10, 0, 1), "100001"), ((10, 16, 2), "101602")],
)
def test_cache_numbers_and_versions_are_inverse(version: tuple[int, int, int], number: str) -> None:
    assert cache_version(version) == number and tensorrt_version(number) == version


@pytest.mark.parametrize(("name", "version"), [
    ("JetPack 6.2", (10, 3, 0)),
    ("jetpack_5.1.0", (8, 5, 2)),
    ("tensorrt-8.6", (8, 6, 0)),
    ("TensorRT 10.7.0.23", (10, 7, 0)),
])  # fmt: skip
def test_a_platform_is_known_by_its_name_in_any_writing(name: str, version: tuple[int, int, int]) -> None:
    assert find_platform(name).tensorrt == version


@pytest.mark.parametrize("name", ["jetpack-7.2.2", "tensorrt-11.0"])
def test_a_platform_without_implicit_quantization_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError) as caught:
        find_platform(name)
    assert name in caught.value.what and "11." in caught.value.what and caught.value.hint


def test_an_unknown_platform_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError) as caught:
        find_platform("jetpack-99")
    assert all(platform.name in caught.value.hint for platform in PLATFORMS)


@pytest.mark.parametrize(("words", "wanted"), [
    (["--platform", "jetpack-6.2", "--tensorrt", "10.7"], ["--platform", "jetpack-6.2+tensorrt-10.7"]),
    (["--tensorrt=10.7", "--platform=jetpack-6.2"], ["--platform=jetpack-6.2+tensorrt-10.7"]),
    (["--board", "agx-orin@jetpack-6.2", "--tensorrt", "10.7"], ["--board", "agx-orin@jetpack-6.2+tensorrt-10.7"]),
    (["--board", "gpu", "--tensorrt", "10.7.0"], ["--board", "gpu@tensorrt-10.7.0"]),
    (["m.onnx", "--tensorrt", "10.7"], ["m.onnx", "--platform", "tensorrt-10.7"]),
    (["explain", "jetpack-6.2", "--tensorrt", "10.7"], ["explain", "jetpack-6.2+tensorrt-10.7"]),
])  # fmt: skip
def test_another_tensorrt_on_a_platform(words: list[str], wanted: list[str]) -> None:
    """ultralytics installs TensorRT 10.7 on JetPack 6.2."""
    assert normalise_flags(words) == wanted


def test_platforms_with_another_tensorrt_keep_their_dla_if_it_has_one() -> None:
    both = find_platform("jetpack-6.2+tensorrt-10.7")
    assert (both.cache_version, both.dla) == ("100700", "orin")
    assert find_platform("jetpack-6.2+tensorrt-10.9").dla == ""
    assert no_dla_in("jetpack-6.2+tensorrt-10.9") and not no_dla_in("jetpack-6.2+tensorrt-10.7")
    assert find_platform("DriveOS 7").tensorrt == find_platform("drive-os-7.0").tensorrt == (10, 10, 10)
    assert find_platform("JetPack 6.2 with TensorRT 10.7").cache_version == both.cache_version
    for name in ("jetpack-6.2+x", "jetpack-99+tensorrt-10.7"):
        with pytest.raises(UsageError, match="not known"):
            find_platform(name)


# ------------------------------------------------------------------ forms that ONNX allows and nobody expects


def test_a_place_of_external_data_that_is_no_text(tmp_path: Path) -> None:
    explicit = model(
        f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {pair('x', 'i')} y = Mul(i, w) }}", w=weights(4, 1, 1), **S
    )
    onnx.save(explicit, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    data = (tmp_path / "m.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(data.replace(b"m.data", b"m.dat\xff"))
    with pytest.raises(ModelError, match="has no location of its external data"):
        translate(tmp_path / "m.onnx")
