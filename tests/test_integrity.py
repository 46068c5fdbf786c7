"""What was changed in the files of a translation after it was written is named, whatever it is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import qdq_translator
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.translation.files.integrity import SET_KEY, disagreements
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import load_model

DIGITS = Path(qdq_translator.__file__).parent / "models" / "digits_resnet_qat.onnx"
RELU, ADD, POOL = "/layer2/relu/Relu_output_0", "/layer2/Add_output_0", "/pool/AveragePool_output_0"
CONV, OTHER = "/layer2/conv1/Conv", "/layer3/conv1/Conv"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> TranslationFiles:
    return translate(DIGITS, TranslateOptions(platform="jetpack-6.0")).save(tmp_path_factory.mktemp("clean"))


@pytest.fixture
def files(clean: TranslationFiles, tmp_path: Path) -> TranslationFiles:
    """A set that a test may spoil."""
    shutil.copytree(clean.folder, tmp_path / "t")
    return TranslationFiles(tmp_path / "t", clean.name)


def check(files: TranslationFiles) -> list[str]:
    graph = Graph.from_model(load_model(files.model)[0])
    config = files.read_config() if files.config.is_file() else {}
    report = files.read_report() if files.report.is_file() else {}
    return disagreements(files, graph, config, report)


Change = Callable[[TranslationFiles], None]


def cache(change: Callable[[dict[str, float]], object]) -> Change:
    def spoil(files: TranslationFiles) -> None:
        found = files.read_cache()
        change(found.scales)
        files.cache.write_text(found.to_text())

    return spoil


def text(which: str, change: Callable[[str], str]) -> Change:
    def spoil(files: TranslationFiles) -> None:
        path = getattr(files, which)
        path.write_text(change(path.read_text()))

    return spoil


def config(change: Callable[[dict[str, Any]], object]) -> Change:
    def spoil(files: TranslationFiles) -> None:
        found = json.loads(files.config.read_text())
        change(found)
        files.config.write_text(json.dumps(found, indent=4) + "\n")

    return spoil


def model(change: Callable[[onnx.GraphProto, dict[str, onnx.NodeProto]], object]) -> Change:
    def spoil(files: TranslationFiles) -> None:
        found = onnx.load(files.model)
        change(found.graph, {n.name: n for n in found.graph.node})
        onnx.save(found, files.model)

    return spoil


def tensor(node: str, index: int, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def spoil(graph: onnx.GraphProto, nodes: dict[str, onnx.NodeProto]) -> None:
        name = nodes[node].input[index]
        found = next(t for t in graph.initializer if t.name == name)
        found.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(found))), name))

    return model(spoil)


def one_code(weight: np.ndarray) -> np.ndarray:
    weight = weight.copy()
    weight.flat[7] += np.abs(weight).max() / 127
    return weight


def attribute(node: str, **values: Any) -> Change:
    def spoil(graph: onnx.GraphProto, nodes: dict[str, onnx.NodeProto]) -> None:
        kept = [a for a in nodes[node].attribute if a.name not in values]
        del nodes[node].attribute[:]
        nodes[node].attribute.extend([*kept, *(helper.make_attribute(k, v) for k, v in values.items())])

    return model(spoil)


def bypass(graph: onnx.GraphProto, nodes: dict[str, onnx.NodeProto]) -> None:
    gone = nodes["/layer2/relu/Relu"]
    for node in graph.node:
        node.input[:] = [gone.input[0] if n == gone.output[0] else n for n in node.input]
    graph.node.remove(gone)


def insert(graph: onnx.GraphProto, nodes: dict[str, onnx.NodeProto]) -> None:
    nodes[CONV].input[0], before = "extra", nodes[CONV].input[0]
    at = list(graph.node).index(nodes[CONV])
    graph.node.insert(at, helper.make_node("Relu", [before], ["extra"], "extra"))


def swap_readers(graph: onnx.GraphProto, nodes: dict[str, onnx.NodeProto]) -> None:
    nodes["/layer2/Add"].input[0], nodes["/layer2/Add"].input[1] = reversed(nodes["/layer2/Add"].input)


def rename_output(graph: onnx.GraphProto, nodes: dict[str, onnx.NodeProto]) -> None:
    nodes["/fc/Gemm_bias"].output[0] = graph.output[0].name = "scores"


def weight_of(node: str, index: int = 1) -> Callable[[TranslationFiles], str]:
    return lambda files: next(n for n in onnx.load(files.model).graph.node if n.name == node).input[index]


def scale(scales: dict[str, float], name: str, factor: float) -> None:
    scales[name] *= factor


def swap(values: dict[str, float], one: str, other: str) -> None:
    values[one], values[other] = values[other], values[one]


W1, W3, BIAS = weight_of(CONV), weight_of(OTHER), weight_of(CONV, 2)
FAULTS: dict[str, tuple[Change, list[Any]]] = {
    # ---------------------------------------------------------------- cache
    "cache: doubled": (cache(lambda s: scale(s, RELU, 2)), [RELU, "2 times"]),
    "cache: halved": (cache(lambda s: scale(s, ADD, 0.5)), [ADD, "0.5 times"]),
    "cache: eight times too small": (cache(lambda s: scale(s, POOL, 1 / 8)), [POOL, "0.125 times"]),
    "cache: one bit": (
        cache(lambda s: s.update({RELU: float(np.nextafter(np.float32(s[RELU]), np.float32(1)))})),
        [RELU],
    ),
    "cache: amax instead of scale": (cache(lambda s: scale(s, "input", 127)), ["input", "127 times"]),
    "cache: zero": (text("cache", lambda t: re.sub(f"{RELU}: .*", f"{RELU}: 0", t)), [RELU, "0 times"]),
    "cache: infinite": (text("cache", lambda t: re.sub(f"{RELU}: .*", f"{RELU}: 7f800000", t)), [RELU, "inf"]),
    "cache: dropped": (cache(lambda s: s.pop(RELU)), [RELU, "has no scale"]),
    "cache: input dropped": (cache(lambda s: s.pop("input")), ["'input'", "has no scale"]),
    "cache: added on the output": (cache(lambda s: s.update(logits=0.25)), ["'logits'", "the report has none"]),
    "cache: added for nothing": (cache(lambda s: s.update(nowhere=0.25)), ["'nowhere'"]),
    "cache: swapped": (cache(lambda s: swap(s, RELU, ADD)), [f"the scale of '{RELU}'", f"the scale of '{ADD}'"]),
    "cache: renamed": (cache(lambda s: s.update({"relu_2": s.pop(RELU)})), [RELU, "'relu_2'"]),
    "cache: header": (text("cache", lambda t: t.replace("TRT-8602", "TRT-100300")), ["TRT-100300-", "TRT-8602-"]),
    "cache: calibrator": (text("cache", lambda t: t.replace("EntropyCalibration2", "MinMaxCalibration")), ["MinMax"]),
    "cache: unreadable": (text("cache", lambda t: t + "input: wrong\n"), ["'input: wrong'"]),
    "cache: cut off": (text("cache", lambda t: t[: t.index(POOL)]), [POOL, "has no scale"]),
    "cache: order": (
        text("cache", lambda t: "\n".join([*t.splitlines()[:2], *t.splitlines()[:1:-1]]) + "\n"),
        [".cache"],
    ),
    # ---------------------------------------------------------------- layer argument
    "layer argument: dropped": (text("layer_arg", lambda t: t.partition(",")[2]), ["'/layer1/Add'", "does not keep"]),
    "layer argument: added": (text("layer_arg", lambda t: f"{t},{CONV}:fp16"), [CONV, "asks for fp16"]),
    "layer argument: unknown": (text("layer_arg", lambda t: f"{t},nobody:fp16"), ["'nobody'"]),
    "layer argument: all": (text("layer_arg", lambda t: f"{t},*:fp16"), ["'*'"]),
    "layer argument: int8": (text("layer_arg", lambda t: t.replace("/layer1/Add:fp16", "/layer1/Add:int8")), ["int8"]),
    "layer argument: empty": (text("layer_arg", lambda t: ""), ["'/layer1/Add'", "'/layer2/Add'", "'/layer3/Add'"]),
    # ---------------------------------------------------------------- precision config
    "config: scale": (config(lambda c: scale(c["int8_tensor_scales"], RELU, 2)), ["precision config", RELU]),
    "config: scale dropped": (config(lambda c: c["int8_tensor_scales"].pop(RELU)), ["precision config", RELU]),
    "config: scale added": (config(lambda c: c["int8_tensor_scales"].update(logits=1.0)), ["config", "'logits'"]),
    "config: layer": (config(lambda c: c["fp16_nodes"].append(CONV)), ["precision config", CONV]),
    "config: layer dropped": (config(lambda c: c["fp16_nodes"].pop()), ["precision config", "'/fc/Gemm_bias'"]),
    "config: automatic": (config(lambda c: c["automatic_tensor_scales"].update(x=1.0)), ["precision config", "'x'"]),
    "config: options": (config(lambda c: c["options"].update(weights="float")), ["_precision_config.json"]),
    # ---------------------------------------------------------------- model
    "weight: one code": (tensor(CONV, 1, one_code), [W1, "has other values"]),
    "weight: doubled": (tensor(CONV, 1, lambda w: w * 2), [W1]),
    "weight: a sign": (tensor(CONV, 1, lambda w: -w), [W1]),
    "weight: axes": (tensor(CONV, 1, lambda w: w[::-1]), [W1]),
    "weight: float16": (tensor(CONV, 1, lambda w: w.astype(np.float16)), [W1]),
    "bias: changed": (tensor(CONV, 2, lambda b: b + np.float32(1e-3)), [BIAS]),
    "bias: removed": (model(lambda g, n: n[CONV].input.pop()), [CONV, "reads or makes other tensors"]),
    "node: strides": (attribute(CONV, strides=[1, 1]), [CONV, "has other attributes"]),
    "node: pads": (attribute(CONV, pads=[0, 0, 2, 2]), [CONV, "has other attributes"]),
    "node: attribute gone": (model(lambda g, n: n[CONV].attribute.pop()), [CONV, "has other attributes"]),
    "node: another operator": (
        model(lambda g, n: setattr(n["/layer2/relu/Relu"], "op_type", "Sigmoid")),
        ["'/layer2/relu/Relu'", "is another operator"],
    ),
    "node: removed": (model(bypass), ["has lost the node '/layer2/relu/Relu'"]),
    "node: added": (model(insert), ["has a new node 'extra'", CONV]),
    "node: operands swapped": (model(swap_readers), ["'/layer2/Add'"]),
    "node: renamed": (model(lambda g, n: setattr(n[CONV], "name", "conv")), [CONV, "new node 'conv'"]),
    "weights swapped": (
        model(lambda g, n: swap(n["/layer2/conv2/Conv"].input, 1, 2)),  # type: ignore[arg-type]
        ["'/layer2/conv2/Conv'"],
    ),
    "ends: output renamed": (model(rename_output), ["output 'logits'", "output 'scores'", "'/fc/Gemm_bias'"]),
    "ends: input shape": (
        model(lambda g, n: setattr(g.input[0].type.tensor_type.shape.dim[2], "dim_value", 32)),
        ["input 'input'"],
    ),
}


def test_a_set_as_written_agrees(clean: TranslationFiles) -> None:
    assert check(clean) == []
    report = clean.read_report()
    assert report["integrity"][SET_KEY] == clean.read_config()[SET_KEY] and len(report["integrity"][SET_KEY]) == 32


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named(files: TranslationFiles, fault: str) -> None:
    change, words = FAULTS[fault]
    wanted = [word if isinstance(word, str) else word(files) for word in words]
    change(files)
    found = " ".join(check(files))
    assert found and all(word in found for word in wanted), found


def test_a_fault_names_nothing_else(files: TranslationFiles) -> None:
    tensor(CONV, 1, one_code)(files)
    cache(lambda s: scale(s, RELU, 2))(files)
    weight = W1(files)
    assert len(check(files)) == 2 and weight in check(files)[0] and RELU in check(files)[1]


def test_files_of_two_translations(files: TranslationFiles, tmp_path: Path) -> None:
    """The same scales and layers, another config: the set ids tell."""
    other = translate(DIGITS, TranslateOptions(platform="jetpack-6.0", on_conflict="min")).save(tmp_path / "o")
    assert other.read_cache() == files.read_cache()
    shutil.copy(other.config, files.config)
    assert check(files) == ["The precision config and the report are of different translations (their set ids differ)."]


def test_external_data_count(tmp_path: Path) -> None:
    """Weights beside the model are read and compared as those inside it."""
    loaded = onnx.load(DIGITS)
    onnx.save(loaded, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    files = translate(tmp_path / "m.onnx").save(tmp_path / "t")
    assert files.model_data.is_file() and check(files) == []
    data = bytearray(files.model_data.read_bytes())
    data[100] ^= 1
    files.model_data.write_bytes(bytes(data))
    assert len(check(files)) == 1 and "initializer" in check(files)[0]


def test_files_of_others_and_of_older_versions(files: TranslationFiles) -> None:
    report = files.read_report()
    del report["integrity"]
    files.report.write_text(json.dumps(report))
    assert check(files) == []
    cache(lambda s: scale(s, RELU, 2))(files)
    assert len(check(files)) == 1 and "the report" in check(files)[0]
    files.report.unlink()
    assert len(check(files)) == 1 and "the precision config" in check(files)[0]
    files.config.unlink()
    assert check(files) == []
