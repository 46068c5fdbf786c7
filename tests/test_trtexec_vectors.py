"""The grammar model in trtexec_grammar.py reproduces what the real option parsers, matcher and readers recorded."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import pytest

from tests import trtexec_grammar as grammar
from tests.conftest import DATA as FOLDER

DATA = json.loads(gzip.decompress((FOLDER / "trtexec_vectors.json.gz").read_bytes()))
"""What trtexec's own option parsers, network set-up and cache reader made of each (fact 3.19)."""


def entries(kind: str) -> list[Any]:
    return [
        pytest.param(entry, version, id=f"{entry['id']}-{version}")
        for entry in DATA[kind]
        for version in grammar.VERSIONS
    ]


def abridged(fields: dict[str, Any]) -> dict[str, Any]:
    """Long layer maps are recorded as count and digest."""
    result = dict(fields)
    for key in ("layerPrecisions", "layerOutputTypes", "layerDeviceTypes"):
        layers = fields.get(key, {})
        if len(layers) > 200 or any(len(name) > 1000 for name in layers):
            lines = "".join(f"{n}\t{layers[n]}\n" for n in sorted(layers, key=lambda n: n.encode()))
            result[key] = {"count": len(layers), "sha256": hashlib.sha256(lines.encode()).hexdigest()}
    return result


def normal(result: dict[str, Any]) -> dict[str, Any]:
    """Lines about several tensors come in hash order, so a log is compared as a sorted list."""
    result = {key: value for key, value in result.items() if value not in ([], None) or key in ("defaultDevice",)}
    if "log" in result:
        result["log"] = sorted(result["log"])
    if "fields" in result:
        result["fields"] = abridged(result["fields"])
    return result


def only_changes(fields: dict[str, Any], version: str) -> dict[str, Any]:
    defaults = DATA["defaults"][version]
    return {key: value for key, value in fields.items() if value != defaults[key]}


def test_the_recorded_versions_are_all_modelled() -> None:
    assert DATA["versions"] == list(grammar.VERSIONS)
    assert [len(DATA[kind]) for kind in ("options", "wildcards", "caches", "setup")] == [135, 14, 25, 30]


@pytest.mark.parametrize(("entry", "version"), entries("options"))
def test_options(entry: dict[str, Any], version: str) -> None:
    got = grammar.parse(entry["argv"], version)
    if "fields" in got:
        got["fields"] = only_changes(got["fields"], version)
    recorded = dict(entry["result"][version])
    if "unknown" in recorded:
        recorded["unknown"] = sorted(recorded["unknown"])
    assert normal(got) == normal(recorded)
    longest = max(len(argument.encode()) for argument in entry["argv"])
    assert (longest > grammar.ARGUMENT_LIMIT) == bool(entry.get("exceeds_linux_argument_limit"))


@pytest.mark.parametrize(("entry", "version"), entries("wildcards"))
def test_wildcards(entry: dict[str, Any], version: str) -> None:
    recorded = entry["result"][version]
    if version == "8.6":
        assert set(recorded) == {"note"}
        for name in entry["names"]:
            expected = [name] if name in entry["patterns"] else ["*"] if "*" in entry["patterns"] else []
            assert grammar.candidates(entry["patterns"], name, version) == expected
        return
    for pattern, results in recorded["matches"].items():
        assert {name: grammar.matches(pattern, name) for name in results} == results
    for name, key in recorded["found"].items():
        if name in recorded["ambiguous"]:  # unspecified which (hash order): only membership can be asserted
            assert key in grammar.candidates(entry["patterns"], name, version)
            with pytest.raises(ValueError, match="ambiguous"):
                grammar.find(entry["patterns"], name, version)
        else:
            assert grammar.find(entry["patterns"], name, version) == key


@pytest.mark.parametrize(("entry", "version"), entries("caches"))
def test_caches(entry: dict[str, Any], version: str) -> None:
    recorded = entry["result"][version]
    if recorded["status"] == "error":
        with pytest.raises(ValueError) as caught:
            grammar.read_cache(entry["text"])
        assert caught.value.args == (recorded["error_type"], recorded["error"])
        return
    assert recorded["status"] == "ok"
    got = grammar.read_cache(entry["text"])
    assert got == {name: scale["bits"] for name, scale in recorded["scales"].items()}
    for name, scale in recorded["scales"].items():
        assert grammar.bits_to_float(got[name]) == pytest.approx(float(scale["value"]), rel=1e-8, nan_ok=True)


@pytest.mark.parametrize(("entry", "version"), entries("setup"))
def test_setup(entry: dict[str, Any], version: str) -> None:
    got = grammar.setup(entry["argv"], entry["network"], entry.get("cache"), version)
    assert normal(got) == normal(entry["result"][version])
