"""Rule R1: a rewrite is applied only if its layers end on the DLA and the estimate, transitions priced, falls."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.lab.laboratory import translate
from qdq_translator.translation.targets.cost.gpu import HIGH, START, gpu_model
from qdq_translator.translation.translator import Translation
from tests.dla.check import ORIN, graph, pair, weights
from tests.small_models import model

CONV = "<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"


def total(translation: Translation) -> float:
    """Milliseconds at the high end."""
    assert translation.costs is not None and translation.costs.ends is not None
    return translation.costs.ends[1]


def of(explicit, **options) -> Translation:  # type: ignore[no-untyped-def]
    return translate(explicit, TranslateOptions(**{**ORIN, "dla_rewrites": True, **options}))


def test_a_layer_at_the_end_saves_half_a_region() -> None:
    """A Resize that takes less than two changes of devices, and more than the one that it saves."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}"
    body += 'y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (d, , , sizes)'
    arrays = {"w": weights(0, 96, 16, 3, 3), "sizes": np.array([1, 96, 100, 100], np.int64)}
    explicit = graph("float[1,16,32,32] x", "float[b,c,h,w] y", body, **arrays)
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert total(plain) < total(forced) < total(plain) + HIGH
    assert not kept.rewrites.applied and total(kept) == total(plain)


def resized(middle: bool):  # type: ignore[no-untyped-def]
    """A bilinear Resize by a factor that the DLA does not have, without a scale behind it: 512 channels of 64 x 64."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}"
    body += 'm = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (d, , , sizes)\n'
    body += f"y = Conv {CONV} (m, v)" if middle else "y = Relu (m)"
    arrays = {"w": weights(0, 512, 16, 3, 3), "sizes": np.array([1, 512, 150, 150], np.int64)}
    arrays.update({"v": weights(1, 4, 512, 3, 3)} if middle else {})
    return graph("float[1,16,32,32] x", "float[b,c,h,w] y", body, **arrays)


def test_a_rewrite_that_costs_more_than_a_transition_is_an_offer() -> None:
    explicit = resized(middle=False)
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert total(kept) <= total(plain) < total(forced) - 1
    assert [a.rule for a in kept.rewrites.applied] == [] and [a.rule for a in forced.rewrites.applied] == ["D23"]
    told = next(d for d in kept.diagnostics if d.rule == "D23")
    assert "faster on the GPU" in told.message and "force" in told.hint
    assert not forced.dla.fallbacks  # type: ignore[union-attr]
    left = {one.op: one.why for one in kept.rewrites.left(kept.dla)}
    assert "faster" in left["Resize"]


def test_a_layer_of_a_rewrite_that_is_left_out_can_be_kept() -> None:
    """A report may name it that was made with other precisions; what the rewrite would replace stays above INT8 then."""
    explicit = resized(middle=False)
    made = [node.name for one in of(explicit, dla_rewrites="force").rewrites.applied for node, _ in one.after]
    plain, kept = of(explicit), of(explicit, keep_fp16=["Resize_m"])
    assert len(made) == 5 and {node.name for node in plain.graph.nodes} & set(made) == {"Resize_m"}
    assert kept.plan != plain.plan
    for name in made:
        assert of(explicit, keep_fp16=[name]).plan == kept.plan


def test_a_rewrite_that_saves_a_transition_stays() -> None:
    """Small images: the Convs take less than the way to the GPU and back."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}"
    body += 'm = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (d, , , sizes)\n'
    body += f"{pair('m', 'p')}y = Conv {CONV} (p, v)"
    arrays = {"w": weights(0, 16, 16, 3, 3), "sizes": np.array([1, 16, 50, 50], np.int64), "v": weights(1, 4, 16, 3, 3)}
    explicit = graph("float[1,16,32,32] x", "float[b,c,h,w] y", body, **arrays)
    plain, kept = of(explicit, dla_rewrites=False), of(explicit)
    assert [a.rule for a in kept.rewrites.applied] == ["D23"] and not kept.dla.fallbacks  # type: ignore[union-attr]
    assert total(kept) < total(plain) - HIGH


def test_a_rewrite_whose_conv_stays_on_the_gpu_is_left_out() -> None:
    """A Conv of which one row does not fit the buffer (limit C12): padding that is taken apart cures nothing."""
    body = f"{pair('x', 'q')}c = Conv <kernel_shape = [3, 3], pads = [0, 0, 2, 2]> (q, w)\ny = Relu (c)"
    explicit = graph("float[1,512,8,1000] x", "float[b,c,h,w] y", body, w=weights(0, 8, 512, 3, 3))
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert [a.rule for a in forced.rewrites.applied] == ["D13"]
    assert any(v.op == "Conv" for v in forced.dla.fallbacks)  # type: ignore[union-attr]
    assert not kept.rewrites.applied and total(kept) <= total(plain)


def test_an_atrous_conv_whose_parts_have_no_scale_stays() -> None:
    """In two steps, of which none makes it slower. The parts of its sums run in FP16."""
    body = f"{pair('x', 'q')}c = Conv <kernel_shape = [3, 3], pads = [12, 12, 12, 12], dilations = [12, 12]> (q, w)\ny = Relu (c)"
    explicit = graph("float[1,512,64,64] x", "float[b,c,h,w] y", body, w=weights(0, 64, 512, 3, 3))
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert [a.rule for a in forced.rewrites.applied] == ["D27", "D27"] and not forced.dla.fallbacks  # type: ignore[union-attr]
    assert total(kept) <= total(plain) + 0.05 < total(forced) - 1


@pytest.mark.parametrize("filters", [512, 4])
def test_products_on_the_gpu_have_a_price(filters: int) -> None:
    """A Conv in parts takes the DLA longer than the Conv itself and a transition take the GPU."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}y = Relu (d)"
    explicit = graph("float[1,1024,8,200] x", "float[b,c,h,w] y", body, w=weights(0, filters, 1024, 3, 3))
    plain, kept = of(explicit, dla_rewrites=False), of(explicit)
    assert plain.costs is not None
    assert plain.costs.gpu > 8 * 200 * 9 * 1024 * filters / 25e12 * 1e3
    assert total(kept) <= total(plain) + 0.05


@pytest.mark.parametrize("shape", ["float[b,c,h,w]", "float[1,1,480,480]"])
def test_a_slice_at_the_end_has_a_size(shape: str) -> None:
    """FSRCNN's deconvolution, as one that is cut (rule D21), takes longer than the way to the GPU; ONNX's own inference is not asked
    for the size of a Slice."""
    attributes = "kernel_shape = [9, 9], strides = [4, 4], pads = [4, 4, 4, 4], output_padding = [3, 3]"
    body = f"{pair('x', 'q')}c = Relu (q)\n{pair('c', 'd')}y = ConvTranspose <{attributes}> (d, w)"
    explicit = graph("float[1,56,120,120] x", f"{shape} y", body, w=weights(0, 56, 1, 9, 9))
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert [a.rule for a in forced.rewrites.applied] == ["D21"] and not kept.rewrites.applied
    assert total(kept) == total(plain) < total(forced) - 1


@pytest.mark.parametrize(("body", "tensors"), [
    ("y = Relu (x)", 0),
    ("a = Relu (x)\ny = Erf (a)", 1),
    ("a = Erf (x)\ny = Relu (a)", 1),
    ("a = Relu (x)\nb = Erf (a)\ny = Relu (b)", 2),
    ("a = Relu (x)\nb = Erf (a)\nc = Erf (a)\nd = Add (b, c)\ny = Relu (d)", 3),
    ("a = Relu (x)\nb = Erf (a)\nc = Add (a, x)\ny = Sub (b, c)", 2),
    ("y = Erf (x)", 0),
])  # fmt: skip
def test_what_transitions_cost(body: str, tensors: int) -> None:
    """Every tensor that another device reads is converted once; at the high end a region begins once and ends once."""
    made = translate(
        model(f"g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{\n{body}\n}}"),
        TranslateOptions(**ORIN),
        assume_scales=True,
    )
    costs = made.costs
    assert costs is not None and costs.ends is not None
    size = (4 + 16) * 64 * 2  # read as it is, written with 16 channels, in FP16
    low, high = costs.transitions
    assert low == pytest.approx(tensors * (START + size / gpu_model().fp16.bytes_per_second * 1e3))
    assert high == pytest.approx(low + min(tensors, 2) * (HIGH - START))
    assert costs.ends == pytest.approx(
        ((costs.milliseconds or 0) + costs.gpu + low, (costs.milliseconds or 0) + costs.gpu + high)
    )
    row = made.rows.cost
    assert row is not None and (row.total_milliseconds, row.total_high_milliseconds) == costs.ends
    assert (row.gpu_milliseconds, row.transition_milliseconds) == (costs.gpu, low)
    assert row.all_gpu_milliseconds and row.all_gpu_fp16_milliseconds
