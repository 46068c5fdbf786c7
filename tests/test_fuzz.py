"""The part of the campaigns (`python -m tests.fuzz`) that runs every time, and the folder of a translation as a machine
with states. Every find of a campaign has a test of its own, with its smallest model, in test_damage.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from qdq_translator.lab.laboratory import translate
from tests.fuzz import construct, guided
from tests.fuzz.campaign import rng_of, run_cases
from tests.fuzz.faults import contents, killed_at, two_translations
from tests.fuzz.readers import SHAPES, status_of

SEED = 20260101


@pytest.mark.parametrize(
    "kind, cases, least", [("models", 800, 150), ("readers", 200, 18), ("kills", 20, 20), ("constructed", 20, 20)]
)
def test_a_thousand_cases(kind: str, cases: int, least: int) -> None:
    results, finds = run_cases(kind, SEED, range(cases))
    assert not finds, f"python -m tests.fuzz --kind {kind} --seed {SEED} --case {finds[0][0]}: {finds}"
    assert (
        results["translated" if kind in ("models", "constructed") else "read" if kind == "readers" else "kept"] >= least
    )
    assert results.total() == cases and not results["failed"]


@pytest.mark.parametrize("name", guided.FORMATS)
def test_each_format_reads_its_seeds_and_what_was_found(name: str) -> None:
    """Seeds without a refusal, so that fuzzing begins behind the first check; found inputs with a sentence at most."""
    for content in guided.FORMATS[name].seeds():
        guided.read_case(name, content)
    for path in sorted((guided.CORPUS / name).glob("*")):
        guided.read_case(name, path.read_bytes())


@pytest.mark.parametrize("name", ["sidecar", "deploy"])
def test_fuzzing_guided_by_coverage_runs(name: str, tmp_path: Path) -> None:
    """`.ci/run` gives each format longer, `python -m tests.fuzz.guided --seconds 3600` an hour."""
    pytest.importorskip("atheris", reason="SKIPPED FOR LACK OF ATHERIS: inputs are not guided by coverage")
    words = ["-m", "tests.fuzz.guided", name, "--seconds", "3", "--found", str(tmp_path / "found")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split()[1]) > 50


class Folder(RuleBasedStateMachine):
    """Translations are written, killed, damaged, deleted; readers read, or refuse in a sentence; nothing is left over."""

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.folder = Path(self.place.name) / "out"
        self.folder.mkdir()
        self.sets = [_contents_of(index) for index in range(2)]
        self.tampered = False

    @rule(index=st.integers(0, 1))
    def translate(self, index: int) -> None:
        two_translations()[index].save(self.folder)
        assert contents(self.folder) == self.sets[index] and len(list(self.folder.iterdir())) == 5
        self.tampered = False

    @rule(index=st.integers(0, 1), call=st.integers(0, 45))
    def kill(self, index: int, call: int) -> None:
        killed_at(call, lambda: two_translations()[index].save(self.folder))

    @rule(number=st.integers(0, 4))
    def delete(self, number: int) -> None:
        found = sorted(p for p in self.folder.iterdir() if p.is_file())
        if number < len(found):
            found[number].unlink()
            self.tampered = True

    @rule(number=st.integers(0, 4), at=st.integers(0, 10_000), byte=st.integers(0, 255))
    def damage(self, number: int, at: int, byte: int) -> None:
        found = sorted(p for p in self.folder.iterdir() if p.is_file())
        if number < len(found):
            data = bytearray(found[number].read_bytes())
            data[at % len(data)] = byte
            found[number].write_bytes(bytes(data))
            self.tampered = True

    @rule(command=st.sampled_from((("report",), ("report", "--json"), ("trtexec", *SHAPES))))
    def read(self, command: tuple[str, ...]) -> None:
        status = status_of([*command, "-t", str(self.folder)])
        if contents(self.folder) in self.sets:
            assert status == 0
        elif not self.tampered:
            assert status == 1

    @invariant()
    def every_file_is_whole(self) -> None:
        if not self.tampered:
            for name, data in contents(self.folder).items():
                assert data in [written.get(name) for written in self.sets], name

    def teardown(self) -> None:
        self.place.cleanup()


_WRITTEN: dict[int, dict[str, bytes]] = {}


def _contents_of(index: int) -> dict[str, bytes]:
    if index not in _WRITTEN:
        with tempfile.TemporaryDirectory() as name:
            two_translations()[index].save(name)
            _WRITTEN[index] = contents(Path(name))
    return _WRITTEN[index]


TestFolder = Folder.TestCase
TestFolder.settings = settings(
    max_examples=15, stateful_step_count=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fuzz import __main__ as program

    state = tmp_path / "state.json"

    def campaign(cases: int) -> dict[str, Any]:
        arguments = ["fuzz", "--kind", "models", "--cases", str(cases), "--seed", "3", "--state", str(state)]
        monkeypatch.setattr("sys.argv", arguments)
        assert program.main() == 0
        return dict(json.loads(state.read_text()))

    first, second = campaign(10), campaign(30)
    assert (first["cases"], second["cases"]) == (10, 30)
    assert sum(second["results"].values()) == 30
    assert second["results"] == dict(run_cases("models", 3, range(30))[0])


def test_the_judge_of_constructed_networks_notices() -> None:
    """A scale twice as large, and a float network with another constant, are finds."""
    noticed = 0
    for case in range(6):
        network = construct.made(rng_of("noticed", SEED, case))
        first = translate(construct.explicit_of(network))
        doubled = {name: 2 * scale for name, scale in network.scales.items()}
        assert not construct.scale_fault(first, network.scales) and construct.scale_fault(first, doubled)
        assert not construct.function_fault(first, network)
        weights = [name for name in network.float_constants if name.startswith("w")]
        if weights:
            network.float_constants[weights[0]] = network.float_constants[weights[0]] + np.float32(0.01)
            noticed += bool(construct.function_fault(first, network))
    assert noticed
