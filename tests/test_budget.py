"""Small models that ask for much work, memory or odd files: each is decided within its budget, or refused by name."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions
from qdq_translator.core.errors import ModelError, UsageError, UserError
from qdq_translator.core.formats.files import TranslationFiles, plain_name
from qdq_translator.translation.ir import constants
from qdq_translator.translation.ir.constants import Constants
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.translator import translate
from tests.small_models import model, pair

HEADER = "net (float[1,8] x) => (float[1,8] y)"


def with_scale(lines: str, **arrays: np.ndarray) -> onnx.ModelProto:
    """A pair whose scale `s` is made by `lines` out of constants."""
    return model(f"{HEADER} <int8 z = {{0}}, float c = {{0.5}}> {{ {lines} {pair('x', 'a')} y = Relu(a) }}", **arrays)


def bomb_of_adds(depth: int = 40) -> onnx.ModelProto:
    lines = ["c0 = Identity(c)"] + [f"c{i + 1} = Mul(c{i}, c{i})" for i in range(depth)]
    return with_scale("\n".join(lines) + f"\ns = Identity(c{depth})")


def test_shared_constants_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    evaluate = constants.evaluate
    monkeypatch.setattr(constants, "evaluate", lambda node, *rest: calls.append(node.name) or evaluate(node, *rest))
    explicit = bomb_of_adds(8)
    explicit.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.float32(1.0), "c"))
    translation = translate(explicit)
    # twice: bounds of quantizers are read before they are removed; without sharing it would be 2^8 times
    assert len(calls) <= 2 * 9 and len(set(calls)) in (8, 9)
    assert translation.tensor_scales["x"] == 1.0


def test_shared_constants_under_a_weight_quantizer_are_evaluated_once() -> None:
    lines = ["w0 = Transpose(w)"] + [f"w{i + 1} = Add(w{i}, w{i})" for i in range(40)]
    explicit = model(
        f"{HEADER} <int8 z = {{0}}, float s = {{0.5}}> {{ {' '.join(lines)} "
        f"{pair('w40', 'v')} {pair('x', 'a')} y = MatMul(a, v) }}",
        w=np.full((8, 8), 2.0**-40, np.float32),
    )
    translation = translate(explicit)
    np.testing.assert_array_equal(translation.graph.array("v"), np.full((8, 8), 1.0, np.float32))


def test_a_long_chain_of_constants_needs_no_recursion() -> None:
    lines = ["c0 = Identity(c)"] + [f"c{i + 1} = Identity(c{i})" for i in range(5000)]
    translation = translate(with_scale("\n".join(lines) + "\ns = Identity(c5000)"))
    assert translation.tensor_scales["x"] == 0.5


BOMBS = {
    "Tile": ("s = Tile(c1, n)", {"n": np.array([200_000_000])}),
    "Expand": ("s = Expand(c1, n)", {"n": np.array([1_000_000_000])}),
    "ConstantOfShape": ("s = ConstantOfShape(n)", {"n": np.array([30_000, 30_000])}),
    "Range": ("s = Range(a0, n, a1)", {"a0": np.float32(0), "n": np.float32(1e9), "a1": np.float32(1)}),
    "Pad": ("s = Pad(c1, n)", {"n": np.array([0, 1_000_000_000])}),
    "Add": ("s = Add(r, k)", {"r": np.ones((20_000, 1), np.float32), "k": np.ones((1, 20_000), np.float32)}),
    "MatMul": ("s = MatMul(r, k)", {"r": np.ones((20_000, 1), np.float32), "k": np.ones((1, 20_000), np.float32)}),
    "Gather": ("s = Gather(r, n)", {"r": np.ones((1, 100_000), np.float32), "n": np.zeros(50_000, np.int64)}),
}


@pytest.mark.parametrize("operator", BOMBS)
def test_sizes_are_looked_at_before_anything_is_allocated(operator: str) -> None:
    lines, arrays = BOMBS[operator]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match=rf"{operator} '{operator}_s' would make [\d,]+ values"):
        translate(with_scale(lines, c1=np.ones(1, np.float32), **arrays))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_many_constants_that_are_not_too_large_add_up() -> None:
    lines = (
        "".join(f"t{i} = Tile(c1, n)\n" for i in range(100)) + "s = Sum(" + ", ".join(f"t{i}" for i in range(100)) + ")"
    )
    with pytest.raises(ModelError, match="is one node too many"):
        translate(with_scale(lines, c1=np.ones(1, np.float32), n=np.array([8_000_000])))


def test_weights_may_be_as_large_as_the_file() -> None:
    explicit = model(
        f"{HEADER} <int8 z = {{0}}, float s = {{0.007874016}}> {{ t = Transpose(w) {pair('t', 'v')} {pair('x', 'a')} "
        "m = MatMul(a, v) y = Slice(m, b, e, o) }",
        w=np.ones((3_000_000, 8), np.float32),
        b=np.array([0]),
        e=np.array([8]),
        o=np.array([1]),
    )
    assert translate(explicit).weights[0].exact is not None


def test_operators_that_loop_over_elements_make_no_constants() -> None:
    graph = Graph.from_model(
        model("net () => (float[1,1,4,4] y) { y = MaxPool <kernel_shape: ints = [1, 1]> (c) }", c=np.ones((1, 1, 4, 4)))
    )
    assert not Constants(graph).is_constant("y")


def functions(levels: int, calls: int, recursive: bool = False) -> onnx.ModelProto:
    """A function of each level calls that of the level below `calls` times."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    made = []
    for level in range(levels):
        below = f"f{level - 1}" if level else "f0" if recursive else "Relu"
        domain = "f" if level or recursive else ""
        nodes = [
            helper.make_node(below, [f"t{i}" if i else "a"], [f"t{i + 1}" if i < calls - 1 else "b"], domain=domain)
            for i in range(calls)
        ]
        made.append(helper.make_function("f", f"f{level}", ["a"], ["b"], nodes, imports))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node(f"f{levels - 1}", ["x"], ["y"], domain="f")], "g", *([v] for v in values)
    )
    return helper.make_model(graph, functions=made, opset_imports=imports)


def test_local_functions_that_become_too_many_nodes_are_refused() -> None:
    with pytest.raises(ModelError, match="more than 30,"):
        Graph.from_model(functions(8, 10))
    with pytest.raises(ModelError, match="calls itself"):
        Graph.from_model(functions(3, 2, recursive=True))
    assert len(Graph.from_model(functions(3, 10))) == 1000
    assert len(Graph.from_model(functions(90, 1))) == 1
    with pytest.raises(ModelError, match="100 levels"):
        Graph.from_model(functions(1500, 1))


def integers(lines: str, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    graph = Graph.from_model(model(f"net (float[1,8] x) => (int64[1] y) {{ {lines} }}", **arrays))
    return TensorTypes(graph).integers()


def test_shape_arithmetic_wraps_around_as_int64_does() -> None:
    lines = ["s = Shape(x)", "c0 = Add(s, three)"] + [f"c{i + 1} = Mul(c{i}, c{i})" for i in range(30)]
    known = integers("\n".join([*lines, "y = Identity(c30)"]), three=np.array([3, 3]))
    expected = np.array([4, 11], np.int64)
    with np.errstate(over="ignore"):
        for _ in range(30):
            expected = expected * expected
    assert known["c30"].tolist() == expected.tolist()
    assert all(abs(v) < 2**63 for values in known.values() for v in values.flat)


@pytest.mark.parametrize("operator", ["e = Expand(s, n)", "e = ConstantOfShape <value = int64[1] {1}> (n)"])
def test_shape_arithmetic_looks_at_sizes_first(operator: str) -> None:
    known = integers(f"s = Shape(x) {operator} y = Identity(e)", n=np.array([1_000_000_000, 2]))
    assert set(known) == {"s"}


def test_shapes_that_no_array_can_have_are_refused() -> None:
    for dims in ([1] * 40, [0, 2**62], [2**40, 2**40]):
        explicit = with_scale("s = Identity(c)")
        explicit.graph.initializer.append(TensorProto(name="odd", data_type=TensorProto.FLOAT, dims=dims, raw_data=b""))
        with pytest.raises(ModelError, match="'odd'"):
            translate(explicit)
    explicit = with_scale("s = Identity(c)")
    explicit.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2**62] * 1000))
    with pytest.raises(ModelError, match="'x' has more than 32 dimensions"):
        translate(explicit)


REWRITES = {
    "HardSwish": "m = HardSwish(a) y = Relu(m)",
    "DepthToSpace": "m = DepthToSpace <blocksize = 2> (a) y = Relu(m)",
    "AveragePool": "m = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a) y = Relu(m)",
}


@pytest.mark.parametrize("operator", REWRITES)
def test_rewrites_look_at_sizes_first(operator: str) -> None:
    """The model only says that a tensor is large; a weight for it would have to be made."""
    sizes = "1,4,1000000,1000000" if operator == "AveragePool" else "1,1000000000,8,8"
    if operator == "DepthToSpace":
        sizes = "1,8192,8,8"
    explicit = model(
        f"net (float[{sizes}] x) => (float[a,b,c,d] y) <int8 z = {{0}}, float s = {{0.5}}> {{ {pair('x', 'a')} "
        f"{REWRITES[operator]} }}"
    )
    translate(explicit)
    with pytest.raises(ModelError, match=r"A rewrite of '.*' would make [\d,]+ values"):
        for target in ("orin-dla", "xavier-dla"):
            translate(explicit, TranslateOptions(target=target, dla_rewrites=True))


def long_tensors() -> dict[str, onnx.ModelProto]:
    """Tensors of one dimension that is very long, declared or computed, before operators that move sizes about."""
    bodies = {
        "declared": ("float[2147483647] new", "m = Unsqueeze(new, zero)"),
        "by Expand": ("float[1] new", "m = Expand(new, n)"),
        "by ConstantOfShape": ("float[k,8] new", "h = Shape <start = 1> (new) t = Mul(h, n) m = ConstantOfShape(t)"),
    }
    return {
        name: model(
            f"net (float[1,8] x, {ends}) => (float[1,8] y, float[a,b,c] z) <int8 z0 = {{0}}, float s = {{0.5}}> {{ "
            f"{pair('x', 'a', 's', 'z0')} y = Relu(a) {body} u = Unsqueeze(m, zero) v = Unsqueeze(u, zero) z = Relu(v) }}",
            n=np.array([2**27]),
            zero=np.array([0]),
        )
        for name, (ends, body) in bodies.items()
    }


def within_a_gigabyte(made: dict[str, onnx.ModelProto], folder: Path) -> subprocess.CompletedProcess[str]:
    """`translate` of them all, in a process that may have no more memory than that."""
    for name, explicit in made.items():
        onnx.save(explicit, folder / f"{name}.onnx")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1536 * 2**20,) * 2)"  # half of it: libraries
    run = "import sys; from qdq_translator.cli import main; sys.exit(main(['translate', '-i', *sys.argv[1:]]))"
    models = (str(folder / f"{name}.onnx") for name in made)
    return subprocess.run(
        [sys.executable, "-c", f"{limit}\n{run}", *models, "-o", str(folder / "o")],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )


def test_every_bomb_is_decided_within_a_gigabyte(tmp_path: Path) -> None:
    made = {name: with_scale(lines, c1=np.ones(1, np.float32), **arrays) for name, (lines, arrays) in BOMBS.items()}
    made["adds"] = bomb_of_adds()
    made["functions"] = functions(8, 10)
    done = within_a_gigabyte(made, tmp_path)
    said = done.stderr.strip().splitlines()
    assert done.returncode == 1 and len(said) == len(made)
    assert not [line for line in said if "unexpected" in line or "Memory" in line or "allocate" in line]


def test_long_tensors_are_translated_within_a_gigabyte(tmp_path: Path) -> None:
    done = within_a_gigabyte(long_tensors(), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_sizes_with_a_name_pass_through_shape_arithmetic() -> None:
    """What `x.view(x.size(0), 256)` and `x.view(x.size(0), -1)` are exported as, and zeros of such a shape."""
    explicit = model(
        f"net (float[n,4,8,8] x) => (float[a,b] y, float[c,d] z, float[e,f] o) <int8 z0 = {{0}}, float s = {{0.5}}> {{ "
        f"{pair('x', 'a', 's', 'z0')} h = Shape(a) g = Gather(h, first) u = Unsqueeze(g, zero) "
        "c = Concat <axis = 0> (u, k) y0 = Reshape(a, c) y = Relu(y0) "
        "d = Concat <axis = 0> (u, rest) z1 = Reshape(a, d) z = Relu(z1) o0 = ConstantOfShape(c) o = Relu(o0) }",
        first=np.array(0),
        zero=np.array([0]),
        k=np.array([256]),
        rest=np.array([-1]),
    )
    types = translate(explicit).types
    assert [types.shape(name) for name in ("y0", "z1", "o0")] == [("n", 256), ("n", None), ("n", 256)]


# ---------------------------------------------------------------- names of files


@pytest.mark.parametrize(
    "name", ["../../x", "/abs/x", "..", ".hidden", "a\\b", "a\0b", "a\nb", "x" * 1000, "é" * 150, ""]
)
def test_names_of_files_are_plain_names(name: str, tmp_path: Path) -> None:
    explicit = with_scale("s = Identity(c)")
    explicit.graph.name = name
    folder = tmp_path / "one" / "two" / "out"
    files = translate(explicit).save(folder)
    assert {p.parent for p in tmp_path.rglob("*") if p.is_file()} == {folder}
    assert len(list(folder.iterdir())) == 5 and files.model.is_file() and not files.name.startswith(".")
    assert plain_name(files.name) == files.name


def test_a_name_that_is_given_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="plain file name"):
        translate(with_scale("s = Identity(c)"), name="../x").save(tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError):
        TranslationFiles(tmp_path, "/x")


# ---------------------------------------------------------------- external data


def external(folder: Path, **info: str) -> Path:
    """A model whose scale lies elsewhere, 4 bytes at the beginning of s.bin unless `info` says something else."""
    explicit = with_scale("s = Identity(far)", far=np.float32(0.5))
    tensor = next(t for t in explicit.graph.initializer if t.name == "far")
    (folder / "s.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "s.bin", **info}.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(explicit.SerializeToString())
    return path


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, make_socket, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_what_is_no_regular_file_is_refused_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    place = tmp_path / "odd"
    make(place)
    with pytest.raises(ModelError, match="ensor 'far'"):
        load_model(external(tmp_path, location="odd"))
    for read in (load_model, translate):
        with pytest.raises(UserError, match="odd"):
            read(place)


def test_one_file_of_data_cannot_become_thousands(tmp_path: Path) -> None:
    path = external(tmp_path)
    explicit = onnx.load(str(path), load_external_data=False)
    first = next(t for t in explicit.graph.initializer if t.name == "far")
    for i in range(10):
        copy = explicit.graph.initializer.add()
        copy.CopyFrom(first)
        copy.name = f"far_{i}"
    path.write_bytes(explicit.SerializeToString())
    with pytest.raises(ModelError, match="many other tensors"):
        load_model(path)


def test_options_are_the_same_for_all() -> None:
    """The budget holds with every target: what is refused on a GPU is refused on a DLA."""
    lines, arrays = BOMBS["Tile"]
    for target in ("orin-dla", "xavier-dla"):
        with pytest.raises(ModelError):
            translate(
                with_scale(lines, c1=np.ones(1, np.float32), **arrays),
                TranslateOptions(target=target, dla_rewrites=True),
            )
