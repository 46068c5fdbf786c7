"""Agreement with NVIDIA's translator (v0.2.0) where it is right; every difference belongs to a numbered rule.

`EXCEPTIONS` lists, for each model and flag set with a stored reference, how many differences each rule explains. A
difference is put to a rule only after the rule's condition was checked on the model, so a wrong scale cannot hide.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from qdq_translator.translation.translator import Translation, translate
from tests.conftest import SHARED, ZOO, need_shared, zoo_paths
from tests.test_zoo_function import ALL_FLAGS, MODELS, REFUSED, options_for

REFERENCES = ZOO / "reference_outputs"
EXCEPTIONS: dict[str, dict[str, int]] = json.loads(
    (Path(__file__).parent / "data" / "reference_exceptions.json").read_text()
)
CASES = [str(p.relative_to(REFERENCES)) for p in zoo_paths("reference_outputs/*")]


def model_path(stem: str) -> Path:
    return need_shared(next(path for path in MODELS if path.stem == stem))


def reference_cache(folder: Path, stem: str) -> dict[str, str]:
    lines = (folder / f"{stem}_precision_config_calib.cache").read_text().split("\n")[1:]
    return {name: digits for name, _, digits in (line.rpartition(": ") for line in lines) if name}


def to_float(digits: str) -> float:
    return float(struct.unpack(">f", bytes.fromhex(digits))[0])


def no_ops(t: Translation) -> dict[str, list[str]]:
    """Nodes and tensors that rule F7 took out."""
    found = t.diagnostics.of_rule("F7")
    return found[0].data if found else {"nodes": [], "tensors": []}


def missing_rule(t: Translation, name: str, digits: str) -> str:
    """Why a tensor of the reference is not in our cache."""
    graph = t.graph
    if name in no_ops(t)["tensors"]:
        return "F7 changes nothing"
    if name not in graph.producer and name not in graph.inputs:
        return "5 stale name"  # section 5: every name in every emitted file exists
    if name in graph.outputs:
        return "S2 graph output"
    if to_float(digits) == 1.0:
        reader = graph.only_consumer(name)
        assert reader is not None and reader.op_type == "Add"
        other = [n for n in reader.inputs if n != name]
        assert all(n not in t.scales or t.scales[n].origin.rule == "S9" or graph.is_constant(n) for n in other)
        return "S9 partner without scale"
    node = graph.consumers(name)[0]
    producer = graph.producer.get(name)
    if producer is not None and producer.op_type == "ReduceMean":
        axes = producer.get("axes")
        assert axes is None or sorted(axes) != [2, 3]
        return "S6 not spatial"
    if node.op_type == "Sigmoid":
        amax = 127 * (t.scales.value(node.outputs[0]) or 0.0)
        assert not 0.5 < amax < 1
        return "S5 outside (0.5, 1)"
    return f"UNEXPLAINED missing {name}"


def sources(t: Translation, name: str) -> list[str]:
    """The tensors that an inferred scale was made from, all the way back."""
    found, waiting = [], [name]
    while waiting:
        tensor = waiting.pop()
        if tensor in t.scales and not t.scales[tensor].explicit:
            new = [n for n in t.scales[tensor].origin.source.split(", ") if n and n not in found]
            found += new
            waiting += new
    return found


def different_rule(t: Translation, name: str, theirs: float, ours: float, cache: dict[str, str]) -> str:
    """Why a tensor has another scale here."""
    scale = t.scales[name]
    if any(name in d.data["tensor_scales"] for d in t.diagnostics.of_rule("Q8")):
        assert ours < theirs
        return "Q8 smallest of a series"
    if any(d.tensor == name and "--asymmetric" in d.message for d in t.diagnostics.of_rule("Q1")):
        assert ours > theirs
        return "Q1 widened"
    if t.options.asymmetric == "widen":
        return "Q1 widened, passed on" if not scale.explicit else "Q9 clamp"
    if any(d.tensor == name for d in t.diagnostics.of_rule("C1")):
        assert ours > theirs
        return "C1 largest of several"
    if scale.explicit:
        assert t.graph.producer[name].op_type == "Concat" and t.options.infer_concat_scales
        return "S1 explicit scale kept"
    for tensor in sources(t, name):
        made = t.graph.producer.get(tensor)
        if made is not None and made.op_type == "Concat" and t.scales[tensor].explicit:
            assert tensor in cache and to_float(cache[tensor]) != t.scales[tensor].value
            return "S1 explicit scale kept, passed on"
    if scale.origin.rule == "S3":
        assert t.scales.value(scale.origin.source) == ours
        return "S3 of another operator"
    return f"UNEXPLAINED different {name}"


def fp16_rule(t: Translation, name: str, theirs: bool) -> str:
    """Why a node is in only one of the two fp16 lists."""
    plan = {layer.name: layer for layer in t.plan}
    if theirs:
        if name in no_ops(t)["nodes"]:
            return "F7 changes nothing"
        if name not in plan:
            return "5 no such layer"
        layer = plan[name]
        if layer.precision == "none":
            return "5 no float layer"
        assert all(n in t.scales for n in layer.inputs)
        return "5 every input has a scale"
    assert any(n not in t.scales for n in plan[name].inputs)
    parts = {
        new for d in t.diagnostics.of_rule("F8") for old, made in d.data["nodes"].items() for new in made if new != old
    }
    return "F8 part of a layer" if name in parts else "5 input without scale"


def differences(case: str) -> Counter[str]:
    stem, flags = case.split("/")
    more: dict[str, object] = {"inference": "reference", **(ALL_FLAGS if flags.startswith("all") else {})}
    if flags.endswith("_hist") or "hist" in stem:
        more["calibration_type"] = "histogram"
    t = translate(model_path(stem), options_for(model_path(stem), **more))
    theirs = reference_cache(need_shared(REFERENCES / case), stem)
    ours = {name: struct.pack(">f", scale).hex() for name, scale in t.tensor_scales.items()}
    found: Counter[str] = Counter()
    for name, digits in theirs.items():
        if name not in ours:
            found["cache: " + missing_rule(t, name, digits)] += 1
        elif digits != ours[name]:
            found["cache: " + different_rule(t, name, to_float(digits), to_float(ours[name]), theirs)] += 1
    for name in ours:
        if name not in theirs:
            rule = t.scales[name].origin.rule
            assert (rule[0] in "QS" or rule == "F8") and np.isfinite(t.scales[name].value)
            found[f"cache: {rule} added"] += 1
    listed = set(json.loads((REFERENCES / case / f"{stem}_precision_config.json").read_text())["fp16_nodes"])
    for name in listed ^ set(t.fp16_nodes):
        found["fp16: " + fp16_rule(t, name, name in listed)] += 1
    return found


@pytest.mark.parametrize("case", [c for c in CASES if c.split("/")[0] not in REFUSED])
def test_agreement(case: str) -> None:
    assert dict(differences(case)) == EXCEPTIONS.get(case, {})


def test_no_exception_is_unexplained() -> None:
    assert not [rule for rules in EXCEPTIONS.values() for rule in rules if "UNEXPLAINED" in rule]
    if not SHARED.exists():
        pytest.skip("SKIPPED FOR LACK OF DATA: the zoo does not lie beside the project")
    without = [c for c in CASES if c.split("/")[0] not in REFUSED and c not in EXCEPTIONS]
    assert len(without) >= 40, "models that agree in everything"
