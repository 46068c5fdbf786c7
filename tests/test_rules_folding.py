"""Rule F6: what opset 17 cannot express is refused. Records hold what rules F1 to F6 fold and lower."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from tests.small_models import model, pair

S = {"s": np.float32(0.05), "z": np.int8(0)}


# ------------------------------------------------------------------ F6: opset 17 for TensorRT 8


@pytest.mark.parametrize("call, x, opset, word", [
    ("CenterCropPad<axes=[2,3]>(d, pads2)", "1,2,4,4", 18, "CenterCropPad"),
    ('Resize<mode="linear", antialias=1>(d, , k3)', "1,2,4,4", 18, "antialias"),
    ('Resize<mode="linear", axes=[2,3]>(d, , k2)', "1,2,4,4", 18, "axes"),
    ('Resize<mode="linear", coordinate_transformation_mode="half_pixel_symmetric">(d, , k3)', "1,2,4,4", 19, "coordinate"),
    ('Pad<mode="wrap">(d, pads)', "1,2,4,4", 19, "mode"),
    ("Pad(d, pads2, , moving)", "1,2,4,4", 18, "input 4"),
    ("ReduceMean(d, moving)", "1,2,4,4", 18, "input 2"),
    ("ReduceMean<noop_with_empty_axes=1>(d)", "1,2,4,4", 18, "noop"),
    ("DFT(d)", "1,4,4,1", 20, "axis"),
    ('ScatterElements<reduction="max">(d, idx, d)', "1,2,4,4", 18, "reduction"),
    ("AveragePool<kernel_shape=[2,2], dilations=[2,2]>(d)", "1,2,4,4", 19, "dilations"),
    ("Split<axis=1, num_outputs=3>(d)", "1,m,4,4", 18, "num_outputs"),
])  # fmt: skip
def test_f6_refused_where_not_exact(call: str, x: str, opset: int, word: str) -> None:
    left = "y, o1, o2" if "Split" in call else "y"
    text = f"g (float[{x}] x, int64[1] moving, int64[1,2,4,4] idx, float[1,4,4,2] grid) => (float y) {{ {pair('x', 'd')} {left} = {call} }}"
    explicit = model(text, opset=opset, ir=9 if opset > 18 else 8, k=np.array([1, 1, 2, 2], np.float32), k2=np.array([2, 2], np.float32), k3=np.array([1, 1, 0.6, 0.6], np.float32),
                     pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]), pads2=np.array([1, 1]), **S)  # fmt: skip
    with pytest.raises(UserError, match=word) as refusal:
        translate(explicit, TranslateOptions(platform="jetpack-6.0"))
    assert "opset 17" in str(refusal.value) and call.split("(")[0].split("<")[0] in str(refusal.value)
