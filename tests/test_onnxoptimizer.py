"""Rule F4: the onnxoptimizer backend gives models that compute what the native ones compute."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import MissingDependency
from tests.explicit_reference import assert_equal_function, in_float32, random_inputs, run
from tests.test_zoo_function import MODELS, REFUSED, options_for

INSTALLED = importlib.util.find_spec("onnxoptimizer") is not None
needs_it = pytest.mark.skipif(
    not INSTALLED, reason="SKIPPED: onnxoptimizer 0.3.2 is installed only on Python 3.9 x86-64"
)


@needs_it
@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_equals_native(path: Path) -> None:
    native = translate(path, options_for(path))
    other = translate(path, options_for(path, graph_optimizer="onnxoptimizer"))
    assert other.tensor_scales == native.tensor_scales
    assert other.fp16_nodes == native.fp16_nodes
    assert [(n.name, n.op_type, list(n.outputs)) for n in other.graph.nodes] == [
        (n.name, n.op_type, list(n.outputs)) for n in native.graph.nodes
    ]
    assert [w.reproduced for w in other.weights] == [w.reproduced for w in native.weights]
    feed = random_inputs(native.model)
    onnx.checker.check_model(other.model)
    assert_equal_function(run(in_float32(native.model), feed), run(in_float32(other.model), feed))


@pytest.mark.skipif(INSTALLED, reason="the package is installed here")
def test_missing_package_is_explained(tmp_path: Path) -> None:
    from qdq_translator.commands.located import EXAMPLE_MODEL

    with pytest.raises(MissingDependency, match="native"):
        translate(EXAMPLE_MODEL, TranslateOptions(graph_optimizer="onnxoptimizer"))
