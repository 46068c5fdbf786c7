"""Rule D28: an LSTM, GRU or RNN of a few steps becomes the layers of its steps (networks that process a stream).

1. `LSTM` -> for each step and direction a 1x1 Conv for each of the four gates, which reads the input of the step and
   the previous state as channels (Concat), its Sigmoid or Tanh, and the products, the sum and the Tanh that follow
2. `GRU` -> likewise with three gates, and with linear_before_reset a Conv of the state alone; `RNN` -> likewise with a
   single Conv
3. Without an initial state, or with one of zeros, a Conv with zeros as weights makes it.

The steps read the same weights. Their inputs and states are [N, C, 1, 1], by Reshapes, Transposes and Slices that rule
D17 merges with their neighbours. New tensors get no scale: Sigmoid and Tanh run in FP16 (limit A1), and the rounding of
a state to INT8 would add up. The estimate is 0.05 ms or more for a step, 0.58 ms for a transition (`python -m
benchmarks.further_forms`).
Not: more than 16 steps, directions included; an unknown number of steps; the batch as first axis (layout); weights that
are not constant; lengths of sequences, peepholes, a clip, coupled gates or other activations than the default; an
initial state of other constants than 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.passes.editor import Stays, known, stay_if
from qdq_translator.translation.targets.precision import RECURRENT

RULE = "D28"
OPERATORS = RECURRENT
_MOST_STEPS = 16
_WAYS = {"forward": [1], "reverse": [-1], "bidirectional": [1, -1]}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


def rewrite(rewriter: Rewriter, node: Node) -> None:
    shape, array = rewriter.types.shape(node.inputs[0]), rewriter.graph.array
    ways = _WAYS.get(node.get("direction", "forward"), [])
    steps = None if shape is None or len(shape) != 3 or node.get("layout", 0) else shape[0]
    if not isinstance(steps, int) or not steps * len(ways) or rewriter.dtype(node.inputs[0]) is None:
        raise Stays("its number of steps is not known, or the batch is its first axis")
    count = steps * len(ways)
    stay_if(count > _MOST_STEPS, f"its {count} steps would take longer on the DLA than a transition")
    weights = [known(array(name), "its weights are not constant") for name in node.inputs[1:4] if name]
    own = node.get("activations", []) in ([], _ACTIVATIONS[node.op_type] * len(ways))
    other = not own or any((node.input(4), node.input(7), node.get("clip", 0), node.get("input_forget", 0)))
    why = "it has sequence lengths, peepholes, a clip, coupled gates or other activations than the default"
    stay_if(other, why)
    stay_if(any(map(np.any, map(array, node.inputs[5:7]))), "its initial state is a constant other than 0")
    nodes = _Unrolled(rewriter, node, ways, weights).write(steps)
    computed = [made.outputs[0] for made in nodes if not made.is_op("Reshape", "Transpose", "Slice")]
    rewriter.replace(RULE, node, nodes)
    rewriter.network.withhold(*computed, why="the steps of a recurrent layer run in FP16 (rule D28)")


class _Unrolled:
    """The layers of one node. weights: of inputs and states, for each gate; biases: likewise."""

    def __init__(self, rewriter: Rewriter, node: Node, ways: list[int], weights: list[np.ndarray]) -> None:
        self.rewriter, self.node, self.ways, self.zero = rewriter, node, ways, ""
        self.nodes: list[Node] = []
        self.made: dict[str, str] = {}
        w, r, bias = (*weights, np.zeros((len(ways), 2 * weights[1].shape[1]), weights[0].dtype))[:3]
        self.width, self.size, self.gates = w.shape[2], r.shape[2], r.shape[1] // r.shape[2]
        self.weights = [np.split(values, self.gates, axis=1) for values in (w, r)]
        self.biases = np.split(bias, 2 * self.gates, axis=1)

    def add(self, op: str, what: str, *inputs: str, target: str = "", **attributes: Any) -> str:
        name = f"{self.node.name}_{what}_{op.lower()}"
        outputs = [target or self.rewriter.tensor(name)]
        self.nodes.append(Node(op, list(inputs), outputs, self.rewriter.node(name), **attributes))
        return outputs[0]

    def constant(self, what: str, values: np.ndarray) -> str:
        if what not in self.made:
            self.made[what] = self.rewriter.constant(f"{self.node.name}.{what}", np.ascontiguousarray(values))
        return self.made[what]

    def reshape(self, what: str, source: str, *sizes: int) -> str:
        return self.add("Reshape", what, source, self.constant(f"{what}.shape", np.array(sizes, np.int64)))

    def parts(self, source: str, count: int, axis: int, size: int = 1) -> list[str]:
        """Equal parts along an axis."""
        names = []
        for number in range(count) if count > 1 else ():
            names.append(self.rewriter.tensor(f"{source}_{number}"))
            ends, name = ([number * size], [(number + 1) * size]), self.rewriter.node(names[-1])
            self.nodes.append(self.rewriter.slice(source, names[-1], *ends, [axis], name))
        return names or [source]

    def write(self, steps: int) -> list[Node]:
        data, ways = self.add("Transpose", "x", self.node.inputs[0], perm=[1, 2, 0]), len(self.ways)
        inputs = self.parts(self.reshape("x", data, 0, self.width, 1, steps), steps, 3)
        ends = list(zip(self.initial(5, inputs[0]), self.initial(6, inputs[0])))
        states: dict[tuple[int, int], str] = {}
        for number, way in enumerate(self.ways):
            for t in range(steps)[::way]:
                ends[number] = self.step(f"{t}_{number}", number, inputs[t], *ends[number])
                states[t, number] = ends[number][0]
        rows = [[states[at] for at in sorted(states)], *([end[index] for end in ends] for index in (0, 1))]
        for index, target in enumerate(self.node.outputs):
            if target:
                what, sizes = f"output{index}", (ways, self.size) if index else (steps, ways, self.size)
                name = self.add("Concat", what, *rows[index], axis=1) if len(rows[index]) > 1 else rows[index][0]
                order, flat = [*range(1, len(sizes)), 0, len(sizes)], self.reshape(what, name, 0, *sizes)
                self.add("Transpose", what, flat, target=target, perm=order)
        return self.nodes

    def initial(self, index: int, x: str) -> list[str]:
        """The state of each direction before the first step."""
        name, count, what = self.node.input(index), len(self.ways), f"initial{index - 5}"
        if index == 6 and self.node.op_type != "LSTM":
            return [""] * count
        if not name or self.rewriter.graph.is_constant(name):
            zeros = np.zeros((self.size, self.width), self.biases[0].dtype)
            self.zero = self.zero or self.conv("zeros", "zeros", x, zeros, zeros[:, 0])
            return [self.zero] * count
        turned = self.add("Transpose", what, name, perm=[1, 0, 2])
        return self.parts(self.reshape(what, turned, 0, count * self.size, 1, 1), count, 1, self.size)

    def step(self, at: str, way: int, x: str, h: str, c: str) -> tuple[str, str]:
        """The state and, for an LSTM, the cell state after the step."""
        both = self.add("Concat", at, x, h, axis=1)
        if self.node.op_type == "RNN":
            return self.gate(at, way, 0, both, "Tanh"), c
        if self.node.op_type == "GRU":
            return self.gru(at, way, x, h, both), c
        i, o, f = self.gate(at, way, 0, both), self.gate(at, way, 1, both), self.gate(at, way, 2, both)
        new = self.add("Mul", at, i, self.gate(at, way, 3, both, "Tanh"))
        c = self.add("Add", at, self.add("Mul", at, f, c), new)
        return self.add("Mul", at, o, self.add("Tanh", at, c)), c

    def gru(self, at: str, way: int, x: str, h: str, both: str) -> str:
        update, reset = self.gate(at, way, 0, both), self.gate(at, way, 1, both)
        if self.node.get("linear_before_reset", 0):
            own = self.conv(at, f"state_{way}", h, self.weights[1][2][way], self.biases[5][way])
            new = self.conv(at, f"input_{way}", x, self.weights[0][2][way], self.biases[2][way])
            new = self.add("Tanh", at, self.add("Add", at, new, self.add("Mul", at, reset, own)))
        else:
            new = self.gate(at, way, 2, self.add("Concat", at, x, self.add("Mul", at, reset, h), axis=1), "Tanh")
        return self.add("Add", at, new, self.add("Mul", at, update, self.add("Sub", at, h, new)))

    def gate(self, at: str, way: int, number: int, source: str, op: str = "Sigmoid") -> str:
        weight = np.concatenate([own[number][way] for own in self.weights], axis=1)
        bias = self.biases[number][way] + self.biases[number + self.gates][way]
        return self.add(op, at, self.conv(at, f"gate{number}_{way}", source, weight, bias))

    def conv(self, at: str, what: str, source: str, weight: np.ndarray, bias: np.ndarray) -> str:
        names = self.constant(what, weight[:, :, None, None]), self.constant(f"{what}_bias", bias)
        return self.add("Conv", at, source, *names, kernel_shape=[1, 1])
