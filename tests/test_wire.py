"""Weights that stay outside of ONNX's messages: what is cut out of a file, read later, made again, is what protobuf reads."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.networks import Builder, chain
from qdq_translator import translate
from qdq_translator.core.errors import ModelError, UnsupportedQuantizer
from qdq_translator.translation.ir import qparams, weights
from qdq_translator.translation.ir.io import load_model, open_model
from qdq_translator.translation.ir.weights import Weight, to_message
from qdq_translator.translation.ir.wire import LARGE, cut_weights
from tests.small_models import model as from_text


def model() -> onnx.ModelProto:
    """Large and small initializers, of several types, one that no NumPy has."""
    large, rng = LARGE // 4, np.random.default_rng(0)
    arrays = {
        "large": rng.standard_normal((4, large), dtype=np.float32),
        "least": np.zeros(large, np.float32),
        "below": np.zeros(large - 1, np.float32),
        "half": np.ones((LARGE, 1), np.float16),
        "codes": rng.integers(-128, 128, (2, LARGE)).astype(np.int8),
        "small": np.float32(1),
    }
    initializers = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    initializers.append(helper.make_tensor("brain", TensorProto.BFLOAT16, [LARGE], bytes(2 * LARGE), raw=True))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def whole(path: Path) -> onnx.ModelProto:
    """What `open_model` gives, with its weights in their places again."""
    opened, apart, *_ = open_model(path)
    for tensor in opened.graph.initializer:
        if tensor.name in apart:
            tensor.raw_data = to_message(apart[tensor.name]).raw_data
    return opened


def test_what_is_cut_out_is_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    opened, apart, *_ = open_model(path)
    assert set(apart) == {"large", "least", "half", "codes"}
    assert opened.ByteSize() < 4 * LARGE + 500  # 'below' and 'brain', as they were
    assert whole(path) == model()
    for tensor in model().graph.initializer:
        if tensor.name in apart:
            values = apart[tensor.name].array()
            assert not values.flags.writeable
            np.testing.assert_array_equal(values, numpy_helper.to_array(tensor))


def test_a_model_without_large_weights_is_not_touched() -> None:
    data = chain(2, channels=4).SerializeToString()
    assert cut_weights(memoryview(data)) == (data, {})


def tensor_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, *_varint(len(content))]) + content


def _varint(value: int) -> list[int]:
    return [value] if value < 128 else [value & 127 | 128, *_varint(value >> 7)]


def _with(field: bytes) -> bytes:
    """The model with a field more at the end of its first initializer, as another writer might put it."""
    made = model()
    first = made.graph.initializer[0].SerializeToString() + field
    rest = [t.SerializeToString() for t in list(made.graph.initializer)[1:]]
    del made.graph.initializer[:]
    graph = made.graph.SerializeToString() + b"".join(tensor_field(5, tensor) for tensor in (first, *rest))
    made.ClearField("graph")
    return made.SerializeToString() + tensor_field(7, graph)


@pytest.mark.parametrize("field", [
    tensor_field(9, bytes(4 * LARGE)),  # raw data twice: the last counts
    tensor_field(4, bytes(16)),  # float_data beside raw data
    tensor_field(13, b""),  # external_data
    bytes([14 << 3, 1]),  # data_location
    tensor_field(1, bytes([3])),  # a third dimension
    bytes([15 << 3 | 2, 7]) + b"unknown",  # a field that ONNX does not have
    tensor_field(12, b"documentation"),
    b"",
])  # fmt: skip
def test_tensors_written_in_other_ways_are_read_as_protobuf_reads_them(field: bytes) -> None:
    data = _with(field)
    rest, values = cut_weights(memoryview(data))
    expected, found = onnx.ModelProto.FromString(data), onnx.ModelProto.FromString(rest)
    assert values
    for place, stored in values.items():
        found.graph.initializer[place].raw_data = bytes(stored)
    assert found == expected


def test_a_graph_in_two_pieces_is_one() -> None:
    one, two = model(), model()
    del one.graph.initializer[3:], two.graph.initializer[:3]
    del two.graph.node[:]
    data = one.SerializeToString() + two.SerializeToString()
    rest, values = cut_weights(memoryview(data))
    found = onnx.ModelProto.FromString(rest)
    assert list(values) == [0, 1, 3, 4, 6]
    for place, stored in values.items():
        found.graph.initializer[place].raw_data = bytes(stored)
    assert found == onnx.ModelProto.FromString(data)


def outcome(read: Callable[[], onnx.ModelProto]) -> object:
    try:
        return read()
    except ModelError as error:
        return str(error)


def test_damaged_files_end_as_with_protobuf(tmp_path: Path) -> None:
    """Cut off, a byte changed, a byte more, a byte less: the same model, or the same refusal."""
    path, data, rng = tmp_path / "m.onnx", model().SerializeToString(), np.random.default_rng(1)
    values = {place: len(stored) for place, stored in cut_weights(memoryview(data))[1].items()}
    inside = len(data) - sum(values.values())
    refused = 0
    for step in range(400):
        at = int(rng.integers(len(data))) if step % 2 else int(rng.integers(inside)) % 300  # headers more often
        damaged = bytearray(data)
        if step % 4 == 0:
            del damaged[at]
        elif step % 4 == 1:
            del damaged[at:]
        elif step % 4 == 2:
            damaged[at] ^= 1 << int(rng.integers(8))
        else:
            damaged.insert(at, int(rng.integers(256)))
        path.write_bytes(damaged)
        expected = outcome(lambda: load_model(path)[0])
        refused += isinstance(expected, str)
        assert outcome(lambda: whole(path)) == expected, (step, at)
    assert 100 < refused < 400


def test_a_length_beyond_the_file_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for length in (2**31, 2**63 - 1, 2**64 - 1):
        path.write_bytes(bytes([7 << 3 | 2, *_varint(length), 5 << 3 | 2, *_varint(length)]) + bytes(LARGE))
        with pytest.raises(ModelError, match=r"is not an ONNX model|is cut off"):
            open_model(path)


def test_a_weight_of_another_size_than_its_shape_is_refused(tmp_path: Path) -> None:
    path, made = tmp_path / "m.onnx", chain(1, channels=32)
    weight = next(t for t in made.graph.initializer if len(t.dims) == 4)
    weight.raw_data = weight.raw_data[:-4]
    onnx.save(made, path)
    with pytest.raises(ModelError, match=rf"holds {len(weight.raw_data)} bytes instead of {len(weight.raw_data) + 4}"):
        translate(path)


# -------------------------------------------------------------------- in other files, and made again


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A network of wide layers whose weights lie beside it, some of them as codes already."""
    builder, tensor = Builder(), "input"
    for _ in range(3):
        tensor = builder.node("Relu", builder.conv_bn(tensor, 160, 160, 1))
    path = tmp_path / "wide.onnx"
    made = builder.model(tensor, [1, 160, 8, 8])
    weight = next(t for t in made.graph.initializer if len(t.dims) == 4)
    codes = np.random.default_rng(3).integers(-128, 128, (160, 160, 1, 1)).astype(np.int8)
    quantize = next(n for n in made.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == weight.name)
    for node in made.graph.node:
        if node.input[0] == quantize.output[0]:
            node.input[0] = weight.name
    made.graph.node.remove(quantize)
    weight.CopyFrom(numpy_helper.from_array(codes, weight.name))
    onnx.save_model(made, path, save_as_external_data=True, location="wide.data", size_threshold=1024)
    return path


def files(path: Path, folder: Path) -> dict[str, bytes]:
    translate(path).save(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_external_weights_are_those_of_the_message(external: Path) -> None:
    _, apart, source = open_model(external)
    assert source.external_data and len(apart) == 3
    message = {t.name: numpy_helper.to_array(t) for t in load_model(external)[0].graph.initializer}
    for name, weight in apart.items():
        np.testing.assert_array_equal(weight.array(), message[name])


def test_what_is_made_again_is_what_is_kept(external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes from the file a second time, weights from codes, folded or not: every file is the same, byte for byte."""
    usual = files(external, tmp_path / "usual")
    monkeypatch.setattr(weights, "MADE_LATER", 2**62)
    assert files(external, tmp_path / "at_once") == usual
    monkeypatch.setattr(weights, "MADE_LATER", 0)
    assert files(external, tmp_path / "again") == usual
    monkeypatch.setattr(qparams, "_AT_ONCE", 1000)
    assert files(external, tmp_path / "block by block") == usual
    translation = translate(external)
    made = [t for t in translation.graph.initializers.values() if isinstance(t, Weight) and callable(t.values)]
    assert len(made) == 3


@pytest.fixture
def usual(external: Path, tmp_path: Path) -> dict[str, bytes]:
    return files(external, tmp_path / "usual")


def test_a_file_for_each_tensor(external: Path, usual: dict[str, bytes], tmp_path: Path) -> None:
    apart = tmp_path / "apart" / external.name
    apart.parent.mkdir()
    onnx.save_model(
        onnx.load(external), apart, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=64
    )
    assert len(list(apart.parent.iterdir())) > 8
    made = files(apart, tmp_path / "made")
    assert made["wide_noqdq.onnx.data"] == usual["wide_noqdq.onnx.data"]


def wide_weights() -> onnx.ModelProto:
    """Wide layers, whose scales are max|w| / 127, too small (codes saturate, some are -128) or too large, for each channel or for all;
    one channel is zero, one has no positive weight, and a BatchNormalization turns some signs."""
    b, x = Builder(), "input"
    for place, factor in enumerate((1.0, 0.9, 1.3, 1.0, 0.8, 1.0)):
        x = b.node("Relu", b.conv_bn(x, 64, 64, 3))
        stored, scale, zero = (next(t for t in b.initializers if t.name == name) for name in b.nodes[-5].input)
        values = numpy_helper.to_array(stored).copy()
        values[3], values[5] = 0, -np.abs(values[5])
        stored.CopyFrom(numpy_helper.from_array(values, stored.name))
        scales = np.float32(factor) * numpy_helper.to_array(scale)
        if place in (3, 4):
            scales = scales.max()
            zero.CopyFrom(numpy_helper.from_array(np.int8(0), zero.name))
        scale.CopyFrom(numpy_helper.from_array(scales, scale.name))
        if place == 5:
            gamma = next(t for t in b.initializers if t.name == b.nodes[-2].input[1])
            turned = numpy_helper.to_array(gamma) * np.where(np.arange(64) % 7 == 2, -1, 1).astype(np.float32)
            gamma.CopyFrom(numpy_helper.from_array(turned, gamma.name))
    return b.model(x, [1, 64, 8, 8])


@pytest.mark.parametrize("external", [False, True])
def test_weights_in_blocks_and_as_a_whole_are_the_same(
    external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(wide_weights(), path, save_as_external_data=external, location="m.data", size_threshold=1024)
    usual, rows = files(path, tmp_path / "usual"), translate(path).weights
    assert {row.exact for row in rows} == {True, False} and any(row.saturated for row in rows)
    assert any(0 < row.full_channels < row.channels for row in rows)
    monkeypatch.setattr(qparams, "_AT_ONCE", 1000)
    assert files(path, tmp_path / "block by block") == usual
    monkeypatch.setattr(qparams, "_AT_ONCE", 2**62)
    assert files(path, tmp_path / "as a whole") == usual


def test_a_single_value_can_be_changed() -> None:
    here = np.array(3, np.float32)
    for values in (here, lambda: here):
        half = Weight("w", onnx.TensorProto.FLOAT, (), values).remade("h", lambda whole: whole / np.float32(2))
        assert half.array().tolist() == 1.5 and bytes(half.raw()) == np.float32(1.5).tobytes()


def test_a_weight_without_channels_is_refused_with_a_scale_for_each() -> None:
    nodes = (
        "q = QuantizeLinear (x, s, z)\nd = DequantizeLinear (q, s, z)\n"
        "wq = QuantizeLinear <axis = 0> (w, ws, wz)\nwd = DequantizeLinear <axis = 0> (wq, ws, wz)\ny = Conv (d, wd)"
    )
    arrays = {
        "s": np.float32(0.5),
        "z": np.int8(0),
        "w": np.float32(1.7),
        "ws": np.ones(2, np.float32),
        "wz": np.zeros(2, np.int8),
    }
    with pytest.raises(UnsupportedQuantizer, match=r"has 2 scales along axis 0 of shape \[\]"):
        translate(from_text(f"g (float[1,2,3,3] x) => (float[a,b,c,d] y) {{ {nodes} }}", **arrays))


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", "-1"), ("offset", "10**12"), ("length", "5"), ("length", "x"), ("location", "../wide.data"),
     ("location", "missing"), ("location", "."), ("location", "a\0b")],
)  # fmt: skip
def test_large_external_data_that_are_not_there_are_refused_at_once(key: str, value: str, external: Path) -> None:
    made = onnx.load(str(external), load_external_data=False)
    tensor = max(made.graph.initializer, key=lambda t: int(np.prod(t.dims)))
    next(entry for entry in tensor.external_data if entry.key == key).value = value
    external.write_bytes(made.SerializeToString())
    said = outcome(lambda: load_model(external)[0])
    assert isinstance(said, str) and f"ensor '{tensor.name}'" in said
    assert outcome(lambda: open_model(external)[0]) == said


def test_weights_that_are_handed_out_cannot_be_spoiled(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(chain(1, channels=32), path)
    graph = translate(path).graph
    for name in graph.initializers:
        values = graph.array(name)
        assert values is not None
        if values.flags.writeable:  # made for us
            values[...] = 0
            again = graph.array(name)
            assert again is not None and again.any()
