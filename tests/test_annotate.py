"""`--annotate`: metadata for viewers, and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path

import onnx
from onnx import parser

from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.translation.passes import annotate
from qdq_translator.translation.passes.annotate import PREFIX

MODEL = """
<ir_version: {ir}, opset_import: ["" : {opset}]>
network (float[1,3,8,8] image) => (float[1,4,8,8] result)
<float s1 = {{0.02}}, float s2 = {{0.05}}, int8 z = {{0}}, float[4,3,1,1] weight = {{{first}}}, float[4,4,1,1] weight2 = {{{second}}}>
{{
   q1 = QuantizeLinear (image, s1, z)
   d1 = DequantizeLinear (q1, s1, z)
   made = Conv <kernel_shape = [1, 1]> (d1, weight)
   clipped = Relu (made)
   q2 = QuantizeLinear (clipped, s2, z)
   d2 = DequantizeLinear (q2, s2, z)
   result = Conv <kernel_shape = [1, 1]> (d2, weight2)
}}
"""


def model(ir: int = 10, opset: int = 17) -> onnx.ModelProto:
    first, second = (", ".join(str(i / 100) for i in range(1, count + 1)) for count in (12, 16))
    return parser.parse_model(MODEL.format(ir=ir, opset=opset, first=first, second=second))


def props(proto: onnx.NodeProto | onnx.ValueInfoProto) -> dict[str, str]:
    return {p.key: p.value for p in proto.metadata_props}


def without_annotations(proto: onnx.ModelProto, plain: onnx.ModelProto) -> onnx.ModelProto:
    """Takes our properties away, and the value infos that were only added to carry them."""
    proto = copy.deepcopy(proto)
    known = {v.name for v in plain.graph.value_info}
    for item in (*proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        kept = [p for p in item.metadata_props if not p.key.startswith(PREFIX)]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    infos = [v for v in proto.graph.value_info if v.name in known]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(infos)
    return proto


def test_everything_else_is_unchanged() -> None:
    source = model()
    source.graph.node[2].metadata_props.add(key="pkg.torch.name", value="conv1")
    plain = translate(source, TranslateOptions()).model
    noted = translate(source, TranslateOptions(annotate=True)).model
    assert noted.SerializeToString(deterministic=True) != plain.SerializeToString(deterministic=True)
    assert without_annotations(noted, plain) == plain
    conv = next(n for n in noted.graph.node if n.output[0] == "made")
    assert props(conv)["pkg.torch.name"] == "conv1"


def test_an_earlier_ir_version_is_left_alone_and_annotated_in_a_file_of_its_own(tmp_path: Path) -> None:
    plain = translate(model(ir=8), TranslateOptions()).model
    done = translate(model(ir=8), TranslateOptions(annotate=True), "net")
    assert done.model.SerializeToString(deterministic=True) == plain.SerializeToString(deterministic=True)
    (note,) = done.diagnostics.of_rule("A1")
    assert note.severity == "info"
    assert "IR version 8" in note.message and "_annotated.onnx" in note.hint
    files = done.save(tmp_path)
    noted, written = onnx.load(files.annotated), onnx.load(files.model)
    onnx.checker.check_model(noted, full_check=True)
    assert (written.ir_version, noted.ir_version) == (8, 10)
    in_place = translate(model(ir=10), TranslateOptions(annotate=True), "net").model
    assert [props(n) for n in noted.graph.node] == [props(n) for n in in_place.graph.node]
    assert {v.name: props(v) for v in noted.graph.input} == {v.name: props(v) for v in in_place.graph.input}
    noted.ir_version = 8
    assert without_annotations(noted, written) == written


def test_the_file_of_its_own_reads_the_same_external_weights(tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    loaded = onnx.load(EXAMPLE_MODEL)
    assert loaded.ir_version < annotate.FIRST_IR_VERSION
    onnx.save(loaded, source, save_as_external_data=True, size_threshold=0, location="net.data")
    plain = translate(source, TranslateOptions()).save(tmp_path / "plain")
    files = translate(source, TranslateOptions(annotate=True)).save(tmp_path / "noted")
    assert files.model_data.read_bytes() == plain.model_data.read_bytes()
    noted, written = onnx.load(files.annotated), onnx.load(files.model)
    assert list(noted.graph.initializer) == list(written.graph.initializer) and written.graph.initializer
