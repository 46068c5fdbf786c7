"""Equal function on real exporters' models: ONNX Runtime on the stripped and on the bypassed explicit model."""

from __future__ import annotations

import functools
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation import translator
from tests.conftest import OWN_MODELS, ZOO, need_shared, zoo_paths
from tests.explicit_reference import assert_equal_function, bypassed, in_float32, random_inputs, run
from tests.records import Case, cases, kept_records, model_of
from tests.small_models import translated as checked

MODELS = [*zoo_paths("mini/*.onnx"), *zoo_paths("edge/*.onnx")]
REFUSED = {
    "mlp__mo_fp32": "no QuantizeLinear",  # ModelOpt left this one alone: there is nothing to translate
    "no_qdq": "no QuantizeLinear",
    "float8_qdq": "float8_e4m3fn",
    "int16_qdq": "int16",
    "int4_blocked": "blocks",
    "nan_scale": "nan",
    "zero_scale": "scale 0",
    "q_dq_scale_mismatch": "Both must be equal",
    "scale_is_graph_input": "graph input 'x_scale'",
}
NEED_OPTION = {
    "brevnet_int8__brevitas": ("asymmetric", "widen"), "mlp__pt2e": ("asymmetric", "widen"),
    "mobilenet_v2__ort_u8": ("asymmetric", "widen"), "vit__ort_u8": ("asymmetric", "widen"),
    "nonzero_zp_int8": ("asymmetric", "widen"), "uint8_zp0_relu": ("asymmetric", "widen"),
    "q_two_inputs": ("asymmetric", "widen"), "per_channel_activation": ("per_channel_activations", "max"),
}  # fmt: skip
ALL_FLAGS = {
    "infer_concat_scales": True,
    "infer_mul_scales": True,
    "infer_average_pool_scales": True,
    "add_unary_ew_scales_for_dla": True,
}


def test_the_list_of_the_zoo_is_complete() -> None:
    need_shared(ZOO)
    found = {
        p
        for pattern in ("mini/*.onnx", "edge/*.onnx", "parsed_network/*.json", "reference_outputs/*/*")
        for p in ZOO.glob(pattern)
    }
    assert found == set(zoo_paths("*")) and len(MODELS) >= 99


def test_the_models_in_the_repository_are_those_of_the_zoo() -> None:
    own = sorted(OWN_MODELS.glob("*.onnx"))
    assert len(own) == 10 and sum(path.stat().st_size for path in own) < 600_000
    assert {path.name for path in own} <= {path.name for path in MODELS}


def options_for(path: Path, **more: object) -> TranslateOptions:
    extra = dict([NEED_OPTION[path.stem]]) if path.stem in NEED_OPTION else {}
    return TranslateOptions(**{**extra, **more})


@functools.lru_cache(maxsize=None)
def translated(path: Path) -> Translation:
    return translate(path, options_for(path))


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_equal_function(path: Path) -> None:
    path = need_shared(path)
    if "fp16" in path.stem and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24):
        pytest.skip(
            "this ONNX Runtime divides by half precision scales in half precision; the translator in float32 (Q12)"
        )
    explicit = onnx.load(path)
    translation = translated(path)
    stripped = translation.model
    assert not [n.op_type for n in stripped.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    onnx.checker.check_model(stripped, full_check=True)
    reference = bypassed(explicit)
    names = [v.name for v in stripped.graph.output]
    assert names == [v.name for v in explicit.graph.output]
    for seed in (0, 1):
        feed = random_inputs(reference, seed)
        assert_equal_function(run(in_float32(reference), feed, names), run(in_float32(stripped), feed, names))


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem in NEED_OPTION], ids=lambda p: p.stem)
def test_refused_without_its_option(path: Path) -> None:
    path = need_shared(path)
    option, value = NEED_OPTION[path.stem]
    with pytest.raises(UserError) as refusal:
        translate(path, as_is=True)
    assert f" {option} {value}" in str(refusal.value)


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem in REFUSED], ids=lambda p: p.stem)
def test_refused_with_a_reason(path: Path) -> None:
    path = need_shared(path)
    for asymmetric in ("error", "widen"):
        with pytest.raises(UserError) as refusal:
            translate(path, TranslateOptions(asymmetric=asymmetric))
        assert REFUSED[path.stem] in str(refusal.value)


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_scales_and_names(path: Path) -> None:
    """Every name in every file exists; scales are positive, normal, finite; rule S2; unique expressible node names."""
    flags = {**ALL_FLAGS, **({"infer_bounds": True, "infer_add_scales": True} if MODELS.index(path) % 2 else {})}
    path = need_shared(path)
    for translation in (translated(path), translator.translate(path, options_for(path, **flags))):
        graph = translation.model.graph
        tensors = {v.name for v in graph.input} | {o for n in graph.node for o in n.output}
        nodes = [n.name for n in graph.node]
        assert len(set(nodes)) == len(nodes) and all(nodes)
        assert not any(c in name for name in nodes for c in ",'*\n")
        assert set(translation.tensor_scales) <= tensors
        assert set(translation.fp16_nodes) <= set(nodes)
        assert len(set(translation.fp16_nodes)) == len(translation.fp16_nodes)
        assert translation.fp16_nodes == [n for n in nodes if n in set(translation.fp16_nodes)]
        outputs = {v.name for v in graph.output}
        for name, scale in translation.tensor_scales.items():
            assert np.finfo(np.float32).tiny <= scale < np.inf
            assert np.float32(scale) == scale
            if name in outputs:
                assert translation.scales[name].explicit
        assert translation.model.producer_name == "qdq-translator"


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_weight_codes_come_out_as_trained(path: Path) -> None:
    """Rule W1: every code of every channel that reaches +-127, by TensorRT's own rule; the rest is reported with its size."""
    translation = translated(need_shared(path))
    reported = {d.tensor for d in translation.diagnostics.of_rule("W1")}
    for row in translation.weights:
        assert row.full_reproduced in (None, 1.0), row
        assert row.exact or row.weight in reported
        assert row.largest_error <= 0.5 / 127 * 1.001  # never more than half a step of the channel's range
        if row.mixed_channels:
            assert "ConvTranspose" in row.node  # the exporters quantized it along its input channels


# ---------------------------------------------------------------- models of the records

BY_REFERENCE = (
    "f1_batchnorm_is_folded-[123]", "f1_batchnorm_is_folded-14", "f1_batchnorm_is_folded-27",
    "f1_batchnorm_is_folded-31", "f9_a_network_becomes_float32-3", "q1_initializers_listed*",
    "q10_pad_below*", "q12_what_stays*-1", "q12_bfloat16-1", "a_transpose_with_an_empty*-10",
)  # fmt: skip
"""ONNX Runtime's CPU lacks kernels for these with quantizers bypassed (double and half precision, bfloat16); ONNX's reference
has them."""
NO_RUNTIME = (
    "f7_a_slice_*nobody_knows*", "f7_reshape_of_one_unknown_size-0", "f9_a_network_becomes_float32-2",
    "f9_operators_outside_onnx*", "f11_group_normalization-3", "q6_uint8_image*", "q10_movement-4", "q10_movement-13",
    "q10_pad_constant*", "q12_what_stays*-2", "q12_a_pair_that*", "a_weight_of_one*", "f3_a_constant_that_is*",
)  # fmt: skip
"""Neither can run these with quantizers bypassed, or both round to half precision where the network does not."""
ANOTHER = (
    "c3_scores*-2", "f7_what_changes_something_stays-25", "f8_a_gemm_that_has_to_have_a_bias-2", "f9_bodies*",
    "f9_double_constants*", "f11_windows*any_size-[02]", "p1_small_rows*", "q1_inside_local*",
    "q1_missing_zero_point_is_uint8-2", "q1_output_dtype*", "q1_scale_behind*", "q10_movement-12", "q11_constants*",
    "q13_*", "s3_pad_with*", "s3_what_is_no_pass_through-3", "s14_a_worse_scale*", "uint8_weight*",
    "w2_float_weights*", "q7_codes_in_half*", "f1_not-1[12]", "f9_doubles*",
)  # fmt: skip
"""The reference does not bypass what these have (arithmetic, functions of the model, random values), or the function is another
one on purpose (codes of -128, quantizers read as INT8, rounded weights left in float, an output that becomes float32)."""


NEED_PYTHON_3_10 = ("f8_rms_normalization*", "f11_sizes*", "f11_what_reads*", "f11_windows*")


def small_ones() -> list[Case]:
    """The models of the tests of rules that are translated."""
    return [
        case
        for case in cases()
        if case.group in ("folding", "forms", "inference", "quantizers")
        and not any(fnmatch(case.name, name) for name in NO_RUNTIME + ANOTHER)
        and not kept_records(case.group)[case.name][0].startswith("refused")
    ]


def by_reference(model: onnx.ModelProto, feed: dict[str, np.ndarray], names: list[str]) -> list[np.ndarray]:
    return list(ReferenceEvaluator(model).run(names, feed))


@pytest.mark.parametrize("case", small_ones(), ids=str)
def test_small_models_compute_the_same(case: Case) -> None:
    """What a record says of nodes and weights computes what the model does."""
    if sys.version_info < (3, 10) and any(fnmatch(case.name, name) for name in NEED_PYTHON_3_10):
        pytest.skip("SKIPPED FOR LACK OF OPERATORS: the last onnxruntime of this Python cannot run the model")
    explicit, options = model_of(case), dict(case.options)
    options.pop("assume_scales", None)
    stripped = checked(explicit, **options).model
    feed, names = random_inputs(stripped, 3), [value.name for value in explicit.graph.output]
    compute = by_reference if any(fnmatch(case.name, name) for name in BY_REFERENCE) else run
    expected, actual = (compute(made, feed, names) for made in (bypassed(explicit), stripped))
    if not all(np.isfinite(values).all() for values in expected):
        feed = {name: (values * 0.01).astype(values.dtype) for name, values in feed.items()}
        expected, actual = (compute(made, feed, names) for made in (bypassed(explicit), stripped))
    assert_equal_function(expected, actual, 1e-5)
