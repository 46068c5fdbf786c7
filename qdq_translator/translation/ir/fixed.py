"""Graph inputs with one fixed value (`--shapes sr=16000`): each becomes a constant, and an If whose condition is then
known becomes the nodes of the branch that runs."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_translator.core.errors import UserError
from qdq_translator.translation.ir.graph import Graph, Node, every_body
from qdq_translator.translation.ir.weights import to_message

_FEW = 1024
"""Values of a constant that a condition may depend on."""
_BRANCHES = {True: "then_branch", False: "else_branch"}


def fix_inputs(model: onnx.ModelProto, values: Mapping[str, float]) -> None:
    """Fix graph inputs in place. values: graph input -> the value of all its elements. Raises UserError for inputs that
    are missing or have open sizes."""
    graph = model.graph
    inputs = {value.name: value for value in graph.input}
    for name, value in values.items():
        if name not in inputs:
            raise UserError(f"'{name}={value:g}' names no graph input.", f"Inputs are: {', '.join(inputs)}.")
        tensor = inputs[name].type.tensor_type
        if not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            raise UserError(f"'{name}={value:g}' fixes an input of open sizes.", "Only inputs of known shape can be.")
        sizes, dtype = [d.dim_value for d in tensor.shape.dim], helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        graph.input.remove(inputs[name])
        graph.initializer.append(numpy_helper.from_array(np.full(sizes, value, dtype), name))
    while values and any(_unfold(model, node) for node in list(graph.node) if node.op_type == "If"):
        pass


def with_fixed(graph: Graph, values: Mapping[str, float]) -> Graph:
    """The graph with these inputs fixed; it shares large weights. Raises UserError."""
    model, weights = graph.picture()
    few = [name for name, tensor in weights.items() if math.prod(tensor.dims) <= _FEW]
    model.graph.initializer.extend(to_message(weights.pop(name)) for name in few)
    fix_inputs(model, values)
    return Graph.from_picture((model, weights))


def selecting_input(graph: Graph, node: Node) -> str:
    """The graph input that alone decides which branch of an If runs; '' if there is none."""
    pending, found = [node.inputs[0]], set()
    while pending:
        name = pending.pop()
        if name in graph.inputs:
            found.add(name)
        elif name in graph.producer:
            pending += graph.producer[name].reads()
    return found.pop() if len(found) == 1 else ""


def _unfold(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Replaces an If by its branch; False if its condition is not known."""
    condition = _value(model, node.input[0])
    if condition is None:
        return False
    body = onnx.GraphProto()
    body.CopyFrom(next(a.g for a in node.attribute if a.name == _BRANCHES[bool(condition.reshape(-1)[0])]))
    nodes = list(model.graph.node)
    at = next(index for index, other in enumerate(nodes) if other.output == node.output)
    inside = _inside(body, node)
    del model.graph.node[at:]
    model.graph.node.extend([*inside, *nodes[at + 1 :]])
    model.graph.initializer.extend(body.initializer)
    return True


def _inside(body: onnx.GraphProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes of a branch, which make the outputs of the If. Renames what the branch makes."""
    outer = node.name or node.output[0]
    made = {name for inner in body.node for name in inner.output if name}
    rename = {name: f"{outer}/{name}" for name in (*made, *(tensor.name for tensor in body.initializer))}
    copies = []
    for end, target in zip([value.name for value in body.output], node.output):
        if end in made and rename[end] not in node.output:
            rename[end] = target
        else:  # an outer tensor, a constant, or a second output
            copies.append(helper.make_node("Identity", [rename.get(end, end)], [target], f"{outer}/{target}"))
    _rename(body, rename)
    for inner in body.node:
        inner.name = f"{outer}/{inner.name}" if inner.name else ""
    return [*body.node, *copies]


def _rename(body: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames tensors in a body and in those inside it."""
    for graph in (body, *every_body(body.node)):
        for node in graph.node:
            for ends in (node.input, node.output):
                ends[:] = [names.get(name, name) for name in ends]
        for value in (*graph.initializer, *graph.output):
            value.name = names.get(value.name, value.name)


def _value(model: onnx.ModelProto, name: str) -> Optional[np.ndarray]:
    """The value of a tensor that constants alone determine; None for others."""
    from onnx.reference import ReferenceEvaluator  # only networks with fixed inputs need it

    known = {tensor.name: tensor for tensor in model.graph.initializer}
    makers = {output: node for node in model.graph.node for output in node.output}
    needed = _ancestors(name, makers)
    nodes = [node for node in model.graph.node if not needed.isdisjoint(node.output)]
    if not needed <= known.keys() | makers.keys() or any(True for _ in every_body(nodes)):
        return None
    result, values = helper.make_empty_tensor_value_info(name), [known[n] for n in known if n in needed]
    part = helper.make_model(
        helper.make_graph(nodes, "condition", [], [result], values), opset_imports=model.opset_import
    )
    found: Any = ReferenceEvaluator(part).run(None, {})
    return np.asarray(found[0])


def _ancestors(name: str, makers: Mapping[str, onnx.NodeProto]) -> set[str]:
    """The tensor and all that it is computed from."""
    needed, pending = {name}, [name]
    while pending:
        maker = makers.get(pending.pop())
        more = {one for one in maker.input if one} - needed if maker is not None else set()
        needed |= more
        pending += more
    return needed
