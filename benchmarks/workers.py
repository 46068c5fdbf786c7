"""What sharing the work on samples costs and brings: efficiency of two workers, the scheduler's overhead, memory, and a plan.

    python -m benchmarks.workers                     # ResNet-50, 64 samples, two processes and two Dask workers
    python -m benchmarks.workers --samples 1000      # the scheduler's overhead at 1,000 samples
    python -m benchmarks.workers --samples 1000 --size 96      # the same with a fifth of the work, so with more overhead

The work is that of `tune`: evaluations, the simulated engine on all samples, each of a network that differs from the one before
in its largest Conv, which is what goes to a cluster. Each way of sharing it computes the same outputs, byte for byte. The ways
take turns, `--repeats` times, so that another load of the machine hits all of them; beside
the wall time stands the processor time of this process and all of its workers, which such a load changes less.

    efficiency of two workers   processor time with one worker / with two (1: nothing is spent on sharing)
    speed-up                    wall time with one worker / with two; means something on an idle machine only
    overhead of the scheduler   processor time over Dask, workers and scheduler, / with one worker, less 1
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks import networks
from benchmarks.measure import machine
from qdq_translator.simulate.evaluation import evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.simulate.inputs import input_specs, load_samples
from qdq_translator.simulate.run import CodedEnds
from qdq_translator.tune.meter import Outputs
from qdq_translator.workers.work import InProcess, shards
from tests.dask_cluster import connected, dask_cluster

PLAN = (50_000, 7, 60)
"""Samples, networks, evaluations of each."""
JPEGS, JPEG_SIZE = 64, (500, 375)


@dataclass(frozen=True)
class Taken:
    """seconds: wall; processor: seconds of this process and all that it started. digest: of all outputs."""

    seconds: float
    processor: float
    digest: str


def processor_time(pids: list[int]) -> float:
    """Seconds of user and system time of this process, of its children that have ended, and of those that run."""
    own = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in
              (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))  # fmt: skip
    return own + sum(_ticks(pid) for pid in pids) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def children(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
    return found


def peak(pids: list[int]) -> int:
    """Of the largest of them, resident bytes at most so far."""
    sizes = [0]
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    sizes.append(int(line.split()[1]) * 1024)
    return max(sizes)


def decoding(network: ImplicitNetwork) -> float:
    """Processor seconds for one JPEG of ImageNet's usual size: decoded, scaled and made the input of the network."""
    from PIL import Image

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(JPEGS):
            rough = random.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(rough).resize(JPEG_SIZE, Image.Resampling.BICUBIC).save(
                f"{folder}/{number}.jpg", quality=90
            )
        samples = load_samples(Path(folder), input_specs(network.model, {}), None)
        begun = time.process_time()
        for run in range(samples.runs):
            samples.feed(run)
        return (time.process_time() - begun) / samples.runs


def another(model: onnx.ModelProto, number: int) -> onnx.ModelProto:
    """As the next point of a search differs from the one before: in one layer."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    tensor = max(changed.graph.initializer, key=lambda tensor: len(tensor.raw_data) if len(tensor.dims) == 4 else 0)
    values = onnx.numpy_helper.to_array(tensor) * np.float32(1 + number / 128)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    networks.add_arguments(parser)
    parser.set_defaults(samples=64)
    options = parser.parse_args()
    print(machine())
    with networks.prepared(options) as made:
        network = ImplicitNetwork.read(made.files)
        samples = load_samples(made.inputs, input_specs(network.model, {}), None)
        model = simulate(network).model
        points = [
            Outputs(another(model, number), "simulated", CodedEnds({}, {}), samples, "cpu", classes=True)
            for number in range(options.repeats + 1)
        ]
        environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        with dask_cluster(2, environment) as (address, _):
            taken, memory = compare(points, samples.runs, address)
        decoded = decoding(network)
    show(options, taken, memory, decoded)


def compare(points: list[Outputs], runs: int, address: str) -> tuple[dict[str, list[Taken]], dict[str, int]]:
    """Every way in turn, point by point; the first point, for which workers start and get everything, is not measured."""
    ways = ("1 worker", "2 workers", "Dask, 2 workers")
    taken: dict[str, list[Taken]] = {way: [] for way in ways}
    with contextlib.ExitStack() as stack:
        both = stack.enter_context(evaluation(workers=2))
        opened, cluster = connected(address)
        stack.enter_context(opened)
        engines = dict(zip(ways, (InProcess(1), both.engine, cluster.engine)))
        for number, point in enumerate(points):
            for way, engine in engines.items():
                if not number:
                    engine.run(point, shards(runs)[:4])
                    continue
                pids = children(os.getpid())
                begun, processor = time.perf_counter(), processor_time(pids)
                outputs = engine.run(point, shards(runs))
                digest = hashlib.sha256(b"".join(v.tobytes() for row in outputs for v in row.values())).hexdigest()
                spent = processor_time(pids) - processor
                taken[way].append(Taken(time.perf_counter() - begun, spent, digest))
        memory = {"this process": peak([os.getpid()]), "a worker": peak(children(os.getpid()))}
    for rows in zip(*taken.values()):
        assert len({one.digest for one in rows}) == 1, "all ways give the same bytes"
    return taken, memory


def show(options: argparse.Namespace, taken: dict[str, list[Taken]], memory: dict[str, int], decoded: float) -> None:
    processor = {way: statistics.median(one.processor for one in rows) for way, rows in taken.items()}
    wall = {way: statistics.median(one.seconds for one in rows) for way, rows in taken.items()}
    print(
        f"{options.network}, {options.size} pixels, {options.samples} samples, median of {options.repeats}      wall   processor"
    )
    for way in taken:
        print(f"{way:<28}{wall[way]:>20.2f} s{processor[way]:>10.2f} s")
    one = processor["1 worker"]
    print(f"speed-up of two workers     {wall['1 worker'] / wall['2 workers']:.2f} (wall time)")
    print(f"efficiency of two workers   {one / processor['2 workers']:.2f} (processor time)")
    print(f"overhead of the scheduler   {100 * (processor['Dask, 2 workers'] / one - 1):+.1f}% (processor time)")
    for who, size in memory.items():
        print(f"memory, {who:<20}{size / 2**20:.0f} MiB")
    each = one / options.samples + decoded
    samples, nets, evaluations = PLAN
    total = each * samples * nets * evaluations
    print(
        f"{1000 * each:.0f} ms of one core a sample, {1000 * decoded:.1f} ms of it for a JPEG; {samples:,} samples x {nets} networks x {evaluations} evaluations, if all cost "
        f"what {options.network} does:"
    )
    for machines, cores in ((1, 16), (8, 16), (64, 16)):
        hours = total / (machines * cores) / 3600
        print(f"  {machines:>2} machines of {cores} cores: {hours:,.1f} hours ({hours / 24:,.1f} days)")


if __name__ == "__main__":
    main()
