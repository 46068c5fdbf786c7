"""`python -m tests.fuzz`: campaigns."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.fuzz.campaign import KINDS, limit_memory, run_part

_AT_ONCE = 250


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kind", choices=tuple(KINDS), default="models")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="only this one, with its find")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--state", type=Path, help="file to write after every part and to go on from")
    options = parser.parse_args()
    if options.case is not None:
        print(KINDS[options.kind](options.seed, options.case))
        return 0
    done: dict[str, object] = {"kind": options.kind, "seed": options.seed, "cases": 0, "seconds": 0.0}
    results: Counter[str] = Counter()
    finds: list[list[object]] = []
    if options.state and options.state.exists():
        saved = json.loads(options.state.read_text(encoding="utf-8"))
        if (saved["kind"], saved["seed"]) != (options.kind, options.seed):
            parser.error(f"{options.state} is of another campaign")
        done, results, finds = {k: saved[k] for k in done}, Counter(saved["results"]), saved["finds"]
    first = int(str(done["cases"]))
    before, began = float(str(done["seconds"])), time.monotonic()
    tasks = [
        (options.kind, options.seed, at, min(at + _AT_ONCE, options.cases))
        for at in range(first, options.cases, _AT_ONCE)
    ]
    # not multiprocessing.Pool, which would start a worker that dies again and again
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn"), limit_memory) as pool:
        for (_, _, _, stop), (counted, found) in zip(tasks, pool.map(run_part, tasks)):
            results += counted
            finds += [list(find) for find in found]
            done.update(cases=stop, seconds=round(before + time.monotonic() - began, 1))
            for case, what in found:
                print(f"{options.kind} {case}: {what}", flush=True)
            if options.state:
                state = {**done, "results": dict(results), "finds": finds}
                options.state.write_text(json.dumps(state, indent=1), encoding="utf-8")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{done['cases']} cases of {options.kind}, seed {options.seed}: {dict(results)}, {len(finds)} finds, "
          f"{done['seconds']} s, peak memory of a process {peak} MiB")  # fmt: skip
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
