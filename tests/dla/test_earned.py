"""Rule R1: a rewrite is applied only if its layers end on the DLA and the estimate, transitions priced, falls."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.planning import earned
from qdq_translator.targets.cost.estimate import END_ON_GPU, FURTHER_REGION, GPU_MACS
from qdq_translator.targets.settings import Settings, resolve
from qdq_translator.workflows.translator import Translation, translate
from tests.dla.check import ORIN, graph, pair, weights
from tests.small_models import model

CONV = "<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"


def total(translation: Translation) -> float:
    assert translation.costs is not None and translation.costs.total is not None
    return translation.costs.total


def of(explicit, **options) -> Translation:  # type: ignore[no-untyped-def]
    return translate(explicit, TranslateOptions(**{**ORIN, "dla_rewrites": True, **options}))


def test_a_layer_at_the_end_saves_half_a_region() -> None:
    """A Resize that takes less than two changes of devices, and more than the one that it saves."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}"
    body += 'y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (d, , , sizes)'
    arrays = {"w": weights(0, 96, 16, 3, 3), "sizes": np.array([1, 96, 100, 100], np.int64)}
    explicit = graph("float[1,16,32,32] x", "float[b,c,h,w] y", body, **arrays)
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert total(plain) < total(forced) < total(plain) + END_ON_GPU
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
    assert total(kept) == total(plain) < total(forced) - 1
    assert [a.rule for a in kept.rewrites.applied] == [] and [a.rule for a in forced.rewrites.applied] == ["D23"]
    told = next(d for d in kept.diagnostics if d.rule == "D23")
    assert told.data["milliseconds"] == [total(forced), total(kept)] and "force" in told.hint
    assert not forced.dla.fallbacks and "standalone loadable" in told.hint  # type: ignore[union-attr]
    left = kept.rewrites.left(kept.dla)[0]
    assert left.op == "Resize" and "faster" in left.why


def test_a_rewrite_that_saves_a_transition_stays() -> None:
    """Small images: the Convs take less than the way to the GPU and back."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}"
    body += 'm = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (d, , , sizes)\n'
    body += f"{pair('m', 'p')}y = Conv {CONV} (p, v)"
    arrays = {"w": weights(0, 16, 16, 3, 3), "sizes": np.array([1, 16, 50, 50], np.int64), "v": weights(1, 4, 16, 3, 3)}
    explicit = graph("float[1,16,32,32] x", "float[b,c,h,w] y", body, **arrays)
    plain, kept = of(explicit, dla_rewrites=False), of(explicit)
    assert [a.rule for a in kept.rewrites.applied] == ["D23"] and not kept.dla.fallbacks  # type: ignore[union-attr]
    assert total(kept) < total(plain) - FURTHER_REGION / 2


def test_a_rewrite_whose_conv_stays_on_the_gpu_is_left_out() -> None:
    """A Conv of which one row does not fit the buffer (limit C12): padding that is taken apart cures nothing."""
    body = f"{pair('x', 'q')}c = Conv <kernel_shape = [3, 3], pads = [0, 0, 2, 2]> (q, w)\ny = Relu (c)"
    explicit = graph("float[1,512,8,1000] x", "float[b,c,h,w] y", body, w=weights(0, 8, 512, 3, 3))
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert [a.rule for a in forced.rewrites.applied] == ["D13"]
    assert any(v.op == "Conv" for v in forced.dla.fallbacks)  # type: ignore[union-attr]
    assert not kept.rewrites.applied and total(kept) == total(plain)


def test_an_atrous_conv_whose_parts_have_no_scale_stays() -> None:
    """In two steps: both are taken back. The parts of its sums run in FP16."""
    body = f"{pair('x', 'q')}c = Conv <kernel_shape = [3, 3], pads = [12, 12, 12, 12], dilations = [12, 12]> (q, w)\ny = Relu (c)"
    explicit = graph("float[1,512,64,64] x", "float[b,c,h,w] y", body, w=weights(0, 64, 512, 3, 3))
    plain, kept, forced = of(explicit, dla_rewrites=False), of(explicit), of(explicit, dla_rewrites="force")
    assert [a.rule for a in forced.rewrites.applied] == ["D27", "D27"] and not forced.dla.fallbacks  # type: ignore[union-attr]
    assert not kept.rewrites.applied and total(kept) == total(plain) < total(forced) - 1


@pytest.mark.parametrize(("filters", "divided"), [(512, True), (4, False)])
def test_products_on_the_gpu_have_a_price(filters: int, divided: bool) -> None:
    """A Conv for which the DLA needs more than a transition: its 512 filters take the GPU as long. Of 4, the parts of sums are FP16."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}y = Relu (d)"
    explicit = graph("float[1,1024,8,200] x", "float[b,c,h,w] y", body, w=weights(0, filters, 1024, 3, 3))
    options = TranslateOptions(**{**ORIN, "dla_rewrites": True})
    plain, kept = of(explicit, dla_rewrites=False), translate(explicit, options, assume_scales=divided)
    assert plain.costs is not None
    assert plain.costs.between == pytest.approx(END_ON_GPU + 8 * 200 * 9 * 1024 * filters / GPU_MACS * 1e3)
    assert [a.rule for a in kept.rewrites.applied] == (["D27"] if divided else [])
    assert total(kept) <= total(plain)


def test_each_rule_earns_its_own_place() -> None:
    """A Conv in parts that is worth it, and a bilinear Resize behind it that is not."""
    body = f"{pair('x', 'q')}c = Conv {CONV} (q, w)\n{pair('c', 'd')}e = Conv <kernel_shape = [1, 1]> (d, v)\n{pair('e', 'f')}"
    body += (
        'm = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (f, , , sizes)\ny = Relu (m)'
    )
    arrays = {
        "w": weights(0, 512, 1024, 3, 3),
        "v": weights(1, 512, 512, 1, 1),
        "sizes": np.array([1, 512, 90, 450], np.int64),
    }
    explicit = graph("float[1,1024,8,200] x", "float[b,c,h,w] y", body, **arrays)
    options = TranslateOptions(**{**ORIN, "dla_rewrites": True})
    kept = translate(explicit, options, assume_scales=True)
    forced = translate(explicit, dataclasses.replace(options, dla_rewrites="force"), assume_scales=True)
    assert [a.rule for a in forced.rewrites.applied] == ["D27", "D23"]
    assert [a.rule for a in kept.rewrites.applied] == ["D27"] and total(kept) < total(forced)


def test_what_is_left_out_together_is_tried_again_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rewrites of a rule (QuartzNet's large kernels): without both is better than with both, and without one best."""
    whole = {"D27": {"a": "slow", "b": "slow"}}
    times = {"": 3.0, "ab": 2.0, "a": 2.5, "b": 1.5}

    def outcome(network: Any, settings: Settings) -> earned.Outcome:
        time = times["".join(sorted({node for row in settings.refuted.values() for node in row}))]
        return earned.Outcome(time, time, 0)

    monkeypatch.setattr(earned, "outcome", outcome)
    monkeypatch.setattr(earned, "_slow", lambda network, settings, most: {} if network else whole)
    monkeypatch.setattr(earned, "_all", lambda network: whole)
    settings = resolve(TranslateOptions(**ORIN), Diagnostics())  # type: ignore[arg-type]
    _, found, said = earned.faster({}, settings, Diagnostics(), {}, lambda settings, said: settings.refuted)  # type: ignore
    assert found.refuted == {"D27": {"b": "slow"}}
    assert [(told.rule, told.data["milliseconds"]) for told in said] == [("D27", [3.0, 1.5])]


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


@pytest.mark.parametrize(
    ("body", "price"),
    [
        ("y = Relu (x)", 0.0),
        ("a = Relu (x)\ny = Erf (a)", END_ON_GPU),
        ("a = Erf (x)\ny = Relu (a)", END_ON_GPU),
        ("a = Erf (x)\nb = Relu (a)\ny = Erf (b)", 2 * END_ON_GPU),
        ("a = Relu (x)\nb = Erf (a)\ny = Relu (b)", FURTHER_REGION),
        ("a = Relu (x)\nb = Erf (a)\nc = Relu (b)\nd = Erf (c)\ny = Relu (d)", 2 * FURTHER_REGION),
        ("a = Relu (x)\nb = Erf (a)\nc = Relu (b)\ny = Erf (c)", FURTHER_REGION + END_ON_GPU),
        ("y = Erf (x)", 0.0),
    ],
)
def test_what_transitions_cost(body: str, price: float) -> None:
    made = translate(
        model(f"g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{\n{body}\n}}"),
        TranslateOptions(**ORIN),
        assume_scales=True,
    )
    assert made.costs is not None and made.costs.between == pytest.approx(price)
    assert total(made) == (made.costs.milliseconds or 0) + made.costs.between
    assert made.report["cost"]["between_milliseconds"] == made.costs.between
