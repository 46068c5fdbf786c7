"""The graph that every pass edits against onnx-ir: reading a file, bypassing each pair of QuantizeLinear and DequantizeLinear,
writing the file.

    python -m pip install onnx-ir
    python -m benchmarks.representation                  # a chain of 10,000 Convs

Whole processes, imports included, in turns; the least time of the processor counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import LOAD_SAVE, least, machine
from benchmarks.translate import made

GRAPH = """
import sys, onnx
from qdq_translator.translation.ir.graph import Graph
graph = Graph.from_model(onnx.load(sys.argv[1]))
pairs = 0
for node in list(graph.nodes):
    if node.op_type == "QuantizeLinear":
        for reader in list(graph.consumers(node.outputs[0])):
            graph.replace_uses(reader.outputs[0], node.inputs[0])
            graph.remove(reader)
            pairs += 1
        graph.remove(node)
onnx.save(graph.to_model(), sys.argv[2])
print(pairs, file=open(sys.argv[3], "w"))
"""
ONNX_IR = """
import sys, onnx_ir
model = onnx_ir.load(sys.argv[1])
pairs = 0
for node in list(model.graph):
    if node.op_type == "QuantizeLinear":
        for reader in list(node.outputs[0].consumers()):
            reader.outputs[0].replace_all_uses_with(node.inputs[0])
            model.graph.remove(reader, safe=True)
            pairs += 1
        model.graph.remove(node, safe=True)
onnx_ir.save(model, sys.argv[2])
print(pairs, file=open(sys.argv[3], "w"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000, help="Convs of the chain")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = made("chain", work, str(options.size))
        codes = {"onnx.load, onnx.save": LOAD_SAVE, "graph.py": GRAPH, "onnx-ir": ONNX_IR}
        commands = [
            [sys.executable, "-c", code, str(model), str(work / f"{i}.onnx"), str(work / f"{i}.txt")]
            for i, code in enumerate(codes.values())
        ]
        runs = dict(zip(codes, least(commands, options.repeats)))
        ours, theirs = ((work / f"{i}.txt").read_text().strip() for i in (1, 2))
        if ours != theirs:
            raise SystemExit(f"graph.py bypassed {ours} pairs, onnx-ir {theirs}.")
        print(f"{machine()}\n{model.stat().st_size / 2**20:.0f} MiB, {ours} pairs")
        for name, run in runs.items():
            print(f"{name:<22}{run.cpu:>8.2f} s{run.peak / 2**20:>8.0f} MiB")


if __name__ == "__main__":
    main()
