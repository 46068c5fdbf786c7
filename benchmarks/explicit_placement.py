"""ModelOpt's own placement for a DLA (`target_dla`, as in the zoo) against that of `explicit`: pairs, layers that TensorRT-RTX's parser
makes, and SQNR of the outputs against the network without quantizers, on one random input. Same scales, FP32 form.

`python -m benchmarks.explicit_placement` prints the table of docs/tables/tensorrt11.md. The networks have random weights.
"""

from __future__ import annotations

import numpy as np
import onnx

from qdq_translator import TranslateOptions
from qdq_translator.translation.explicit import ExplicitOptions, explicit
from tests import rtx
from tests.conftest import ZOO
from tests.explicit_reference import bypassed, random_inputs, run

HOW = ExplicitOptions("fp32", allow_fp16=True)


def row(model: onnx.ModelProto, feeds: dict[str, np.ndarray], wanted: list[np.ndarray]) -> str:
    """Pairs, layers and the lowest SQNR of an output in dB."""
    pairs = sum(node.op_type == "QuantizeLinear" for node in model.graph.node)
    worst = np.inf
    for reference, got in zip(wanted, run(model, feeds)):
        error = np.square(reference - got.reshape(reference.shape)).sum()
        worst = min(worst, 10 * np.log10(np.square(reference).sum() / max(error, 1e-30)))
    return f"{pairs} | {len(rtx.parse(model).layers)} | {worst:.1f}"


def main() -> None:
    print(
        "| network | ModelOpt: pairs | layers | dB | explicit, DLA: pairs | layers | dB | explicit, GPU: pairs | layers | dB |"
    )
    print(f"| --- {'| ---: ' * 9}|")
    for path in sorted((ZOO / "mini").glob("*__mo_dla_fp32.onnx")):
        given = onnx.load(path)
        feeds = random_inputs(given, 1)
        wanted = run(bypassed(given), feeds)
        cells = [row(given, feeds, wanted)]
        for preset in ("dla", "gpu"):
            options = TranslateOptions(preset=preset, infer_average_pool_scales=True)
            cells.append(row(explicit(path, options, HOW).model, feeds, wanted))
        print(f"| {path.stem.partition('__')[0]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
