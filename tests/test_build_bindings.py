"""`build` and the on-device kit against the real Python bindings of four TensorRT versions.

Nothing is built: the bindings import over a stub library, and doubles stand for the objects they cannot make. A double
refuses what the real class of that version does not have, so a sequence that passes here is one the binding takes. What is asked
of each version is a transcript (tests/data/transcripts/builder-*.txt), which also needs no bindings: test_transcripts.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.records import differences
from tests.transcripts import SESSIONS, kept, shown
from tests.trt_bindings import scenarios, surface
from tests.trt_bindings.wheels import NEWEST_PYTHON, WHEELS, NotHere, prepare, run_scenarios

IMPLICIT = ("8.6.1", "10.3.0", "10.16.1")


@pytest.fixture(scope="module", params=WHEELS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the scenarios of one version found; `version` is ours, three numbers."""
    version = request.param
    if sys.version_info[:2] > NEWEST_PYTHON.get(version, sys.version_info[:2]):
        pytest.skip(f"TENSORRT BINDINGS {version} NOT TESTED: they do not exist for this Python")
    named = os.environ.get("QDQ_TRT_CACHE")
    try:
        place = prepare(version, Path(named) if named else Path(request.config.cache.mkdir("trt_bindings")))
    except NotHere as reason:
        if os.environ.get("QDQ_REQUIRE_TRT_BINDINGS") == "1":
            pytest.fail(f"TENSORRT BINDINGS {version} NOT TESTED: {reason}")
        pytest.skip(f"TENSORRT BINDINGS {version} NOT TESTED: {reason}")
    return {**run_scenarios(place, tmp_path_factory.mktemp(f"trt_{version}")), "version": version}


def test_the_real_bindings_have_what_is_recorded(found: dict[str, Any]) -> None:
    recorded = surface.recorded()[found["version"]]
    assert recorded["__version__"].startswith(found["version"]) and found["surface"] == recorded


def test_the_real_bindings_are_asked_what_is_recorded(found: dict[str, Any]) -> None:
    different = differences(kept(_session(found["version"])), shown(scenarios.lines(found)))
    assert not different, different


@pytest.mark.parametrize("version", IMPLICIT)
def test_what_the_records_must_show(version: str) -> None:
    """Whoever writes them anew keeps this: 8.6 names batches and has no monitor; nobody is asked for data; every cache is
    served under the number of its TensorRT; a DLA has either fallback or direct input and output."""
    parts = {part.split(":")[0]: part for part in "\n".join(kept(_session(version))).split("== ")}
    old = version == "8.6.1"
    assert (
        f'["builder.create_network", {int(old)}]' in parts["gpu"] and ('"has_progress": true' in str(parts)) is not old
    )
    number = {"8.6.1": "8601", "10.3.0": "100300", "10.16.1": "101601"}[version]
    assert all(f"TRT-{number}-" in part for part in parts.values() if '["calibrator"' in part)
    assert [name for name, part in parts.items() if '["batch", false]' in part] == [
        "cache_rejected",
        "cache_rejected_but_built",
    ]
    for name, part in parts.items():
        if '"config.DLA_core ="' in part:
            assert ('"GPU_FALLBACK"' in part) != ('"DIRECT_IO"' in part), name
    assert "Traceback" not in "".join(parts.values())


def test_a_version_without_implicit_int8_builds_what_explicit_writes() -> None:
    text = "\n".join(kept(_session("11.4.0")))
    assert "TensorRT 11.4.0 has no implicit INT8" in text and '["builder.create_network", 1]' in text  # strongly typed
    assert not any(word in text for word in ("int8_calibrator", "set_dynamic_range", '"INT8"', '"FP16"'))


def _session(version: str) -> Any:
    return next(session for session in SESSIONS if session.name == f"builder-{version}")
