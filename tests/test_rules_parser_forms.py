"""Rules F10 and F11: forms that TensorRT's parser refuses, or makes many layers of, in one that computes the same."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.targets.parser_network import FORMS
from tests import rtx
from tests.conftest import SHARED, need_shared
from tests.explicit_reference import bypassed
from tests.parser_recordings import PLATFORMS
from tests.small_models import model, pair, run, same_function, translated

S: dict[str, Any] = {"s": np.float32(0.05), "z": np.int8(0)}
IMAGE = "float[1,4,6,8] x"


def between(body: str, output: str, opset: int, inputs: str = IMAGE, **arrays: Any) -> onnx.ModelProto:
    text = f"g ({inputs}) => ({output} y) {{ {pair('x', 'i')} {body} {pair('o', 'p')} y = Abs(p) }}"
    return model(text, opset=opset, ir=10 if opset > 18 else 8, **arrays, **S)


def node_of(t: Translation, op_type: str) -> onnx.NodeProto:
    return next(n for n in t.model.graph.node if n.op_type == op_type)


def attribute(node: onnx.NodeProto, key: str) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == key), None)


# ------------------------------------------------------------------ F10


def test_f10_static_slice_is_one_layer_in_tensorrt_rtx() -> None:
    explicit = between("o = Slice(i, b, e, a)", "float[1,2,6,8]", 13, b=np.array([1]), e=np.array([3]), a=np.array([1]))
    network = rtx.parse(translate(explicit, TranslateOptions(platform=rtx.PLATFORM)).model)
    assert [layer.kind for layer in network.layers] == ["SLICE", "UNARY"]
    before = rtx.parse(translate(explicit).model)
    assert len(before.layers) > 25


# ------------------------------------------------------------------ F11


def resize(attributes: str, factors: Any, *, roi: Any = None, sizes: Any = None) -> tuple[str, dict[str, Any]]:
    given = {"roi": roi, "f": factors, "n": sizes}
    arrays = {k: np.array(v, np.int64 if k == "n" else np.float32) for k, v in given.items() if v is not None}
    inputs = ", ".join(name if name in arrays else "" for name in given).rstrip(", ")
    return f"o = Resize<{attributes}>(i, {inputs})", arrays


@pytest.mark.parametrize(
    ("body", "arrays", "output", "opset", "word"),
    [
        (*resize('mode="linear", antialias=1', [1, 1, 0.5, 1]), "float[1,4,3,8]", 18, "antialias"),
        (*resize('keep_aspect_ratio_policy="not_larger", axes=[2,3]', None, sizes=[5, 40]), "float[1,4,5,7]", 18, "policy"),
        (*resize('mode="linear", coordinate_transformation_mode="half_pixel_symmetric"', [1, 1, 1.4, 1]), "float[1,4,8,8]", 19, "mode"),
        (
            *resize('coordinate_transformation_mode="tf_crop_and_resize"', [1, 1, 2, 2], roi=[0, 0, 0.5, 0, 1, 1, 1, 1]),
            "float[1,4,12,16]",
            13,
            "coordinate",
        ),
        (
            *resize('coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="ceil"', [1, 1, 2, 2], roi=[]),
            "float[1,4,12,16]",
            11,
            "round_prefer_floor",
        ),
        ("o = LpPool<kernel_shape=[2,2], p=3>(i)", {}, "float[1,4,5,7]", 13, "LpPool"),
        ("o = AveragePool<kernel_shape=[2,2], dilations=[2,2]>(i)", {}, "float[1,4,4,6]", 19, "dilations"),
        (
            "m, k = MaxPool<kernel_shape=[2,2]>(i) f = Cast<to=1>(k) o = Add(m, f)",
            {},
            "float[1,4,5,7]",
            13,
            "indices",
        ),
        (
            "o, m, v = BatchNormalization<training_mode=1>(i, g, b, b, g)",
            {"g": np.ones(4, np.float32), "b": np.zeros(4, np.float32)},
            IMAGE.split()[0],
            15,
            "training mode",
        ),
    ],
)  # fmt: skip
def test_f11_what_has_no_equal_form_is_refused(
    body: str, arrays: dict[str, Any], output: str, opset: int, word: str
) -> None:
    with pytest.raises(UserError) as refusal:
        translate(between(body, output, opset, **arrays), TranslateOptions(platform="jetpack-6.2"))
    assert word in refusal.value.what and "(node '" in refusal.value.what and refusal.value.hint


# ------------------------------------------------------------------ against what the parsers said

NO_STATIC_CHECK = ("Plugin not found", "plugin was not found", "crash (abort", "Internal Error")
IGNORED_THERE = {"resize_antialias", "resize_aspect"}
"""Forms of opset 18 whose new attribute the parsers 8.5 and 8.6 do not read: they accept the node and compute something else."""


@pytest.mark.parametrize("version", PLATFORMS)
def test_f11_every_recorded_form(version: str, tmp_path: Path) -> None:
    """A form that a parser refused is refused by us too, or was rewritten so that TensorRT-RTX's parser reads it."""
    folder = need_shared(SHARED / "parsers" / "operator_forms")
    rtx.bindings()
    subprocess.run([sys.executable, str(folder / "make.py")], cwd=tmp_path, check=True, capture_output=True)
    refused = 0
    for name, results in json.loads((folder / "results.json").read_text()).items():
        result = results[version]
        if any(word in result["error"] for word in NO_STATIC_CHECK):
            continue
        try:
            t = translate(tmp_path / f"{name}.onnx", TranslateOptions(platform=PLATFORMS[version]))
        except UserError as error:
            assert not result["parser"] or (version in ("8.5", "8.6") and name in IGNORED_THERE), (name, error)
            refused += 1
            continue
        if not result["parser"]:
            assert t.diagnostics.of_rule("F11") or name == "conv_dynw"
            assert rtx.parse(t.model).errors == (), name
    assert refused >= 6


def test_f11_each_row_of_the_table_has_a_remedy() -> None:
    assert all(form.remedy.startswith("Export") and form.what for form in FORMS)


# ------------------------------------------------------------------ windows that begin behind the input


@pytest.mark.parametrize("opset", [13, 22])
@pytest.mark.skipif(
    sys.version_info < (3, 10),
    reason="SKIPPED FOR LACK OF OPERATORS: the last onnxruntime of this Python cannot run the model",
)
def test_f11_windows_behind_the_input(opset: int) -> None:
    """Wherever TensorRT would count one window more than ONNX; the same function, and ONNX's shape inference agrees with it."""
    rewritten = 0
    for size, kernel, stride, pads in itertools.product(
        (7, 8, 11), (1, 2, 3), (2, 3, 4), ([0] * 4, [1, 1, 1, 1], [0, 0, 1, 1])
    ):
        if max(pads) >= kernel:
            continue
        pool = f"MaxPool<kernel_shape=[{kernel},{kernel}],strides=[{stride},{stride}],pads={pads},ceil_mode=1>"
        text = f"g (float[1,2,{size},{size}] x) => (float[1,2,n,k] y) {{ {pair('x', 'i')} y = {pool}(i) }}"
        explicit = model(text, opset=opset, ir=10 if opset > 18 else 8, **S)
        t = same_function(explicit, platform="jetpack-6.2")
        begin, end = pads[0], pads[2]
        windows = -(-(size + begin + end - kernel) // stride) + 1
        disputed = (windows - 1) * stride >= size + begin
        assert bool(t.diagnostics.of_rule("F11")) == disputed
        if disputed:
            rewritten += 1
            inferred = onnx.shape_inference.infer_shapes(t.model).graph.output[0].type.tensor_type.shape
            assert [d.dim_value for d in inferred.dim][2:] == [windows - 1] * 2
    assert rewritten > 10


@pytest.mark.parametrize(("kernel", "stride", "pads"), [(1, 3, [0] * 4), (2, 4, [1] * 4), (3, 2, [1, 0, 2, 0])])
@pytest.mark.skipif(
    sys.version_info < (3, 10),
    reason="SKIPPED FOR LACK OF OPERATORS: the last onnxruntime of this Python cannot run the model",
)
def test_f11_windows_behind_an_input_of_any_size(kernel: int, stride: int, pads: list[int]) -> None:
    """Height and width are open: the padding gives ONNX's number of windows for each size."""
    pool = f"MaxPool<kernel_shape=[{kernel},3],strides=[{stride},2],pads={pads},ceil_mode=1>"
    explicit = model(f"g (float[1,2,h,w] x) => (float[1,2,n,k] y) {{ {pair('x', 'i')} y = {pool}(i) }}", opset=13, **S)
    t = translated(explicit, platform="jetpack-6.2")
    (found,) = t.diagnostics.of_rule("F11")
    assert found.data["nodes"] == [node_of(t, "MaxPool").name] and attribute(node_of(t, "MaxPool"), "ceil_mode") is None
    for size in range(4, 14):
        x = np.random.default_rng(size).uniform(-1, 1, (1, 2, size, size + 1)).astype(np.float32)
        (want,), (got,) = run(bypassed(explicit), {"x": x}, ["y"]), run(t.model, {"x": x}, ["y"])
        assert np.array_equal(want, got), size
