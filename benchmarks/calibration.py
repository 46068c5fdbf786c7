"""What calibration costs, and what it is worth on a folder of Q/DQ models.

    python -m benchmarks.calibration                     # time and memory
    python -m benchmarks.calibration --whole             # `translate --calibrate` of a float ResNet-50 on 64 images
    python -m benchmarks.calibration --models FOLDER     # layers in FP16 for want of a scale, before and after

Time: `translate --calibrate` observes the tensors of a network without scale; the yardstick is ONNX Runtime, unoptimized and
with its default threads, that runs the same network on the same samples with the same tensors fetched. One process, best
of the repeats. Whole: CPU time; the yardstick is ONNX Runtime with its graph optimizations and one thread (threads that wait for
each other take time too), two passes over the images. Memory: whole processes that calibrate on more and more samples from an .npy
file. Models: random inputs of deviation 1, so the scales mean nothing and the counts do.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from benchmarks import measure, networks
from benchmarks.verify import best
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.core.progress import silent
from qdq_translator.lab.simulate.calibration.observe import observe
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import InputSpec, input_specs, load_samples
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.placement import Placement

TIMED = ("mobilenet_v2", "resnet50")
COUNTS = (100, 1_000, 10_000)
CALIBRATE = ("--calibrate_method", "mse", "--calibrate")


def time_of(name: str, explicit: onnx.ModelProto, count: int, repeats: int, work: Path) -> None:
    """One line: the yardstick, ours, and their ratio. `explicit`: a Q/DQ model, or a float one."""
    data = np.random.default_rng(0).normal(size=(count, 3, 224, 224)).astype(np.float32)
    np.save(work / "data.npy", data)
    calibrated = translate(explicit, TranslateOptions(calibrate=str(work / "data.npy")))
    graph, types, scales = calibrated.graph, TensorTypes(calibrated.graph), calibrated.scales
    stated = {tensor: scale.value for tensor, scale in scales.items() if scale.explicit}
    wanted = [tensor for tensor, scale in scales.items() if scale.origin.rule == "K1"]
    samples = load_samples(work / "data.npy", input_specs(calibrated.model, {}), None)
    rounded = simulate(ImplicitNetwork.of(calibrated), placement=Placement(stated))
    model = rounded.model
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=rounded.made[tensor]) for tensor in wanted)

    def yardstick() -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for index in range(count):
            session.run(None, {"input": data[index : index + 1]})

    base = best(yardstick, repeats)
    ours = best(lambda: observe(graph, types, stated, wanted, samples, silent), repeats)
    print(f"| {name} | {len(wanted)} | {count} | {base:.2f} s | {ours:.2f} s | {ours / base:.2f} |", flush=True)


TWICE = """import numpy, onnxruntime, sys
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session, data = onnxruntime.InferenceSession(sys.argv[1], options), numpy.load(sys.argv[2])
for index in [*range(len(data)), *range(len(data))]:
    session.run(None, {"input": data[index : index + 1]})
"""


def whole(count: int, repeats: int, work: Path) -> None:
    """A line for each set of options: CPU seconds of the whole process, and their ratio to two passes of ONNX Runtime."""
    onnx.save(translate(networks.resnet50()).model, work / "float.onnx")
    np.save(work / "data.npy", np.random.default_rng(0).normal(size=(count, 3, 224, 224)).astype(np.float32))
    files = [str(work / "float.onnx"), str(work / "data.npy")]
    given = [*measure.translate(work / "float.onnx", work / "t"), "--calibrate", files[1]]
    more = {"": [], "--equalize": ["--equalize"], "--calibrate_method output": ["--calibrate_method", "output"]}
    twice = [sys.executable, "-c", TWICE, *files]
    base, *found = measure.least([twice, *([*given, *words] for words in more.values())], repeats)
    print(f"| ONNX Runtime, twice {count} images | {base.cpu:.1f} s | 1 |")
    for name, row in zip(more, found):
        print(f"| `--calibrate` {name} | {row.cpu:.1f} s | {row.cpu / base.cpu:.2f} |", flush=True)


def memory(work: Path) -> None:
    """One line for each number of samples."""
    builder = networks.Builder()
    tensor = "input"
    for channels in (3, 16, 16, 16):
        tensor = builder.node("Relu", builder.conv_bn(tensor, channels, 16))
    onnx.save(builder.model(tensor, [1, 3, 32, 32]), work / "small.onnx")
    for count in COUNTS:
        path = work / f"{count}.npy"
        written = np.lib.format.open_memmap(path, "w+", np.float32, (count, 3, 32, 32))
        random = np.random.default_rng(0)
        for index in range(count):
            written[index] = random.normal(size=(3, 32, 32))
        del written
        found = measure.run([*measure.translate(work / "small.onnx", work / "t"), *CALIBRATE, str(path)], 1)
        print(
            f"| {count:,} | {path.stat().st_size / 2**20:.0f} MiB | {found.seconds:.1f} s | {found.peak / 2**20:.0f} MiB |",
            flush=True,
        )


def made_up(specs: list[InputSpec], path: Path) -> Path:
    """16 samples of random inputs; open sizes are 16."""
    random = np.random.default_rng(0)
    arrays = {}
    for spec in specs:
        shape = tuple(16 if size is None else size for size in spec.shape)
        shape = (max(16, shape[0]), *shape[1:]) if shape else (16,)
        whole = spec.dtype.kind in "iub"
        values = random.integers(0, 2, shape) if whole else random.normal(size=shape)
        arrays[spec.name] = values.astype(spec.dtype)
    np.savez(path, **arrays)
    return path


def worth(folder: Path, work: Path) -> None:
    """One line a model, and the sum, for Orin's DLA. Layers that make a graph output stay higher by design (rule S2) and do
    not count. Milliseconds are the cost model's estimate of all layers on the DLA, empty where shapes are open."""
    total = np.zeros(4, int)
    times = np.zeros(2)
    print(
        "| model | layers | FP16 without data | FP16 with data | of them with MACs | ms without | ms with |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    dla = TranslateOptions(target="orin-dla", platform="jetpack-6.2")
    for path in sorted(folder.glob("*.onnx")):
        try:
            before = translate(path, dla)
            data = made_up(input_specs(before.model, {}), work / "made_up.npz")
            after = translate(path, dataclasses.replace(dla, calibrate=str(data)))
        except UserError as error:
            print(f"{path.stem} is not translated: {error.what}", file=sys.stderr)
            continue
        left = [layer for layer in after.plan if layer.avoidable]
        row = [
            sum(layer.precision != "none" for layer in after.plan),
            sum(layer.avoidable for layer in before.plan),
            len(left),
            sum(bool(layer.macs) for layer in left),
        ]
        total += row
        spent = [None if t.costs is None else t.costs.milliseconds for t in (before, after)]
        if spent[0] is not None and spent[1] is not None:
            times += [spent[0], spent[1]]
        shown = ["" if value is None else f"{value:.3f}" for value in spent]
        print(f"| {path.stem} | {' | '.join([*map(str, row), *shown])} |", flush=True)
    print(f"| **all** | {' | '.join([*map(str, total), *(f'{value:.2f}' for value in times)])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", type=Path, help="folder of Q/DQ models")
    parser.add_argument("--whole", action="store_true", help="whole commands, on 64 images or --samples")
    options = parser.parse_args()
    print(f"{measure.machine()}; onnxruntime {onnxruntime.__version__}\n")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.whole:
            print("| command | CPU time | ratio |\n| --- | ---: | ---: |")
            whole(max(options.samples, 64), options.repeats, work)
            return
        if options.models:
            worth(options.models, work)
            return
        print("| samples | data | time | peak memory |\n| ---: | ---: | ---: | ---: |")
        memory(work)  # first: a child's peak begins with what this process had when it was made
        print()
        print(
            "| network | tensors | samples | ONNX Runtime | observed | ratio |\n| --- | ---: | ---: | ---: | ---: | ---: |"
        )
        for name in TIMED:
            explicit = getattr(networks, name)()
            time_of(f"{name}, Q/DQ", explicit, options.samples, options.repeats, work)
            time_of(f"{name}, float", translate(explicit).model, options.samples, options.repeats, work)


if __name__ == "__main__":
    main()
