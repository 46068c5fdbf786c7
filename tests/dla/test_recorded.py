"""Every rewrite that a record holds computes what the network without it does, in float and in the simulated INT8 engine."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.passes.pipeline import PIPELINE
from tests.dla.check import decibels, feed_of, same
from tests.records import Case, cases, kept_records, model_of

REFUSED = ("dense-not_with_unknown_channels-1", "resize-case_2-1", "resize-case_2-2")
"""TensorRT's parser refuses the network without its rewrites, or ONNX Runtime a size of 1 where another is meant."""
ROUNDED = (
    "chains-case_4_windows*", "channels_last-a_bias*", "channels_last-case_2_*", "corners-d18_*", "corners-d7_*",
    "hard_activations-case_[2467]*", "hard_activations-cases_4*", "kernel_parts-*", "linear_axis-case_1_by*",
    "linear_axis-case_1_cubic*", "linear_axis-cases_1_and_8*", "linear_axis-case_6_poolings*",
    "norms-not_other_quotients-0", "one_dimension-case_4*-1", "products-case_1-[12]", "products-case_1-1[5-9]",
    "products-case_1-2[3-7]", "random_networks-*-23", "random_networks-*-6", "resize-case_3-[2567]",
    "spatial_mean-case_3_*", "spatial_mean-case_4_sums*", "spatial_mean-case_5_*", "spatial_mean-not-7",
    "split_conv-case_1-1*", "split_conv-case_1-2*", "split_conv-case_2_more*", "split_conv-constants*",
    "split_conv-what*",
)  # fmt: skip
"""Sums in parts, and what is exact in float alone: other codes where a part is rounded. Or nothing that both engines hold."""


def rewritten() -> list[Case]:
    """The cases whose network a rule has rewritten, but for those with other dimensions at the ends (test_tails.py)."""
    return [
        case
        for case in cases()
        if case.group in ("unpriced", "rewrites")
        and case.options.get("dla_rewrites")
        and not {"dla_output", "assume_scales"} & case.options.keys()
        and case.name not in REFUSED
        and any(line.startswith("rewritten") for line in kept_records(case.group)[case.name])
    ]


@pytest.mark.parametrize("case", rewritten(), ids=str)
def test_every_recorded_rewrite_computes_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bits: every tensor that the simulated INT8 engine holds as codes has the same ones."""
    explicit, options = model_of(case), dict(case.options)
    if any(node.op_type == "RMSNormalization" for node in explicit.graph.node):
        # no parser has it: rule F8 writes it in parts
        monkeypatch.setattr(pipeline, "PIPELINE", PIPELINE)
    given = [value.type.tensor_type.shape.dim for value in explicit.graph.input]
    batch = "N" if all(sizes and sizes[0].dim_param for sizes in given) else "1"
    del options["dla_rewrites"]
    bits = not any(fnmatch(case.name, name) for name in ROUNDED)
    found = same(explicit, batch, bits=bits, **options)
    if case.name.startswith("norms-case"):
        assert decibels(found.rewritten, feed_of(found.rewritten, batch, 1), fp16=True) > 55
