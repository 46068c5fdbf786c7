"""Peak memory and time of the models that ask for the most, each in a process of its own; the table of docs/tables/campaigns.md.

`python -m benchmarks.refusals` prints it. The models are those of tests/test_budget.py, all below 1 MB.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

_RUN = """
import resource, sys, time
import onnx
from qdq_translator import translate
from qdq_translator.core.errors import UserError
began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    translate(sys.argv[1])
    said = "translated"
except UserError as error:
    said = str(error)
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, said, sep="\\t")
"""


def models() -> dict[str, onnx.ModelProto]:
    from tests.test_budget import BOMBS, bomb_of_adds, functions, long_tensors, with_scale

    made = {}
    for name, (lines, arrays) in BOMBS.items():
        made[name] = with_scale(lines, c1=np.ones(1, np.float32), **arrays)
    tiles = [f"t{i}" for i in range(100)]
    lines = "".join(f"{t} = Tile(c1, n)\n" for t in tiles) + f"s = Sum({', '.join(tiles)})"
    made["100 of Tile"] = with_scale(lines, c1=np.ones(1, np.float32), n=np.array([8_000_000]))
    made["2^40 paths through 40 Mul"] = bomb_of_adds()
    made["10^8 calls of functions"] = functions(8, 10)
    steps = "".join(f"c{i + 1} = Sqrt(c{i})\n" for i in range(20_000))
    made["20,000 Sqrt in a row"] = with_scale(f"c0 = Identity(c)\n{steps}s = Identity(c20000)")
    made.update({f"a long tensor, {how}": model for how, model in long_tensors().items()})
    return made


def main() -> None:
    print("| model | bytes | time | peak memory | answer |\n| --- | ---: | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        for name, model in models().items():
            path.write_bytes(model.SerializeToString())
            done = subprocess.run([sys.executable, "-c", _RUN, str(path)], capture_output=True, text=True, check=True)
            seconds, peak, said = done.stdout.rstrip("\n").split("\t")
            answer = said.split(". ")[0]
            print(f"| {name} | {path.stat().st_size:,} | {float(seconds):.2f} s | {int(peak) // 1024} MiB | {answer} |")


if __name__ == "__main__":
    main()
