"""Cures name tensors that the user's model has, not those that rewrites made."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import ORIN, graph, pair, weights
from tests.small_models import translated


@pytest.mark.parametrize(
    "body, arrays",
    [
        # D5: the classifier works on y_4d, and the layers around it on four dimensions
        ("f = Flatten (q)\nh = Gemm <transB = 1> (f, w1)\nr = Sin (h)\nk = Gemm <transB = 1> (r, w2)\ny = Relu (k)", {"w1": weights(1, 8, 12), "w2": weights(2, 5, 8)}),
        # D3: one Conv a part
        ("c = Conv (q, w)\na, b = Split <axis = 1> (c)\ne = Relu (a)\nk = Sin (b)\nm = Add (e, k)\ny = Relu (m)", {"w": weights(1, 4, 3, 1, 1)}),
        # D7: Scale, clipped Relu and product
        ("c = Sin (q)\nh = HardSwish (c)\nk = Exp (h)\ny = Relu (k)", {}),
    ],
    ids=["D5", "D3", "D7"],
)  # fmt: skip
def test_d5_d3_d7_cures_name_the_users_tensors(body: str, arrays: dict[str, np.ndarray]) -> None:
    explicit = graph(
        "float[1,3,2,2] x",
        "float[a,b,c,d] y" if "Gemm" not in body else "float[a,b] y",
        pair("x", "q") + body,
        **arrays,
    )
    own = {o for n in explicit.graph.node for o in n.output} | {"x"}
    t = translated(explicit, **ORIN, dla_rewrites="force")
    named = [cause.cure.split("'")[1] for cause in t.causes.causes if "quantize '" in cause.cure]
    assert named and set(named) <= own
    made = [cause for cause in t.causes.causes if cause.tensor not in own]
    assert all("in your model)" in cause.sentence for cause in made)
