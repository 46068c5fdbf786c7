"""Root causes: few tensors behind many missing scales, what each gains, why it has none and what cures it."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Optional

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.report_rows import FoundCauses
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.root_causes import Flag, command_line, find_root_causes
from qdq_translator.translation.scales.inference import Context, Policy, infer_scales
from qdq_translator.translation.scales.table import Origin, ScaleTable
from qdq_translator.translation.targets.precision import make_plan
from qdq_translator.translation.targets.settings import scale_policy
from qdq_translator.translation.translator import Translation
from tests.conftest import ZOO, need_shared, zoo_paths
from tests.small_models import model, pair, translated

CONSTANTS = {"w": np.ones((4, 4, 1, 1), np.float32), "s": np.float32(0.05), "z": np.int8(0)}
SHAPE = "float[1,4,8,8]"


def _explained(found: FoundCauses) -> int:
    """How many tensors without scale the causes stand for."""
    return sum(1 + len(cause.follows) for cause in found.causes)


def causes_of(body: str, outputs: str = f"{SHAPE} y", **options: object) -> Translation:
    text = f"g ({SHAPE} x) => ({outputs}) {{" + pair("x", "xq") + body + "}"
    return translated(model(text, **CONSTANTS), **options)


def test_branch_that_is_quantized_on_one_side_only() -> None:
    made = translate(str(need_shared(ZOO / "edge" / "branch_one_side.onnx")), as_is=True)
    assert [(c.tensor, c.macs) for c in made.causes.causes] == [("t10", 9216), ("t11", 0), ("t12", 0)]
    assert made.causes.causes[0].cure == "translate with --calibrate DATA, or quantize 't10' in the model"
    assert made.causes.causes[1].options == made.causes.causes[2].options == ("--infer_mul_scales",)


def test_detector_names_few_kinds_of_causes_and_the_options() -> None:
    made = translate(str(need_shared(ZOO / "mini" / "yolov5n__nvpq13.onnx")), as_is=True)
    groups = made.causes.groups
    assert len(groups) <= 6 and {group.op for group in groups} <= {"Sigmoid", "Mul", "Add", "Conv", "Concat"}
    assert sum(len(group.tensors) for group in groups) == len(made.causes.causes) < _explained(made.causes)
    assert any("--infer_mul_scales" in group.options for group in groups)
    assert groups[-1].total_macs == 753664 == made.report["coverage"]["macs"]["avoidable"]
    best = made.causes.what_if[-1]
    assert best.options == ("--infer_add_scales", "--infer_concat_scales", "--infer_mul_scales")
    flags = {option[2:]: True for option in best.options}
    real = translate(str(ZOO / "mini" / "yolov5n__nvpq13.onnx"), TranslateOptions(**flags))
    assert best.int8_layers == sum(layer.precision == "int8" for layer in real.plan)
    assert best.int8_macs == real.report["coverage"]["macs"]["int8"]
    assert best.scales == len(real.scales)


def test_words_of_a_command_line() -> None:
    more = "addtl_ops_to_infer_adjacent_scales"
    flags = [Flag("infer_mul_scales"), Flag(more, "Elu"), Flag(more, "Abs")]
    assert command_line(iter(flags)) == ("--infer_mul_scales", "--addtl_ops_to_infer_adjacent_scales Abs Elu")


def _covers(context: Context, roots: tuple[str, ...], wanted: list[str]) -> bool:
    table = context.scales.fork()
    for tensor in roots:
        table.infer(tensor, 0.9 / 127, Origin("try"))
    infer_scales(Context(context.graph, context.types, table, context.policy), Diagnostics())
    return all(tensor in table for tensor in wanted)


def _random_network(seed: int) -> onnx.ModelProto:
    """Unary operators with and without rules, in a random tree of up to nine nodes."""
    pick = random.Random(seed)
    body, tensors = "", ["x"]
    for index in range(pick.randint(4, 9)):
        op = pick.choice(["Relu", "Sigmoid", "Exp", "Transpose <perm=[0,1,2,3]>", "Identity", "Erf"])
        body += f" t{index} = {op} ({pick.choice(tensors)})"
        tensors.append(f"t{index}")
    leaves = [t for t in tensors if f"({t})" not in body]
    body += f" y = Sum ({', '.join(leaves)})"
    return model(f"g ({SHAPE} x) => ({SHAPE} y) {{{body}}}")


@pytest.mark.parametrize("seed", range(40))
def test_the_set_is_the_smallest(seed: int) -> None:
    """Held against trying every smaller set, on networks whose rules need one known tensor each."""
    graph = Graph.from_model(_random_network(seed))
    types = TensorTypes(graph)
    context = Context(graph, types, ScaleTable(), Policy())
    found = find_root_causes(context, make_plan(graph, types, context.scales, frozenset(), {}), str, None)
    wanted = [name for cause in found.causes for name in (cause.tensor, *cause.follows)]
    roots = tuple(cause.tensor for cause in found.causes)
    assert wanted and _covers(context, roots, wanted)
    assert not any(_covers(context, fewer, wanted) for fewer in itertools.combinations(wanted, len(roots) - 1))


@pytest.mark.parametrize("path", zoo_paths("mini/*__nvpq1[37].onnx"), ids=lambda path: path.stem)
def test_roots_bring_every_layer_of_the_zoo_to_int8(path: Path) -> None:
    """With a scale on every root and the rules run again, no layer lacks a scale but what graph outputs keep."""
    made = translate(str(need_shared(path)))
    table = made.scales.fork()
    for cause in made.causes.causes:
        table.infer(cause.tensor, 0.9 / 127, Origin("try"))
    infer_scales(Context(made.graph, made.types, table, scale_policy(made.options)), Diagnostics())
    after = make_plan(made.graph, made.types, table, frozenset(), {})
    assert [layer.name for layer in after if layer.avoidable] == []


def test_cost_grows_with_the_network_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales are looked up a bounded number of times for each node, whatever the size."""
    calls = 0
    plain = Context.scale

    def counting(self: Context, tensor: str) -> Optional[float]:
        nonlocal calls
        calls += 1
        return plain(self, tensor)

    counts = []
    for blocks in (50, 200):
        block = "c{0} = Conv ({1}, w) g{0} = Sigmoid (c{0}) m{0} = Mul (c{0}, g{0}) "
        made = causes_of(
            "".join(block.format(i, f"m{i - 1}" if i else "xq") for i in range(blocks)) + f"y = Relu (m{blocks - 1})"
        )
        monkeypatch.setattr(Context, "scale", counting)
        calls = 0
        find_root_causes(Context(made.graph, made.types, made.scales, scale_policy(made.options)), made.plan, str, None)
        monkeypatch.setattr(Context, "scale", plain)
        counts.append(calls)
        assert _explained(made.causes) == 3 * blocks
    assert 0 < counts[1] < 5 * counts[0]
