"""Names against what TensorRT's own ONNX parsers (10.1 and 8.6) make of the zoo's stripped models."""

from __future__ import annotations

import functools
import json
from collections import Counter
from typing import Any

import onnx
import pytest

from qdq_translator.translation.translator import Translation, translate
from tests.conftest import ZOO, need_shared, zoo_paths
from tests.test_reference_agreement import model_path
from tests.test_zoo_function import ALL_FLAGS, REFUSED, options_for

PARSED = ZOO / "parsed_network"
pytestmark = pytest.mark.usefixtures("without_normal_forms")  # they were stripped before there was a rule F8
CASES = [p.stem for p in zoo_paths("parsed_network/*.json") if p.stem not in REFUSED]


@functools.lru_cache(maxsize=None)
def translated(stem: str, platform: str, **flags: Any) -> Translation:
    return translate(model_path(stem), options_for(model_path(stem), platform=platform, **flags))


def parsed(stem: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(need_shared(PARSED / f"{stem}.json").read_text())
    return content


def recorded(stem: str, platform: str, **flags: Any) -> tuple[Translation, dict[str, Any]]:
    """The translation and the recording; a skip where rules F3, F7 or F9 have taken out nodes that were recorded, because
    the numbers of helper layers count them."""
    t, network = translated(stem, platform, **flags), parsed(stem)
    explicit = {
        n.name or f"{n.op_type}_{n.output[0]}" for n in onnx.load(model_path(stem), load_external_data=False).graph.node
    }
    gone = {layer["name"] for layer in network["layers"]} & explicit - {n.name for n in t.graph.nodes}
    if gone:
        pytest.skip(f"recorded while {len(gone)} nodes stood in this network that go now")
    return t, network


def why_left_out(t: Translation, network: dict[str, Any], name: str) -> str:
    """The reason for which a float tensor of TensorRT's network has no entry in the cache."""
    tensor = network["tensors"][name]
    graph = t.graph
    if name in graph.outputs:
        assert name not in t.scales
        return "graph output without a scale of its own (S2)"
    if name in graph.producer or name in graph.inputs:
        assert any(name in layer.missing for layer in t.plan)
        return "no rule gives it a scale, the plan says so"
    maker = next(la for la in network["layers"] if name in la["outputs"])
    if not tensor.get("auto_named"):
        assert name in graph.initializers and maker["op"] in ("Transpose", "Identity")
        return "layout node that is folded into its constant here (Q5)"
    if maker["op"] == "LayerNormalization":
        return "made by the parser for LayerNormalization"
    if "Broadcast" in name:
        assert any(n.op_type in ("Shape", "Slice", "Softmax", "LayerNormalization", "Expand") for n in graph.nodes)
        return "numbered broadcast in a network with other numbered helpers"
    if maker["type"] == "MATRIX_MULTIPLY":
        node = next(n for n in graph.nodes if n.name == maker["name"])
        assert node.outputs[0] not in t.scales
        return "pre-bias of a Gemm whose output has no scale"
    initializer = name.removesuffix("_output")
    assert maker["type"] == "CONSTANT"
    if initializer not in graph.initializers:
        return "constant of another name or folded away here"
    return "constant that only feeds constant or shape arithmetic"


@pytest.mark.parametrize("stem", CASES)
def test_every_tensor_is_covered_or_left_out_for_a_reason(stem: str) -> None:
    t, network = recorded(stem, "tensorrt-10.1.0", **ALL_FLAGS)
    cache = t.cache.scales
    floats = [n for n, tensor in network["tensors"].items() if tensor["dtype"] in ("FLOAT", "HALF")]
    reasons = Counter(why_left_out(t, network, n) for n in floats if n not in cache)
    if not stem.startswith("vit") and "mo_" not in stem:
        # convolutional networks quantized by these exporters: with all flags nothing but graph outputs is left out,
        # and where two unquantized branches meet in an Add (rule S9 requires one real scale)
        allowed = {
            "graph output without a scale of its own (S2)",
            "pre-bias of a Gemm whose output has no scale",
            "no rule gives it a scale, the plan says so",
        }
        assert set(reasons) <= allowed
        # the SiLUs of yolo networks whose product nothing quantizes: a sigmoid of amax 1 has no inverse (rule S5)
        silus = {"yolov5n": 14, "yolov8n": 28}.get(stem.split("__")[0], 0)
        # a mean's range says nothing of what it averages (rule S6 goes forward only): the last Conv and its Clip
        means = 1 if stem.startswith("mobilenet_v2__nvpq") else 0
        assert sum(reasons.values()) <= 3 + silus + means


@pytest.mark.parametrize("stem", CASES)
def test_every_name_we_write_exists_in_the_network(stem: str) -> None:
    t, network = recorded(stem, "tensorrt-10.1.0", **ALL_FLAGS)
    unknown = [n for n in t.cache.scales if n not in network["tensors"]]
    assert unknown == []
    layers = {layer["name"] for layer in network["layers"]}
    plain = translated(stem, "tensorrt-10.1.0")
    assert [n for n in plain.fp16_nodes if n not in layers] == []


@pytest.mark.parametrize("stem", CASES)
def test_names_for_the_8_6_parser(stem: str) -> None:
    """Every name that is written exists there, the automatic ones under their own names (rule S10)."""
    t, network = recorded(stem, "jetpack-6.0", **ALL_FLAGS)
    assert t.graph.opset() <= 17
    other = network.get("names_8_6", {}).get("tensors", {})
    there = {other.get(name, name) for name in network["tensors"]}
    assert [n for n in t.cache.scales if n not in there] == []


def test_gemm_chain_lacks_nothing() -> None:
    if not CASES:
        pytest.skip("SKIPPED FOR LACK OF DATA: the parsed networks do not lie beside the project")
    network = parsed("mlp__ort_s8_qdqw")
    t = translated("mlp__ort_s8_qdqw", "tensorrt-10.1.0")
    floats = [n for n, tensor in network["tensors"].items() if tensor["dtype"] == "FLOAT"]
    assert [n for n in floats if n not in t.cache.scales] == []
    assert "ONNXTRT_Broadcast_4_output" in t.automatic
