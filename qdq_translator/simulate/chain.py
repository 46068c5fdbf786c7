"""The simulations of a network's parts, one behind the other as one network."""

from __future__ import annotations

import dataclasses
from typing import Mapping

import onnx

from qdq_translator.simulate.implicit import Simulated


def chained(parts: Mapping[str, Simulated], whole: Simulated) -> Simulated:
    """`whole` with the network that its parts make together. parts: role -> simulation, in the order in which they run; they
    meet in tensors of the same name."""
    ends = (*whole.model.graph.input, *whole.model.graph.output)
    result = onnx.ModelProto(ir_version=whole.model.ir_version, opset_import=whole.model.opset_import)
    result.graph.name = "parts"
    result.graph.input.extend(whole.model.graph.input)
    result.graph.output.extend(whole.model.graph.output)
    for role, part in parts.items():
        own = onnx.compose.add_prefix(part.model, f"{role}/", rename_inputs=False, rename_outputs=False)
        result.graph.node.extend(own.graph.node)
        result.graph.initializer.extend(own.graph.initializer)
        result.graph.value_info.extend(own.graph.value_info)
    made = {name for node in result.graph.node for name in node.output}.union(v.name for v in result.graph.input)
    missing = [value.name for value in ends if value.name not in made]
    assert not missing, missing
    return dataclasses.replace(whole, model=result)
