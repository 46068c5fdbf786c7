"""Rule R1: the placement of a network on DLA and GPU."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any, Optional, Sequence

import onnx
import pytest

from benchmarks.families import FAMILIES, Net
from qdq_translator import TranslateOptions
from qdq_translator.api import requests
from qdq_translator.core.command_options import PlanOptions
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.translation import translator
from qdq_translator.translation.files.trtexec import trtexec_arguments
from qdq_translator.translation.files.trtexec.checks import prepare
from qdq_translator.translation.files.trtexec.request import BuildRequest
from qdq_translator.translation.planning import decision, earned, regions
from qdq_translator.translation.planning.min_cut import Crossing, Cut, Prices
from qdq_translator.translation.report.terminal_summary import time_lines
from qdq_translator.translation.targets.cost.estimate import Exchange
from qdq_translator.translation.targets.dla.verdicts import MAX_LOADABLES
from qdq_translator.translation.targets.precision import LayerPlan
from qdq_translator.translation.translator import Translation, prepared, translate


def cost(chosen: Sequence[bool], first: Prices, second: Prices, crossings: Sequence[Crossing]) -> int:
    """The price of an assignment."""
    total = sum(((a if on else b) or 0) for on, a, b in zip(chosen, first, second))
    paid = (one for one in crossings if any(chosen[reader] != chosen[one.maker] for reader in one.readers))
    return total + sum(one.price for one in paid)


@pytest.mark.parametrize("seed", range(20))
def test_the_minimum_cut_is_the_cheapest_of_all_assignments(seed: int) -> None:
    """1,000 small graphs against every assignment, and with a part that is kept on the first device; among equal ones it
    takes the one with most parts there."""
    chance = random.Random(seed)
    for _ in range(50):
        count = chance.randint(1, 9)
        price = [chance.randint(0, 9) for _ in range(2 * count)]
        first: list[Optional[int]] = [None if chance.random() < 0.2 else value for value in price[:count]]
        second = [value if one is None or chance.random() < 0.9 else None for one, value in zip(first, price[count:])]
        crossings = [
            Crossing(
                maker, [chance.randrange(maker + 1, count) for _ in range(chance.randint(1, 3))], chance.randint(0, 6)
            )
            for maker in range(count - 1)
            for _ in range(chance.randint(0, 2))
        ]
        places = [[on for on, able in ((True, a), (False, b)) if able is not None] for a, b in zip(first, second)]
        every = list(itertools.product(*places))
        least = min(cost(one, first, second, crossings) for one in every)
        most = max(sum(one) for one in every if cost(one, first, second, crossings) == least)
        cut = Cut(first, second, crossings)
        found = cut.cheapest()
        assert tuple(found) in every and cost(found, first, second, crossings) == least and sum(found) == most
        free = [part for part in range(count) if len(places[part]) == 2]
        if free:
            kept = chance.choice(free)
            found = cut.cheapest(kept)
            least = min(cost(one, first, second, crossings) for one in every if one[kept])
            assert found[kept] and cost(found, first, second, crossings) == least


def test_a_long_chain_with_skip_connections_is_exact_in_little_time() -> None:
    """10,000 parts: as dynamic programming over the chain."""
    chance = random.Random(0)
    count = 10_000
    first: list[Optional[int]] = [None if chance.random() < 0.05 else chance.randint(0, 99) for _ in range(count)]
    second: list[Optional[int]] = [chance.randint(0, 99) for _ in range(count)]
    crossings = [Crossing(index, (index + 1,), 150) for index in range(count - 1)]
    on, off = 0.0, 0.0
    for index, (a, b) in enumerate(zip(first, second)):
        paid = 150 if index else 0
        on, off = min(on, off + paid) + (float("inf") if a is None else a), min(off, on + paid) + (b or 0)
    assert cost(Cut(first, second, crossings).cheapest(), first, second, crossings) == min(on, off)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_tensors_into_and_out_of_a_fixed_region_share_the_high_end(share: float) -> None:
    """Layers 2 and 3 are one region that stays on the GPU, with a part each."""
    ends = ((0, [1]), (0, [2, 1]), (1, [3]), (2, [0]), (3, [0, 1]))
    between = [Exchange("", maker, readers, None) for maker, readers in ends]
    more = round(share * (regions.HIGH - regions.START) * 1e6)
    nothing: Any = []
    problem = regions._Problem(
        makers=nothing,
        layers=[],
        parts=[],
        owner=[0, 1, 2, 3],
        between=between,
        prices=[1, 2, 3, 4, 5],
        clusters=[],
        islands=[-1, -1, 0, 0],
        first_of={0: 2},
        whole=None,
    )
    apart = [Crossing(0, [1], 1 + more), Crossing(0, [2, 1], 2), Crossing(1, [3], 3), Crossing(2, [0], 4)]
    apart.append(Crossing(3, [0, 1], 5))
    shared = [Crossing(2, [0, 1], more), Crossing(2, [0, 0, 1], more)]
    assert problem.crossings(share) == [*apart, *(shared if share else [])]


# ---------------------------------------------------------------- whole networks

ORIN = {"target": "orin-dla", "platform": "jetpack-6.2"}


def made(network: onnx.ModelProto, **options: Any) -> Translation:
    return translate(network, TranslateOptions(**{**ORIN, "dla_rewrites": True, **options}), assume_scales=True)


def devices(plan: Sequence[LayerPlan]) -> dict[str, str]:
    return {row.name: row.device for row in plan}


@pytest.mark.parametrize("name", sorted(FAMILIES)[::2])
def test_plan_translate_tune_and_what_if_are_one_search_that_makes_nothing_slower(name: str) -> None:
    """The same device for every layer, and at both ends of the transition's price no more time than without the search.
    Where the GPU alone is faster, because the DLA was asked for, this is said."""
    network, asked = FAMILIES[name](), {"board": "agx-orin", "on": "dla"}
    tensors = [value.name for value in network.graph.input] + [
        name for node in network.graph.node for name in node.output
    ]
    given = dict.fromkeys(tensors, 1 / 127)
    best = translate(network, TranslateOptions(**asked), given=given)
    ready = prepared(network, TranslateOptions(**asked), given=given)
    tuned = ready.decided(ready.settings, ready.given_scales.fork(), Diagnostics())
    planned = requests.planned(PlanOptions("", **asked), network)
    assert devices(best.plan) == devices(tuned.plan) == devices(planned.plan)
    plain = translate(network, TranslateOptions(**ORIN), given=given)
    assert (
        best.costs is not None
        and best.costs.ends is not None
        and best.costs.whole is not None
        and tuned.costs is not None
    )
    assert plain.costs is not None and plain.costs.ends is not None and tuned.costs.ends == best.costs.ends
    assert all(now <= before for now, before in zip(best.costs.ends, plain.costs.ends))
    said = " ".join(time_lines(best.rows.cost, on_dla=True))
    assert ("faster if the GPU is free" in said) == (best.costs.whole[0] < best.costs.ends[0])
    assert best.dla is not None and best.dla.subgraphs <= 3
    for row in plain.causes.what_if:
        if row.options == ("--dla_rewrites",):
            alone = translate(network, TranslateOptions(**ORIN, dla_rewrites=True), given=given)
            assert alone.dla is not None and alone.costs is not None and alone.costs.ends is not None
            assert (row.milliseconds, row.gpu_layers) == (alone.costs.ends[1], len(alone.dla.fallbacks))


def test_the_faster_device_is_the_published_one() -> None:
    """ResNet-50 and DETR of one author on AGX Orin, TensorRT 10.3: within the stated errors, INT8."""
    network = FAMILIES["resnet50"]()
    for mode, dla, gpu in (("MAXN", 1.278, 1.013), ("50W", 1.317, 1.436)):
        costs = made(network, power_mode=mode, dla_output="4d").costs
        assert costs is not None and costs.ends is not None and costs.whole is not None
        assert costs.ends == (pytest.approx(dla, rel=0.2),) * 2 and costs.whole[0] == pytest.approx(gpu, rel=0.4)
        assert (costs.whole[0] < costs.ends[0]) == (gpu < dla)
    costs = made(FAMILIES["detr"]()).costs
    assert costs is not None and costs.ends is not None and costs.whole is not None and costs.whole[0] < costs.ends[0]


@pytest.mark.parametrize("name", ["vit_tiny", "monodepth", "unet_attention", "bev", "conformer"])
def test_a_rewrite_without_a_layer_on_the_dla_is_left_out(name: str) -> None:
    """Rule R1, also where the estimate of the rewritten layers on the GPU is the lower one."""
    best = made(FAMILIES[name]())
    assert best.dla is not None and best.costs is not None and best.costs.ends is not None and best.costs.whole
    places = {row.name: row.verdict for row in best.dla.layers}
    for one in best.rewrites.applied:
        left = [places[node.name] for node, _ in one.after if node.name in places]
        assert not left or set(left) != {"gpu"}, one.before
    if not best.dla.subgraphs:
        assert best.costs.ends == (best.costs.whole[0], best.costs.whole[0])
        assert any("No layer is left for the DLA" in warning.message for warning in best.diagnostics.warnings)


@pytest.mark.parametrize("name", ["swin_tiny", "segformer_b0", "resnet50"])
def test_a_network_is_read_and_planned_at_most_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all rewrites, and once more if some are left out: their nodes and those around them are left alone then."""
    counts = {"run_passes": 0, "decide": 0}
    for module, function in ((translator, "run_passes"), (translator, "decide"), (earned, "decide")):
        real = getattr(decision if function == "decide" else module, function)

        def counting(*args: Any, real: Any = real, function: str = function, **more: Any) -> Any:
            counts[function] += 1
            return real(*args, **more)

        monkeypatch.setattr(module, function, counting)
    made(FAMILIES[name]())
    assert counts["run_passes"] == counts["decide"] == (1 if name == "resnet50" else 2)


def test_what_stays_on_the_gpu_is_named_and_built_there(tmp_path: Path) -> None:
    """Convs of a head between products of activations: the config and the command say which layers are on the GPU."""
    b = Net(1, 64, 32, 32)
    x = b.conv("x", 64, 3, act="Relu")
    for _ in range(3):
        x = b.conv(b.act(x, "Gelu"), 64, act="Relu")
    network = b.model(x)
    best = made(network)
    assert best.dla is not None and best.gpu_nodes and best.dla.subgraphs <= 2
    told = next(d for d in best.diagnostics if d.data.get("layers") == best.gpu_nodes)
    assert "faster on the GPU" in told.message and "force" in told.hint
    forced = made(network, dla_rewrites="force")
    assert not forced.gpu_nodes and forced.dla is not None and forced.dla.subgraphs == 4
    files = best.save(tmp_path)
    assert files.read_config()["gpu_nodes"] == best.gpu_nodes
    request = BuildRequest("orin-dla", allow_gpu_fallback=True)
    arguments = {one.flag: one.value for one in trtexec_arguments(prepare(files, request, (10, 3, 0)))}
    assert arguments["--layerDeviceTypes"] == ",".join(f"{name}:GPU" for name in best.gpu_nodes)


def test_more_regions_than_loadables_are_joined() -> None:
    """Large Convs with pointwise layers of the GPU between them: all of them would be 20 regions."""
    b = Net(1, 64, 64, 64)
    x = "x"
    for _ in range(20):
        x = b.op("Erf", b.conv(b.conv(b.conv(x, 256, 3, act="Relu"), 256, 3, act="Relu"), 64, 3, act="Relu"))
    best = made(b.model(b.conv(x, 64)))
    assert best.dla is not None and best.dla.subgraphs <= MAX_LOADABLES
