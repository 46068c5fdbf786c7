"""What sharing the work on samples costs and brings: efficiency of two workers, the scheduler's overhead, memory, and a plan.

    python -m benchmarks.workers                     # ResNet-50, 64 samples, two processes and two Dask workers
    python -m benchmarks.workers --samples 1000      # the scheduler's overhead at 1,000 samples

The work is that of `tune`: one evaluation, the simulated engine on all samples. Each way of sharing it computes the same
outputs, byte for byte. The ways take turns, `--repeats` times, so that another load of the machine hits all of them; beside
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
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks import networks
from benchmarks.measure import machine
from qdq_translator import TranslateOptions, translate
from qdq_translator.errors import UserError
from qdq_translator.simulate.evaluation import evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.simulate.inputs import input_specs, load_samples
from qdq_translator.simulate.run import CodedEnds
from qdq_translator.tune.meter import Outputs
from qdq_translator.workers.work import Engine, InProcess, shards

PLAN = (50_000, 7, 60)
"""Samples, networks, evaluations of each."""


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


@contextlib.contextmanager
def dask(workers: int) -> Iterator[str]:
    """A scheduler and so many workers of one thread on this machine."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}

        def start(*argv: str) -> None:
            process = subprocess.Popen(
                [sys.executable, "-m", *argv],
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("distributed.cli.dask_scheduler", "--host", address, "--no-dashboard", "--no-show")
        for _ in range(workers):
            start("distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard")
        time.sleep(5)
        yield address


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet50", choices=("resnet50", "mobilenet_v2"))
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        path = work / f"{options.network}.onnx"
        onnx.save(getattr(networks, options.network)(), path)
        network = ImplicitNetwork.of(translate(path, TranslateOptions()))
        data = np.random.default_rng(0).normal(size=(options.samples, 3, 224, 224)).astype(np.float32)
        np.save(work / "x.npy", data)
        del data
        samples = load_samples(work / "x.npy", input_specs(network.model, {}), None)
        model = simulate(network).model
        asked = Outputs(model, "simulated", CodedEnds({}, {}), samples, "cpu", classes=True)
        with dask(2) as address:
            taken, memory = compare(asked, samples.runs, address, options.repeats)
    show(options, taken, memory)


def compare(asked: Outputs, runs: int, address: str, repeats: int) -> tuple[dict[str, list[Taken]], dict[str, int]]:
    """Every way in turn; its sessions are open before it is measured."""
    ways = {"1 worker": {}, "2 workers": {"workers": 2}, "Dask, 2 workers": {"scheduler": address}}
    taken: dict[str, list[Taken]] = {way: [] for way in ways}
    memory: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        engines: dict[str, Engine] = {"1 worker": InProcess(1)}
        for way, given in ways.items():
            for _ in range(10 if given else 0):
                try:
                    engines[way] = stack.enter_context(evaluation(**given)).engine  # type: ignore[arg-type]
                    break
                except UserError:
                    time.sleep(2)  # the scheduler is still starting
            engines[way].run(asked, shards(runs)[:4])
        for _ in range(repeats):
            for way, engine in engines.items():
                pids = children(os.getpid())
                begun, processor = time.perf_counter(), processor_time(pids)
                outputs = engine.run(asked, shards(runs))
                digest = hashlib.sha256(b"".join(v.tobytes() for row in outputs for v in row.values())).hexdigest()
                spent = processor_time(pids) - processor
                taken[way].append(Taken(time.perf_counter() - begun, spent, digest))
        memory = {"this process": peak([os.getpid()]), "a worker": peak(children(os.getpid()))}
    assert len({one.digest for rows in taken.values() for one in rows}) == 1, "all ways give the same bytes"
    return taken, memory


def show(options: argparse.Namespace, taken: dict[str, list[Taken]], memory: dict[str, int]) -> None:
    processor = {way: statistics.median(one.processor for one in rows) for way, rows in taken.items()}
    wall = {way: statistics.median(one.seconds for one in rows) for way, rows in taken.items()}
    print(f"{options.network}, {options.samples} samples, median of {options.repeats}      wall   processor")
    for way in taken:
        print(f"{way:<28}{wall[way]:>20.2f} s{processor[way]:>10.2f} s")
    one = processor["1 worker"]
    print(f"speed-up of two workers     {wall['1 worker'] / wall['2 workers']:.2f} (wall time)")
    print(f"efficiency of two workers   {one / processor['2 workers']:.2f} (processor time)")
    print(f"overhead of the scheduler   {100 * (processor['Dask, 2 workers'] / one - 1):+.1f}% (processor time)")
    for who, size in memory.items():
        print(f"memory, {who:<20}{size / 2**20:.0f} MiB")
    each = one / options.samples
    samples, nets, evaluations = PLAN
    total = each * samples * nets * evaluations
    print(
        f"{1000 * each:.0f} ms of one core a sample; {samples:,} samples x {nets} networks x {evaluations} evaluations, if all cost "
        f"what {options.network} does:"
    )
    for machines, cores in ((1, 16), (8, 16), (64, 16)):
        hours = total / (machines * cores) / 3600
        print(f"  {machines:>2} machines of {cores} cores: {hours:,.1f} hours ({hours / 24:,.1f} days)")


if __name__ == "__main__":
    main()
