"""What sharing the work on samples costs and brings: efficiency of two workers, the scheduler's overhead, memory, and a plan.

    python -m benchmarks.workers                     # ResNet-50, 64 samples
    python -m benchmarks.workers --samples 1000 --repeats 3 --write    # 5 to 9 minutes; the tables of docs/tables/workers.md
    python -m benchmarks.workers --samples 1000 --size 96      # a fifth of the work, so that what is spent on sharing weighs more

The work is that of `tune`: evaluations, the simulated engine on all samples, each of a network that differs from the one before
in its largest Conv, which is what goes to a cluster. Three ways share it, in the same shards: one thread of this process (every
fourth shard of them, to save time), `--workers 2`, and two Dask workers on this machine. They take turns, `--repeats` times, so
that another load of the machine hits all of them, and their outputs are the same, byte for byte. Beside the wall time stands the
processor time of this process, all workers and the scheduler, which other loads change less.

    efficiency of two workers   a sample's time with one worker / with two; wall time counts twice for two
    overhead of the scheduler   time over Dask / with two processes, less 1
    start-up                    wall time of the first four shards: starting processes or reaching the cluster, sending the whole
                                network, opening it. It is in none of the other numbers; each of those sends what has changed

A ratio is the median of those of each turn.
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
from typing import Callable

import numpy as np
import onnx

from benchmarks import networks
from benchmarks.dla_rewrites import page
from benchmarks.measure import machine
from qdq_translator.core.workers.work import InProcess, shards
from qdq_translator.lab.simulate.evaluation import evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.lab.simulate.run import CodedEnds
from qdq_translator.lab.tune.meter import Outputs
from tests.dask_cluster import connected, dask_cluster

PLAN = (50_000, 7, 60)
"""Samples, networks, evaluations of each."""
JPEGS, JPEG_SIZE = 64, (500, 375)
ONE, TWO, DASK = "one thread of one process", "`--workers 2`", "`--scheduler`, two Dask workers"
FEWER = 4
"""One worker alone computes one shard in so many."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "workers.md"


@dataclass(frozen=True)
class Taken:
    """A sample's share of an evaluation. seconds: wall; processor: seconds of this process and all that it started. digest: of the
    outputs of the shards that every way computes."""

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
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables/workers.md")
    parser.set_defaults(samples=64)
    options = parser.parse_args()
    print(machine())
    with networks.prepared(options) as made:
        network = ImplicitNetwork.read(made.files)
        samples = load_samples(made.inputs, input_specs(network.model, {}), None)
        model = simulate(network).model
        points = [
            Outputs(another(model, number), "simulated", CodedEnds({}, {}), samples, "cpu", whole=frozenset())
            for number in range(options.repeats + 1)
        ]
        environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        with dask_cluster(2, environment) as (address, _):
            taken, started, memory = compare(points, samples.runs, address)
        decoded = decoding(network)
    shown = show(options, taken, started, memory, decoded)
    print(shown)
    if options.write:
        text = f"`python -m benchmarks.workers --samples {options.samples} --repeats {options.repeats} --write`, {machine()}.\n\n"
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "workers", text + shown), encoding="utf-8")


def compare(
    points: list[Outputs], runs: int, address: str
) -> tuple[dict[str, list[Taken]], dict[str, float], dict[str, int]]:
    """Every way in turn, point by point; the seconds of the first point, for which workers start and get everything; memory."""
    everything = shards(runs)
    common = everything[::FEWER]
    ways = {ONE: common, TWO: everything, DASK: everything}
    taken: dict[str, list[Taken]] = {way: [] for way in ways}
    started: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        connected(address)[0].close()  # the cluster is there
        opening = {
            ONE: lambda: InProcess(1),
            TWO: lambda: stack.enter_context(evaluation(workers=2)).engine,
            DASK: lambda: stack.enter_context(evaluation(scheduler=address)).engine,
        }
        engines = {}
        for way, opened in opening.items():
            begun = time.perf_counter()
            engines[way] = opened()
            engines[way].run(points[0], everything[:4])
            started[way] = time.perf_counter() - begun
        for point in points[1:]:
            for way, ranges in ways.items():
                pids = children(os.getpid())
                begun, processor = time.perf_counter(), processor_time(pids)
                outputs = dict(zip((run for shard in ranges for run in shard), engines[way].run(point, ranges)))
                seconds, spent = time.perf_counter() - begun, processor_time(pids) - processor
                kept = (v.tobytes() for shard in common for run in shard for v in outputs[run].values())
                digest = hashlib.sha256(b"".join(kept)).hexdigest()
                taken[way].append(Taken(seconds / len(outputs), spent / len(outputs), digest))
        memory = {"this process": peak([os.getpid()]), "a worker": peak(children(os.getpid()))}
    for rows in zip(*taken.values()):
        assert len({one.digest for one in rows}) == 1, "all ways give the same bytes"
    return taken, started, memory


def show(
    options: argparse.Namespace,
    taken: dict[str, list[Taken]],
    started: dict[str, float],
    memory: dict[str, int],
    decoded: float,
) -> str:
    """As Markdown."""

    def middle(what: Callable[[Taken, Taken, Taken], float]) -> float:
        return statistics.median(what(*rows) for rows in zip(taken[ONE], taken[TWO], taken[DASK]))

    lines = [
        f"| {options.network}, {options.size} pixels, {options.samples} samples, median of {options.repeats} | wall a sample | "
        "processor a sample | start-up |",
        "| --- | ---: | ---: | ---: |",
    ]
    for way, rows in taken.items():
        wall, processor = (
            1000 * statistics.median(getattr(one, key) for one in rows) for key in ("seconds", "processor")
        )
        lines.append(f"| {way} | {wall:.1f} ms | {processor:.1f} ms | {started[way]:.1f} s |")
    efficiency = (
        middle(lambda one, two, dask: one.seconds / two.seconds / 2),
        middle(lambda one, two, dask: one.processor / two.processor),
    )
    overhead = (
        middle(lambda one, two, dask: 100 * (dask.seconds / two.seconds - 1)),
        middle(lambda one, two, dask: 100 * (dask.processor / two.processor - 1)),
    )
    each = statistics.median(one.processor for one in taken[TWO]) + decoded
    samples, nets, evaluations = PLAN
    lines += [
        "",
        "| | by wall time | by processor time |",
        "| --- | ---: | ---: |",
        f"| efficiency of two workers | {efficiency[0]:.2f} | {efficiency[1]:.2f} |",
        f"| overhead of the scheduler | {overhead[0]:+.1f}% | {overhead[1]:+.1f}% |",
        "",
        f"At its peak {' and '.join(f'{who} held {size / 2**20:.0f} MiB' for who, size in memory.items())}. With two workers a "
        f"sample takes {1000 * each:.0f} ms of one core, {1000 * decoded:.1f} ms of it for a JPEG of {JPEG_SIZE[0]} x {JPEG_SIZE[1]} "
        f"pixels. On paper, {samples:,} samples x {nets} networks x {evaluations} evaluations, if all cost what {options.network} does "
        "and 16 cores do 16 times the work of one:",
        "",
        "| machines of 16 cores | hours |",
        "| ---: | ---: |",
        *(
            f"| {machines} | {each * samples * nets * evaluations / machines / 16 / 3600:.1f} |"
            for machines in (1, 8, 64)
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
