"""How far an implicit INT8 network is from its float, and how far the Q/DQ network is that it came from.

    python -m benchmarks.decibels [--write]

SQNR in dB of the worst output on 16 samples that nothing was calibrated on, simulated: the Q/DQ model as given, its translation with the
inference rules of `--preset gpu`, and for float models the calibrated network without and with `--equalize`, for the GPU and for Orin's DLA. The reference of a Q/DQ model is the
same network without the rounding of its activations. `--write` puts the table into docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, Iterator, Optional

import onnx

from benchmarks.dla_rewrites import page
from benchmarks.verdict import Case, cases
from qdq_translator import TranslateOptions, translate
from qdq_translator.ir.io import load_model
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import Samples, input_specs, load_samples
from qdq_translator.simulate.metrics import Comparison
from qdq_translator.simulate.reference import float_twin
from qdq_translator.simulate.run import CodedEnds, ExplicitNetwork, Session

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
TARGETS: dict[str, dict[str, Any]] = {
    "GPU": {"target": "gpu"},
    "Orin DLA": {"target": "orin-dla", "platform": "jetpack-6.2"},
}
HEAD = (
    "| network | target | Q/DQ model | translated or calibrated | equalized |",
    "| --- | --- | ---: | ---: | ---: |",
)


def distance(reference: onnx.ModelProto, other: onnx.ModelProto, samples: Samples, ends: Optional[CodedEnds]) -> float:
    """SQNR in dB of the worst output. ends: of `other`, if it is a Q/DQ model."""
    sessions = [Session(one, "compared", one_thread=True) for one in (reference, other)]
    rows: dict[str, Comparison] = {}
    for feed in samples:
        wanted = sessions[0].run(feed)
        found = sessions[1].run(feed) if ends is None else ends.real(sessions[1].run(ends.feed(feed)))
        for name, values in wanted.items():
            rows.setdefault(name, Comparison()).add(values, found[name].reshape(values.shape))
    return min(row.sqnr_db for row in rows.values())


def implicit(case: Case, **options: Any) -> tuple[ImplicitNetwork, onnx.ModelProto]:
    network = ImplicitNetwork.of(translate(case.model, TranslateOptions(**options)))
    on_dla = options["target"] != "gpu"
    return network, simulate(network, SimulationOptions(sigmoid_fp16=on_dla)).model


def lines(chosen: list[Case]) -> Iterator[str]:
    for case in chosen:
        kept = {key: value for key, value in case.options.items() if key in ("calibrate", "shapes")}
        explicit = ExplicitNetwork.of(load_model(case.model)[0])
        trained = not kept.get("calibrate")
        for target, options in TARGETS.items():
            inferred = {"preset": "gpu"} if trained else {}
            network, model = implicit(case, **kept, **options, **inferred)
            samples = load_samples(case.inputs, input_specs(network.model, {}), 16)
            reference = float_twin(explicit) if trained else network.model
            cells = [f"{distance(reference, explicit.model, samples, explicit.ends):.1f}" if trained else ""]
            cells.append(f"{distance(reference, model, samples, None):.1f}")
            if not trained:
                _, equal = implicit(case, **kept, **options, equalize=True)
                cells.append(f"{distance(reference, equal, samples, None):.1f}")
            yield "| " + " | ".join([case.name, target, *cells, *[""] * (3 - len(cells))]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = [*HEAD, *lines(cases(Path(folder)))]
    print("\n".join(table))
    if asked.write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "decibels", "\n".join(table) + "\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
