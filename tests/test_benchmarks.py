"""The benchmarks' command lines on a small network; the figures themselves are the machine's."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import dla_rewrites, growth, readme, rewrites, size
from benchmarks.measure import Run
from benchmarks.translate import Result, made, measure


def test_measure(tmp_path: Path) -> None:
    path = made("chain", tmp_path, "5")
    result = measure(path, 1)
    assert (result.network, result.nodes, result.size) == ("chain-5", 35, path.stat().st_size)
    assert result.seconds > 0 and result.ratio > 0.5 and result.other is None
    assert result.peak > 10 * 2**20


def test_another_translator_is_measured_with_its_own_command(tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import sys; assert [a.split('=')[0] for a in sys.argv[1:]] == ['--input_onnx_models', '--output_dir']"
    )
    other = measure(made("chain", tmp_path, "2"), 1, [sys.executable, str(script)]).other
    assert other is not None and other > 0


def test_every_module_counts_for_one_capability() -> None:
    counted = size.by_capability(size.ROOT / "qdq_translator")
    assert all(modules for modules, _, _ in counted.values())
    assert sum(lines for _, lines, _ in counted.values()) == size.rows(size.ROOT)["lines"]


def test_table_goes_into_the_readme() -> None:
    result = Result("chain-9", 1234, 3 * 2**20, 1.256, 2.04, 150 * 2**20, 1.9)
    assert readme.row("chain of 9", result) == "| chain of 9 | 1,234 | 3.0 MiB | 1.26 s | 2.0 | 150 MiB | 50.0 |\n"
    old = f"# a\n\n{readme.HEADER}PERFORMANCE_TABLE\n\n| other | table |\n"
    table = readme.HEADER + readme.row("chain of 9", result)
    new = readme.with_table(old, table)
    assert new == f"# a\n\n{table}\n| other | table |\n"
    assert readme.with_table(new, table) == new
    with pytest.raises(ValueError, match="not one performance table"):
        readme.with_table("# a\n", table)


def test_the_page_has_the_table() -> None:
    text = readme.PAGE.read_text(encoding="utf-8")
    assert readme.with_table(text, "HERE\n").count("HERE") == 1


def test_growth_is_a_slope_in_logarithms() -> None:
    sizes = [100.0, 300.0, 1000.0]
    assert growth.slope(sizes, [7 * x for x in sizes]) == pytest.approx(1)
    assert growth.slope(sizes, [x**2 / 9 for x in sizes]) == pytest.approx(2)
    points = [
        growth.Point("a", int(7 * x), int(x**2 * 2**20), Run(1.0, int(2**20 * x), x / 50), Run(1.0, 2**20, 1.0))
        for x in sizes
    ]
    drawn = ElementTree.fromstring(growth.picture(points, points))
    words = [e.text for e in drawn.iter() if e.tag.endswith("text")]
    assert words.count("translate: slope 1.00") == 2 and words.count("translate: slope 0.50") == 2
    assert words.count("load + save: slope 0.00") == 4
    assert len([e for e in drawn.iter() if e.tag.endswith("circle")]) == 24


def test_weights_have_the_size_that_was_asked_for(tmp_path: Path) -> None:
    size = made("chain", tmp_path, f"{growth.CONVS},{growth.channels(3)}").stat().st_size
    assert size == pytest.approx(3 * 2**20, rel=0.05)


def test_the_page_has_a_place_for_every_table() -> None:
    text = growth.PAGE.read_text(encoding="utf-8")
    for mark in ("growth", "others", "profile of 1,000 Convs", "profile of 10,000 Convs", "profile of ResNet-50"):
        once = growth.replaced(text, mark, "| HERE |\n")
        assert once.count("HERE") == 1 and growth.replaced(once, mark, "| HERE |\n") == once
    with pytest.raises(ValueError, match="no place"):
        growth.replaced(text, "gone", "")


def test_profile_names_the_passes(tmp_path: Path) -> None:
    parts = growth.profile(made("chain", tmp_path, "200"), tmp_path / "out")  # of 5 a pass takes below a hundredth
    assert parts["imports"] > 0 and any(name.startswith("pass: ") for name in parts)


def test_dla_rewrites_does_not_write_over_rows_that_it_did_not_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- full -->\n| network | ms |\n| --- | ---: |\n| a | 1 |\n| b | 2 |\n<!-- end of full -->\n")
    before = page.read_bytes()
    monkeypatch.setattr(dla_rewrites, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["dla_rewrites", "--full", str(tmp_path), "--write"])
    with pytest.raises(SystemExit) as left:
        dla_rewrites.main()
    assert left.value.code == 2 and page.read_bytes() == before
    assert dla_rewrites.rows_lost("full", "| network | ms |\n| a | 3 |\n") == ["b"]


@pytest.mark.parametrize("name", ["ASPP Conv", "FSRCNN's tail"])
def test_no_form_is_slower_with_the_rewrites_that_stay(name: str) -> None:
    row, (plain, every, kept) = rewrites.times(name, rewrites.FORMS[name]())
    assert kept <= plain < every / 10 and " 1 of D" in row


def test_a_clamp_that_never_acts_changes_nothing() -> None:
    case = rewrites.denoiser("Selu")
    wide, narrow = (rewrites.value_of(case, rewrites.clamped(case.model, bound)) for bound in (100.0, 0.1))
    assert wide == rewrites.value_of(case, case.model) > narrow + 1
