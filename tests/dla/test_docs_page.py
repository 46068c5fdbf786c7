"""docs/dla_rules.md and docs/tables/dla_networks.md are what benchmarks/dla_rewrites.py makes of the program as it is."""

from __future__ import annotations

import dataclasses

import onnx
import pytest

from benchmarks import dla_rewrites, no_ops
from benchmarks.dla_rewrites import (
    EXAMPLE_MODEL,
    OPTIONS,
    PAGE,
    RULES_PAGE,
    codes_of,
    operators,
    page,
    rules,
    zoo_table,
)
from qdq_translator import translate
from qdq_translator.translation.passes.dla import RULES
from tests.conftest import ZOO, need_shared


def test_rules_are_up_to_date() -> None:
    text = RULES_PAGE.read_text(encoding="utf-8")
    assert page(page(text, "rules", rules()), "operators", operators()) == text
    assert all(f"\n### {module.RULE}" in text for module in RULES)
    # the number of a rule that is gone (D8: the Mean is a case of D9; Pad, Resize and Concat are cases of D23) is not used again
    assert {module.RULE for module in RULES} == {f"D{n}" for n in range(1, len(RULES) + 5)} - {
        "D8",
        "D10",
        "D12",
        "D20",
    }


def predicted(text: str) -> list[list[str]]:
    """Rows of the table without the columns that ONNX Runtime computes, and the lines below it."""
    text = text.partition("<!-- table -->\n")[2].partition("<!-- end of table -->")[0]
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] or [line] for line in text.splitlines())
    return [[*row[:6], *row[10:]] for row in cells]


def test_table_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    need_shared(ZOO)
    monkeypatch.setattr(dla_rewrites, "difference", lambda before, after: 0.0)
    monkeypatch.setattr(dla_rewrites, "codes_of", lambda *_: dla_rewrites.Codes(0, 100.0, 100.0, 100.0, None, 0))
    text = PAGE.read_text(encoding="utf-8")
    assert len(predicted(text)) > 40
    assert predicted(page(text, "table", zoo_table(ZOO / "mini"))) == predicted(text)


@pytest.mark.parametrize("stem", no_ops.WITH_CASTS)
def test_f7_a_cast_in_every_quantizer_costs_nothing(stem: str) -> None:
    """As ModelOpt's PyTorch exports have it: the translation is that of the network without them."""
    explicit = onnx.load(need_shared(ZOO / "mini" / f"{stem}.onnx"))
    plain, made = (translate(m, no_ops.OPTIONS) for m in (explicit, no_ops.with_casts(explicit)))
    before = no_ops.without(no_ops.with_casts(explicit))
    assert plain.dla is not None and made.dla is not None and before.dla is not None
    assert [n.op_type for n in made.graph.nodes] == [n.op_type for n in plain.graph.nodes]
    assert sorted(made.tensor_scales.values()) == sorted(plain.tensor_scales.values())
    assert made.dla.subgraphs == plain.dla.subgraphs < before.dla.subgraphs - 40


def test_f7_f9_no_cast_is_left_in_the_zoo() -> None:
    rows = no_ops.table(need_shared(ZOO) / "mini").splitlines()[2:]
    casts = [row.split(" | ")[3] for row in rows]
    assert sum(cell != "0" for cell in casts) >= 7 and all(cell.endswith("0") for cell in casts)


def test_codes_are_compared_by_tensor() -> None:
    """D5 and D16 round nothing else than before; with other scales codes differ, and nearer ones to the Q/DQ model's are told."""
    before = translate(EXAMPLE_MODEL, OPTIONS)
    rewritten = dataclasses.replace(OPTIONS, dla_rewrites=True, dla_output="4d")
    same = codes_of(EXAMPLE_MODEL, before, translate(EXAMPLE_MODEL, rewritten))
    assert same.tensors > 5 and (same.equal, same.first, same.most) == (100.0, None, 0)
    assert same.before == same.after < 100
    finer = codes_of(EXAMPLE_MODEL, before, translate(EXAMPLE_MODEL, dataclasses.replace(OPTIONS, unify_scales="off")))
    assert finer.equal < 100 and finer.first is not None and finer.most > 0
    assert finer.after > finer.before + 10
