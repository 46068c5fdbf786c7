"""--keep_model: a cache for a float network exactly as it is given; --cache_algorithm: the header's word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.calibration_cache import ALGORITHMS, CalibrationCache
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.targets.parser_network import refusal
from tests.small_models import model, pair

FLOAT = """g (float[N,3,8,8] x) => (float[N,4] out) {
    c = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (x, w)
    b = BatchNormalization (c, gamma, beta, mean, var)
    r = Relu(b)
    k = Constant <value = float[1,4,1,1] {2, 1, 3, 1}> ()
    m = Mul(r, k)
    i = Identity(m)
    a = GlobalAveragePool(i)
    f = Flatten(a)
    g1 = Gemm <transB=1> (f, fc, fcb)
    out = Softmax(g1)
}"""


def float_model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    ones = {name: np.ones(4, np.float32) for name in ("gamma", "beta", "mean", "var")}
    weights = {"w": (4, 3, 3, 3), "fc": (4, 4), "fcb": (4,)}
    made = model(FLOAT, **ones, **{k: rng.normal(size=s).astype(np.float32) for k, s in weights.items()})
    for node in made.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    return made


def samples(folder: Path) -> str:
    path = folder / "x.npy"
    np.save(path, np.random.default_rng(1).normal(size=(8, 3, 8, 8)).astype(np.float32))
    return str(path)


def kept(tmp_path: Path, network: onnx.ModelProto, **options: Any) -> Any:
    chosen = {
        "platform": "tensorrt-10.3.0", "preset": "gpu", "calibrate": samples(tmp_path), "keep_model": True, **options,
    }  # fmt: skip
    return translate(network, TranslateOptions(**chosen))


def parsed_tensors(network: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """Layers and tensors that TensorRT-RTX 1.7 (GPU, no DLA) makes of a network."""
    trt = pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed").tensorrt_rtx
    logger = trt.Logger(trt.Logger.ERROR)
    made = trt.Builder(logger).create_network(0)
    parser = trt.OnnxParser(made, logger)
    assert parser.parse(network.SerializeToString())
    layers = [made.get_layer(i) for i in range(made.num_layers)]
    tensors = [layer.get_output(j).name for layer in layers for j in range(layer.num_outputs)]
    return [layer.name for layer in layers], [made.get_input(0).name, *tensors]


def test_the_network_stays_and_every_entry_is_of_it(tmp_path: Path) -> None:
    network = float_model()
    made = kept(tmp_path, network)
    given = [(n.op_type, n.name, list(n.output)) for n in network.graph.node if n.op_type != "Constant"]
    assert [(n.op_type, n.name, list(n.output)) for n in made.model.graph.node] == given
    tensors = {name for node in network.graph.node for name in node.output} | {"x"}
    assert {"x", "c", "b", "r", "m", "i", "a", "f", "g1"} <= set(made.cache.scales)
    assert {name for name in made.cache.scales if name not in tensors} == set(made.automatic)


def test_the_parser_makes_the_same_of_both_and_knows_every_entry(tmp_path: Path) -> None:
    network = float_model()
    made = kept(tmp_path, network)
    given = parsed_tensors(network)
    assert parsed_tensors(made.model) == given
    assert [name for name in made.cache.scales if name not in given[1]] == []


def test_the_normal_translation_does_edit(tmp_path: Path) -> None:
    made = kept(tmp_path, float_model(), keep_model=False)
    operators = {node.op_type for node in made.model.graph.node}
    assert "BatchNormalization" not in operators and "Identity" not in operators


def test_unnamed_nodes_get_no_predicted_names(tmp_path: Path) -> None:
    network = float_model()
    for node in network.graph.node:
        node.name = ""
    made = kept(tmp_path, network, keep_fp16=["*Gemm*"])
    assert made.automatic == {} and made.fp16_nodes == []


def test_preset_dla_keeps_the_model_too(tmp_path: Path) -> None:
    network = float_model()
    made = kept(tmp_path, network, preset="dla", shapes=["x:1x3x8x8"])
    assert [n.name for n in made.model.graph.node] == [n.name for n in network.graph.node if n.op_type != "Constant"]


def test_scales_of_a_file_beside_a_kept_model(tmp_path: Path) -> None:
    """Those of activations; weights stay as they are, and names are those of the file."""
    table = tmp_path / "table.txt"
    table.write_text("x 2.54\nc 3.81\nr 1.27\nm 1.27\n")
    network = float_model()
    made = kept(tmp_path, network, calibrate=None, scales=str(table))
    assert [n.name for n in made.model.graph.node] == [n.name for n in network.graph.node if n.op_type != "Constant"]
    found = {name: made.tensor_scales[name] for name in ("x", "c", "r", "m")}
    assert found == pytest.approx({"x": 0.02, "c": 0.03, "r": 0.01, "m": 0.01})
    table.write_text("other 2.54\n")
    with pytest.raises(UserError, match=r"has 0 of the names in the file .*table\.txt"):
        kept(tmp_path, network, calibrate=None, scales=str(table))


def test_a_conv_whose_kernel_follows_from_its_weight_is_kept(tmp_path: Path) -> None:
    """TensorRT's parsers read the kernel of an initializer; of a matrix, or of a tensor computed at run time, they read none."""
    network = float_model()
    network.graph.node[0].attribute.remove(next(a for a in network.graph.node[0].attribute if a.name == "kernel_shape"))
    made = kept(tmp_path, network)
    assert [a.name for a in made.model.graph.node[0].attribute] == ["pads"] and "c" in made.tensor_scales
    conv = Node("Conv", ["x", "w"], ["c"], "conv")
    for sizes, refused in (((4, 3), True), ((4, 3, 3), False), ((4, 3, 3, 3), False)):
        graph = Graph.from_model(model("g (float[1,3] x) => (float[1,3] y) { y = Relu(x) }"))
        graph.set_initializer("w", numpy_helper.from_array(np.ones(sizes, np.float32), "w"))
        assert (refusal(conv, (10, 3, 0), graph) is not None) == refused
        assert refusal(conv, (10, 10, 0), graph) is None
    del graph.initializers["w"]
    assert "kernel_shape" in (refusal(conv, (10, 3, 0), graph) or ("", ""))[0]


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    quantized = model(
        f"g (float[1,4] x) => (float[1,4] y) {{ {pair('x', 'd', 's', 'z')} y = Relu(d) }}",
        s=np.float32(0.1),
        z=np.int8(0),
    )
    with pytest.raises(UserError, match="without keep_model"):
        kept(tmp_path, quantized, calibrate=None)
    with pytest.raises(UserError, match="calibrate"):
        kept(tmp_path, float_model(), calibrate=None)
    with pytest.raises(UsageError, match="keeps every name"):
        kept(tmp_path, float_model(), rename_node_outputs=True)
    newer = float_model()
    newer.opset_import[0].version = 18
    with pytest.raises(UserError, match="opset 18"):
        kept(tmp_path, newer, platform="jetpack-5.1")


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_header_holds_the_algorithm(tmp_path: Path, name: str) -> None:
    made = kept(tmp_path, float_model(), cache_algorithm=name)
    read = CalibrationCache.from_text(made.cache.to_text())
    assert (read.version, read.algorithm, read.scales) == ("100300", ALGORITHMS[name], made.cache.scales)


def test_a_dla_needs_entropy2(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="A DLA needs a cache of entropy2"):
        kept(tmp_path, float_model(), cache_algorithm="minmax", preset="dla")


def test_constants_behind_an_identity_are_constants(tmp_path: Path) -> None:
    """As torch.onnx writes equal constants: no range from data (rule S2), no rounding, the constant's own scale (rule S10)."""
    network = float_model()
    index, conv = next((i, n) for i, n in enumerate(network.graph.node) if n.op_type == "Conv")
    network.graph.node.insert(index, helper.make_node("Identity", [conv.input[1]], ["shared"], "share"))
    conv.input[1] = "shared"
    made = kept(tmp_path, network)
    weight = numpy_helper.to_array(
        next(t for t in network.graph.initializer if t.name == network.graph.node[index].input[0])
    )
    assert "shared" not in made.scales and made.automatic["shared"] == pytest.approx(
        np.abs(weight).max() / 127, rel=1e-6
    )
    assert "shared" not in simulate(ImplicitNetwork.of(made)).placement.held
    assert next(row.precision for row in made.plan if row.name == conv.name) == "int8"
