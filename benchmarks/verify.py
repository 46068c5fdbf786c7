"""How long `verify` takes, against ONNX Runtime's own time for the two models it runs; and what the digests in the
report cost a translation.

    python -m benchmarks.verify             # ResNet-50 (100 MB), 8 samples
    python -m benchmarks.verify --samples 32 --network mobilenet_v2
    python -m benchmarks.verify --samples 32 --sensitivity    # against one pass of the simulated engine

The baseline loads the explicit and the stripped model from their files and runs them on the same samples, once with ONNX
Runtime's default optimizations and once, as verify does, without; its threads do not spin, as in verify. Processor time of one
process, the least of the repeats: on a machine that does other things as well, wall time says little. All take turns, and a ratio is
the median of those of each turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import onnxruntime

from benchmarks import networks
from benchmarks.measure import machine
from qdq_translator import translate
from qdq_translator.commands.verify import Options
from qdq_translator.core.formats.verify_rows import Sensitivity
from qdq_translator.lab.simulate.account import Account, Judge, account
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.lab.simulate.sensitivity import measure_sensitivity
from qdq_translator.lab.verification import verify
from qdq_translator.translation.files.integrity import contents


def best(action: Callable[[], object], repeats: int) -> float:
    """Seconds of processor time of the run that took least."""
    return min(in_turn({"": action}, repeats)[""])


def in_turn(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of processor time of each run. All take their turn before one comes again, so that another load hits all of them."""
    seconds: dict[str, list[float]] = {what: [] for what in actions}
    for _ in range(repeats):
        for what, action in actions.items():
            start = time.process_time()
            action()
            seconds[what].append(time.process_time() - start)
    return seconds


def run_both(paths: list[Path], data: np.ndarray, optimize: bool) -> None:
    for path in paths:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for sample in data:
            session.run(None, {"input": sample[None]})


def sensitivity(made: networks.Prepared, repeats: int) -> None:
    """The pass: the simulated engine as one ONNX model, its graph optimizations off, on all processors."""
    network = ImplicitNetwork.read(made.files)
    simulated = simulate(network)
    path = made.model.with_name("simulated.onnx")
    onnx.save(simulated.model, path)
    samples = load_samples(made.inputs, input_specs(network.model, {}), None)
    judge = Judge(network, SimulationOptions(), samples)
    accounts: list[Account] = []
    found: list[Sensitivity] = []
    one = best(lambda: run_both([path], made.data, False), repeats)
    alone = best(lambda: accounts.append(account(judge)), max(1, repeats - 1))
    whole = best(lambda: found.append(measure_sensitivity(judge, 1e9)[0]), max(1, repeats - 1))
    layers, seen = len(simulated.placement.int8), accounts[0]
    print(
        f"{layers} layers in INT8, {sum(e.members for e in seen.entries)} roundings, {len(made.data)} samples: one pass {one:.2f} s, noise "
        f"account {alone:.2f} s, {alone / one:.2f} times that ({seen.passes:.1f} passes by layers, on {seen.samples} of the samples, "
        f"{100 * seen.remainder:+.0f}% not in the sum); sensitivity {whole:.2f} s, {whole / one:.2f} times"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    networks.add_arguments(parser)
    parser.add_argument("--sensitivity", action="store_true", help="this alone, against one pass over the samples")
    parser.add_argument("--per_layer", action="store_true", help="verify --per_layer too")
    options = parser.parse_args()
    print(machine())
    with networks.prepared(options) as made:
        if options.sensitivity:
            sensitivity(made, options.repeats)
            return
        both, data = [made.model, made.files.model], made.data
        asked = {"model": str(made.model), "translation": str(made.files.folder), "data": str(made.inputs)}
        ways: dict[str, Callable[[], object]] = {
            "ONNX Runtime, optimized": lambda: run_both(both, data, True),
            "ONNX Runtime, unoptimized": lambda: run_both(both, data, False),
            "verify": lambda: verify(Options(**asked)),
        }
        if options.per_layer:
            ways["verify --per_layer"] = lambda: verify(Options(**asked, per_layer=True))
        taken = in_turn(ways, options.repeats)
        again = made.model.with_name("again")
        translating = best(lambda: translate(made.model).save(again), options.repeats)
        found = translate(made.model)
        digests = best(lambda: contents(found.graph, found.cache.to_text(), "", {}), options.repeats)
    fast, plain = (taken[f"ONNX Runtime, {how}"] for how in ("optimized", "unoptimized"))
    print(f"{options.network}, {options.samples} samples       processor   x optimized   x unoptimized")
    for what, seconds in taken.items():
        times = (statistics.median(one / other for one, other in zip(seconds, base)) for base in (fast, plain))
        print(f"{what:<28}{min(seconds):>9.2f} s{next(times):>12.2f}{next(times):>16.2f}", flush=True)
    print(f"digests of the set: {digests:.3f} s, {100 * digests / translating:.1f}% of translating and writing it")


if __name__ == "__main__":
    main()
