"""How much is done for a node and for a byte of weights, counted: whatever the machine does, the counts are the same."""

from __future__ import annotations

import cProfile
import tracemalloc
from pathlib import Path
from types import CodeType

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.networks import chain
from qdq_translator import graph as graph_module
from qdq_translator import translate

MOST_CALLS_PER_CONV = 1300
"""Of our own functions, for the seven nodes of a quantized Conv with BatchNormalization and Relu, plan, report and files
included."""
MOST_COPIED = 5.1
"""Bytes that become an array or a tensor, for a byte of float weights."""
MOST_HELD = 1.4
"""Bytes of Python and NumPy at once, for a byte of float weights (ONNX's own memory, which holds the file once, is not counted)."""


def calls(convs: int, folder: Path) -> dict[tuple[str, int, str], int]:
    """(file, line, function) of ours -> how often it is called to translate a chain."""
    path = folder / f"chain{convs}.onnx"
    onnx.save(chain(convs, channels=4), path)
    translate(path).save(folder / "first")  # what is read once for a process
    profile = cProfile.Profile()
    profile.enable()
    translate(path).save(folder / "out")
    profile.disable()
    return {
        (
            entry.code.co_filename.rpartition("qdq_translator/")[2],
            entry.code.co_firstlineno,
            entry.code.co_name,
        ): entry.callcount
        for entry in profile.getstats()
        if isinstance(entry.code, CodeType) and "/qdq_translator/" in entry.code.co_filename
    }


def test_calls_per_node_do_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDQ_TRANSLATOR_CHECK_PASSES", raising=False)
    small, large = calls(100, tmp_path), calls(1000, tmp_path)
    hot = {name: count for name, count in large.items() if count >= 1000}
    print(sorted(((c, n) for n, c in large.items()), reverse=True)[:45])
    assert len(hot) > 50
    grown = {name: (small.get(name, 0), count) for name, count in hot.items() if count > 1.05 * 10 * small.get(name, 0)}
    assert not grown
    assert sum(large.values()) <= 1.05 * 10 * sum(small.values())
    assert sum(large.values()) <= 1000 * MOST_CALLS_PER_CONV


def wide(folder: Path) -> tuple[Path, int]:
    """A network of three wide layers, and the bytes of its weights."""
    made = chain(3, channels=256)
    path = folder / "wide.onnx"
    onnx.save(made, path)
    return path, sum(numpy_helper.to_array(t).nbytes for t in made.graph.initializer if len(t.dims) == 4)


def test_bytes_copied_for_a_byte_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDQ_TRANSLATOR_CHECK_PASSES", raising=False)
    path, weights = wide(tmp_path)
    copied = 0
    to_array, from_array = graph_module.to_array, graph_module.tensor_from_array

    def counted_array(tensor: onnx.TensorProto) -> np.ndarray:
        nonlocal copied
        values = to_array(tensor)
        copied += values.nbytes
        return values

    def counted_tensor(values: np.ndarray, name: str) -> onnx.TensorProto:
        nonlocal copied
        copied += values.nbytes
        return from_array(values, name)

    monkeypatch.setattr(graph_module, "to_array", counted_array)
    monkeypatch.setattr(graph_module, "tensor_from_array", counted_tensor)
    translate(path).save(tmp_path / "out")
    assert weights < copied < MOST_COPIED * weights


def test_bytes_held_for_a_byte_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDQ_TRANSLATOR_CHECK_PASSES", raising=False)
    path, weights = wide(tmp_path)
    translate(path)
    tracemalloc.start()
    try:
        translate(path).save(tmp_path / "out")
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < MOST_HELD * weights
