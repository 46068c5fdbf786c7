"""How much is done for a node and for a byte of weights, counted: whatever the machine does, the counts are the same."""

from __future__ import annotations

import cProfile
import tracemalloc
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.networks import chain
from qdq_translator.translation.ir import qparams
from qdq_translator.translation.ir import weights as weights_module
from qdq_translator.translation.translator import translate

MOST_CALLS_PER_CONV = 1750
"""Of our own functions, for the seven nodes of a quantized Conv with BatchNormalization and Relu, plan, report and files
included: 1,650, of which the readers of ranges (S3) and reading the files back take 400 (1,250 before). The check of the
function (V1), which runs the network, is not counted."""
MOST_MADE = 2.6
"""Bytes of quantized values and weights that are computed, for a byte of float weights: the quantized values once, the weights to
check and to write them."""
MOST_HELD = 1.35
"""Bytes of Python and NumPy at once, for a byte of float weights, the file among them."""


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


def test_bytes_made_for_a_byte_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDQ_TRANSLATOR_CHECK_PASSES", raising=False)
    path, weights = wide(tmp_path)
    made = 0
    in_blocks, message_of = qparams.in_blocks, weights_module.message_of

    def counted_blocks(*arguments: Any) -> np.ndarray:
        nonlocal made
        values = in_blocks(*arguments)
        made += values.nbytes
        return values

    def counted_message(values: np.ndarray, name: str) -> onnx.TensorProto:
        nonlocal made
        made += values.nbytes
        return message_of(values, name)

    monkeypatch.setattr(qparams, "in_blocks", counted_blocks)
    monkeypatch.setattr(weights_module, "message_of", counted_message)
    translate(path).save(tmp_path / "out")
    assert weights < made < MOST_MADE * weights


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
