"""The graph's index: producers and consumers stay true through every edit; damaged models are named, not traced."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from qdq_translator.core.errors import ModelError
from qdq_translator.translation.ir.graph import Graph, Node
from tests.small_models import model

CHAIN = "g (float[2] x) => (float[2] y) { [na] a = Exp(x)  [nb] b = Add(a, k)  [nc] c = Mul(a, b)  [ny] y = Sin(c) }"


def graph(text: str = CHAIN, **arrays: np.ndarray) -> Graph:
    arrays = arrays or {"k": np.ones(2, np.float32)}
    return Graph.from_model(model(text, **arrays))


def check(g: Graph) -> None:
    """What is indexed is what the nodes say."""
    nodes = list(g.nodes)
    assert len(nodes) == len(g) and list(g.nodes_reversed) == nodes[::-1]
    producers = {o: n for n in nodes for o in n.outputs if o}
    assert g.producer == producers
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.reads()):
            readers.setdefault(name, []).append(node)
    for name in {*readers, *g.producer, *g.initializers, *g.inputs}:
        assert {id(n) for n in g.consumers(name)} == {id(n) for n in readers.get(name, [])}, name
        assert g.consumer_count(name) == len(readers.get(name, []))


def test_index() -> None:
    g = graph()
    check(g)
    assert [n.name for n in g.consumers("a")] == ["nb", "nc"]
    assert g.only_consumer("b") is g.producer["c"] and g.only_consumer("a") is None
    assert g.only_consumer("y") is None and g.is_graph_tensor("x") and not g.is_graph_tensor("a")
    assert g.is_constant("k") and not g.is_constant("a") and g.scalar("k") is None


def test_edits_keep_the_index() -> None:
    g = graph()
    b, c = (g.producer[n] for n in "bc")
    g.set_input(c, 0, "x")
    check(g)
    g.set_input(c, 3, "k")
    assert c.inputs == ["x", "b", "", "k"]
    g.set_input(c, 3, "")
    assert c.inputs == ["x", "b"]
    check(g)
    g.insert_after(Node("Abs", ["b"], ["b2"], "nb2"), b)
    g.replace_uses("b", "b2")  # its producer reads itself now, so it gets its own input back
    g.set_inputs(g.producer["b2"], ["b"])
    check(g)
    assert c.inputs == ["x", "b2"]
    g.rename_output(b, "b", "renamed")
    check(g)
    g.insert_after(Node("Neg", ["x"], ["first"], "n0"), None)
    assert next(iter(g.nodes)).name == "n0"
    g.remove(g.producer["first"])
    check(g)
    g.rename_initializer("k", "kk")
    check(g)
    assert b.inputs == ["a", "kk"] and g.initializers["kk"].name == "kk"


def test_what_the_file_says_of_a_constant_goes_with_its_shape() -> None:
    g = graph()
    g.value_info["k"] = helper.make_tensor_value_info("k", 1, [2])
    g.add_initializer("k", np.zeros(2, np.float32))
    assert "k" in g.value_info
    g.add_initializer("k", np.zeros((1, 1), np.float32))
    assert "k" not in g.value_info


def test_detach_leaves_siblings_alone() -> None:
    g = graph("g (float[4] x) => (float[2] y) { a, b = Split(x)  c = Add(a, b)  y = Sin(c) }", unused=np.ones(1))
    g.detach("a")
    g.add_initializer("a", np.ones(2, np.float32))
    split = g.producer["b"]
    assert split.outputs == ["a_unused", "b"] and "a" not in g.producer
    check(g)
    g.detach("c")
    assert "c" not in g.producer and len(g) == 2


def test_removing_while_walking() -> None:
    g = graph()
    seen = []
    for node in g.nodes:
        seen.append(node.name)
        if node.name == "nb":
            g.insert_after(Node("Abs", ["a"], ["new"], "new"), node)
            g.remove(node)
    assert seen == ["na", "nb", "nc", "ny"] and [n.name for n in g.nodes] == ["na", "new", "nc", "ny"]


def test_bodies_are_renamed_and_their_names_never_taken() -> None:
    body = onnx.parser.parse_graph("b () => (float[2] o) { deep = Add(a, k)  o = Exp(deep) }")
    explicit = model("g (float[2] x, bool p) => (float[2] y) { a = Exp(x)  y = Sin(i) }", k=np.ones(2, np.float32))
    explicit.graph.node.insert(1, helper.make_node("If", ["p"], ["i"], "if", then_branch=body, else_branch=body))
    g = Graph.from_model(explicit)
    branch = g.producer["i"]
    assert branch.captured == ("a", "k") and branch.reads() == ["p", "a", "k"]
    check(g)
    assert g.unique_name("deep") == "deep_1" and "deep" in g.body_names()
    g.rename_output(g.producer["a"], "a", "z")
    assert branch.captured == ("z", "k")
    assert all(s.node[0].input[0] == "z" for s in branch.subgraphs())
    check(g)
    g.rename_tensors({"z": "q"})
    assert all(s.node[0].input[0] == "q" for s in branch.subgraphs())
    check(g)


def test_renaming_many_at_once_may_swap() -> None:
    g = graph()
    g.rename_tensors({"a": "b", "b": "a"})
    check(g)
    assert [n.outputs[0] for n in g.nodes] == ["b", "a", "c", "y"]
    assert [list(n.inputs) for n in g.nodes] == [["x"], ["b", "k"], ["b", "a"], ["c"]]


def test_unique_names_are_stable() -> None:
    g = graph()
    assert [g.unique_name("a"), g.unique_name("a"), g.unique_name("free"), g.unique_name("free")] == [
        "a_1",
        "a_2",
        "free",
        "free_1",
    ]
    assert g.unique_name("na") == "na_1" and g.unique_name("") == "_1"


def test_round_trip() -> None:
    explicit = model(CHAIN, k=np.ones(2, np.float32))
    explicit.metadata_props.add(key="author", value="us")
    explicit.graph.doc_string = "doc"
    back = Graph.from_model(onnx.ModelProto.FromString(explicit.SerializeToString())).to_model()
    for node in back.graph.node:
        node.ClearField("doc_string")  # empty is as good as none
    assert list(back.graph.node) == list(explicit.graph.node)
    assert list(back.graph.initializer) == list(explicit.graph.initializer)
    assert back.metadata_props[0].value == "us" and back.graph.doc_string == "doc"
    assert back.producer_name == "qdq-translator"


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(12)))
def test_sorting_any_order(order: list[int]) -> None:
    nodes = [helper.make_node("Add", [f"t{i}", f"t{max(i - 2, 0)}"], [f"t{i + 1}"], f"n{i}") for i in range(12)]
    explicit = model("g (float[2] t0) => (float[2] t12) { t12 = Abs(t0) }")
    del explicit.graph.node[:]
    explicit.graph.node.extend(nodes[i] for i in order)
    g = Graph.from_model(explicit)
    assert [n.name for n in g.nodes] == [f"n{i}" for i in range(12)]
    check(g)


def damaged(what: str) -> onnx.ModelProto:
    m = model(CHAIN, k=np.ones(2, np.float32))
    if what == "cycle":
        m.graph.node[0].input[0] = "c"
    elif what == "missing":
        m.graph.node[1].input[1] = "nowhere"
    elif what == "output":
        m.graph.output[0].name = "lost"
    elif what == "two producers":
        m.graph.node.append(helper.make_node("Abs", ["x"], ["a"], "again"))
    elif what == "input made again":
        m.graph.node.append(helper.make_node("Abs", ["k"], ["x"], "again"))
    elif what == "initializer made again":
        m.graph.node.append(helper.make_node("Abs", ["x"], ["k"], "again"))
    elif what == "two initializers":
        m.graph.initializer.append(m.graph.initializer[0])
    elif what == "two outputs":
        m.graph.output.append(m.graph.output[0])
    elif what == "sparse":
        values = numpy_helper.from_array(np.ones(1, np.float32), "sp")
        indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
        m.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    return m


@pytest.mark.parametrize("what, words", [
    ("cycle", ["cycle", "'n"]),
    ("missing", ["'nowhere'", "'nb'"]),
    ("output", ["'lost'", "not produced by any node"]),
    ("two producers", ["'a'", "twice", "'again'"]),
    ("input made again", ["'x'", "twice"]),
    ("initializer made again", ["'k'", "twice"]),
    ("two initializers", ["'k'", "Two initializers"]),
    ("two outputs", ["'y'", "Two graph outputs"]),
    ("sparse", ["sparse"]),
])  # fmt: skip
def test_damaged_models_are_named(what: str, words: list[str]) -> None:
    with pytest.raises(ModelError) as error:
        Graph.from_model(damaged(what))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert error.value.hint


def test_nodes_of_one_kind_are_edited_one_by_one() -> None:
    explicit = model("g (float[2] x) => (float[2] y) { a = Elu<alpha = 2.0>(x)  b = Elu<alpha = 2.0>(a)  y = Elu(b) }")
    explicit.graph.node[1].doc_string = "second"
    for node in explicit.graph.node[0], explicit.graph.node[2]:
        node.doc_string = "doc"
    g = Graph.from_model(explicit)
    first, second, third = g.nodes
    assert [n.doc for n in g.nodes] == ["doc", "second", "doc"] and not third.attributes
    first.set("alpha", 3.0)
    assert not third.unset("alpha")
    assert [n.get("alpha") for n in g.nodes] == [3.0, 2.0, None]
    assert second.unset("alpha") and not second.attributes and first.get("alpha") == 3.0


def test_readers_stand_in_the_order_of_their_connections() -> None:
    g = graph("g (float[2] x) => (float[2] y) { a = Exp(x)  b = Add(x, x)  c = Sin(x)  y = Sum(a, b, c) }")
    a, b, c, _ = g.nodes
    assert g.consumers("x") == [a, b, c]
    g.set_input(a, 0, "b")
    g.set_input(a, 0, "x")
    assert g.consumers("x") == [b, c, a]
    g.replace_use(b, "x", "c")
    g.replace_use(c, "x", "a")
    assert g.consumers("x") == [a] and g.only_consumer("x") is a
    g.set_input(a, 0, "")
    assert g.consumers("x") == [] and g.consumer_count("x") == 0


def test_constants_of_every_kind() -> None:
    g = graph(
        """g (float[2] x) => (float[2] y) { f = Constant<value_float = 1.5>()  fs = Constant<value_floats = [1.0, 2.0]>()
        i = Constant<value_int = 3>()  ks = Constant<value_ints = [1, 2]>()  t = Constant<value = float[1] {4.0}>()
        w = Constant<value_string = "s">()  y = Exp(x) }""",
        unused=np.ones(1),
    )
    for name, value, kind in [("f", 1.5, "f4"), ("i", 3, "i8"), ("t", 4, "f4")]:
        assert g.scalar(name) == value and g.array(name).dtype == np.dtype(kind)
    np.testing.assert_array_equal(g.array("fs"), np.array([1, 2], np.float32))
    np.testing.assert_array_equal(g.array("ks"), np.array([1, 2]))
    assert g.array("w") is None and g.array("x") is None and g.is_constant("w")


def test_attributes_as_plain_values() -> None:
    node = Node("Op", ["x"], ["y"], text="abc", ints=[1, 2], number=0.5)
    assert (node.get("text"), node.get("ints"), node.get("number"), node.get("none", 7)) == ("abc", [1, 2], 0.5, 7)
    assert Node.from_proto(node.to_proto()).to_proto() == node.to_proto()
    assert Node("Op", [], ["y"], domain="ai.onnx").domain == "" and Node("Op", [], ["y"]).label == "Op of 'y'"
    assert node.to_proto().attribute[0].type == onnx.AttributeProto.STRING
