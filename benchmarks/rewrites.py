"""Rewrites for the DLA where they cost time or precision: the two tables of docs/tables/rewrites.md.

    python -m benchmarks.rewrites [ZOO] [--write]

1. Forms of networks that rewrites had made slower, and networks of the folder ZOO that every rewrite (`--dla_rewrites force`) makes slower
   by more than 25% of the estimate; what `--preset dla` makes of them (rule R1).
2. Trained networks with clamps, ELU, SELU and means, calibrated on data of their own: the metric of the simulated DLA, with the
   scale of a Sigmoid applied and not applied (hypothesis `sigmoid`).

Both are estimates and simulations; nothing ran on a DLA. The denoisers' first two layers are random, the last one is fitted by least
squares.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.dla_rewrites import page
from benchmarks.measure import machine
from benchmarks.networks import Builder
from benchmarks.verdict import ROOT
from e2e_workflow.denoiser import images
from qdq_translator import TranslateOptions
from qdq_translator.core.errors import UserError
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.translator import Translation

PAGE = ROOT / "docs" / "tables" / "rewrites.md"
DLA = TranslateOptions(preset="dla", platform="jetpack-6.2")
SLOWER = 1.25
TIMES = "| network | ms without rewrites | with every rewrite | as `--preset dla` has it | rewrites left out |\n| --- | ---: | ---: | ---: | --- |\n"
METRICS = (
    "| network | float | without rewrites | with them, Sigmoid's scale not applied | applied | ms without and with |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: |\n"
)


# ---------------------------------------------------------------- time


def aspp(b: Builder, x: str, cin: int, cout: int, rate: int) -> str:
    return b.node(
        "Conv", b.pair(x), b.weight(cout, cin, 3, 3), kernel_shape=[3, 3], pads=[rate] * 4, dilations=[rate] * 2
    )


def bilinear(b: Builder, x: str, *shape: int) -> str:
    sizes = b.constant(f"sizes_{b.count}", np.array(shape, np.int64))
    return b.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="align_corners")


def atrous_conv() -> onnx.ModelProto:
    """DeepLab's Conv of dilation 12 on 512 channels, which does not fit the buffer (limit C12)."""
    b = Builder()
    return b.model(b.node("Relu", aspp(b, "input", 512, 64, 12)), [1, 512, 64, 64])


def bilinear_output() -> onnx.ModelProto:
    """A segmentation network's last Resize, to a size that is no multiple, without a scale behind it."""
    b = Builder()
    x = b.pair(b.node("Relu", b.conv_bn("input", 16, 512)))
    return b.model(bilinear(b, x, 1, 512, 150, 150), [1, 16, 64, 64])


def fsrcnn() -> onnx.ModelProto:
    """FSRCNN: narrow Convs and a deconvolution of 9 x 9 and stride 4 to one channel, a Reshape of the result behind it."""
    b = Builder()
    x = b.node("PRelu", b.conv_bn("input", 1, 56, 5), b.constant("slope", np.full((56, 1, 1), 0.25, np.float32)))
    for _ in range(4):
        x = b.node("Relu", b.conv_bn(x, 56, 56))
    weight = b.constant("last", b.rng.standard_normal((56, 1, 9, 9)).astype(np.float32))
    x = b.node(
        "ConvTranspose",
        b.pair(x),
        weight,
        kernel_shape=[9, 9],
        strides=[4, 4],
        pads=[4] * 4,
        output_padding=[3, 3],
    )
    return b.model(x, [1, 1, 180, 320])


def deeplab_head() -> onnx.ModelProto:
    """ASPP with image pooling on 512 channels of 32 x 32, and a bilinear output of eight times the size."""
    b = Builder()
    x = b.node("Relu", b.conv_bn("input", 64, 512, 1))
    parts = [b.node("Relu", b.conv_bn(x, 512, 64, 1))]
    parts += [b.node("Relu", aspp(b, x, 512, 64, rate)) for rate in (12, 24, 36)]
    pooled = b.node("Relu", b.conv_bn(b.node("GlobalAveragePool", b.pair(x)), 512, 64, 1))
    parts.append(bilinear(b, pooled, 1, 64, 32, 32))
    x = b.node("Relu", b.conv_bn(b.node("Concat", *map(b.pair, parts), axis=1), 320, 64, 1))
    x = b.node("Conv", b.pair(x), b.weight(21, 64, 1, 1), kernel_shape=[1, 1])
    return b.model(bilinear(b, x, 1, 21, 256, 256), [1, 64, 32, 32])


FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ASPP Conv": atrous_conv,
    "bilinear output without scale": bilinear_output,
    "FSRCNN's tail": fsrcnn,
    "DeepLab's head": deeplab_head,
}


def with_rewrites(options: TranslateOptions, rewrites: Any) -> TranslateOptions:
    """The preset's options, but for this one."""
    output = options.dla_output if rewrites else "same"
    return dataclasses.replace(options, preset=None, dla_rewrites=rewrites, dla_output=output)


def times(name: str, model: Any) -> tuple[str, list[float]]:
    """A row, and the three estimates in milliseconds."""
    found, left = [], ""
    for rewrites in (False, "force", True):
        done = translate(model, with_rewrites(DLA, rewrites), try_more=False)
        assert done.costs is not None
        found.append(done.costs.ends[1] if done.costs.ends else 0.0)
        out = {d.rule: len(d.data["nodes"]) for d in done.diagnostics if "left out" in d.message and d.rule[0] == "D"}
        left = ", ".join(f"{count} of {rule}" for rule, count in out.items())
    return f"| {name} | {found[0]:.2f} | {found[1]:.2f} | {found[2]:.2f} | {left} |\n", found


def time_table(zoo: Path | None) -> str:
    rows, slower, asked, worst = TIMES, 0, 0, 0.0
    sources: dict[str, Any] = {name: make() for name, make in FORMS.items()}
    sources.update({path.stem: path for path in sorted(zoo.glob("*.onnx"))} if zoo else {})
    for name, model in sources.items():
        try:
            row, found = times(name, model)
        except UserError:
            continue
        asked += 1
        worst = max(worst, found[2] / max(found[0], 1e-9))
        slower += found[1] > SLOWER * found[0]
        if found[1] > SLOWER * found[0] or name in FORMS:
            rows += row
            print(row, end="", flush=True)
    return (
        f"{rows}\nOf {asked} networks every rewrite makes {slower} slower by more than 25%. As `--preset dla` has it, the largest ratio of the "
        f"estimates with and without rewrites is {worst:.3f}.\n"
    )


# ---------------------------------------------------------------- precision


@dataclasses.dataclass(frozen=True)
class Trained:
    """A float network, its inputs and labels, inputs to calibrate on, and what is measured of an output."""

    name: str
    model: onnx.ModelProto
    inputs: np.ndarray
    labels: np.ndarray
    calibration: np.ndarray
    metric: Callable[[np.ndarray, np.ndarray], float]


def top1(output: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float((output.argmax(axis=1) == labels).mean())


def psnr(output: np.ndarray, labels: np.ndarray) -> float:
    return images.psnr({"output": output}, labels)


def clamped(model: onnx.ModelProto, bound: float) -> onnx.ModelProto:
    """With a Clip behind every Conv."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = list(made.graph.node)
    del made.graph.node[:]
    made.graph.initializer.extend(
        numpy_helper.from_array(np.float32(end), name) for end, name in ((-bound, "low"), (bound, "high"))
    )
    for node in nodes:
        made.graph.node.append(node)
        if node.op_type == "Conv":
            output = node.output[0]
            made.graph.node[-1].output[0] = f"{output}_free"
            made.graph.node.append(helper.make_node("Clip", [f"{output}_free", "low", "high"], [output]))
    return made


def with_mean(model: onnx.ModelProto, op: str) -> onnx.ModelProto:
    """With another operator in place of each AveragePool of all places."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    made.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "rows_columns"))
    for node in made.graph.node:
        if node.op_type != "AveragePool":
            continue
        (area,) = (int(np.prod(a.ints)) for a in node.attribute if a.name == "kernel_shape")
        del node.attribute[:]
        node.op_type = op
        if op == "ReduceMean":
            node.attribute.append(helper.make_attribute("axes", [2, 3]))
        if op == "ReduceSum":
            node.input.append("rows_columns")
            output = node.output[0]
            node.output[0] = f"{output}_sum"
            made.graph.initializer.append(numpy_helper.from_array(np.float32(1 / area), f"{output}_share"))
            made.graph.node.append(helper.make_node("Mul", [f"{output}_sum", f"{output}_share"], [output]))
    return made


def glyphs() -> Iterator[Trained]:
    """Names of characters: Top-1 in %."""
    folder = ROOT / "e2e_workflow/glyphs/model"
    with np.load(folder / "few_glyphs.npz") as held:
        data = {key: (held[key][:, None].astype(np.float32) / 255 - 0.5) / 0.5 for key in ("train", "test")}
        labels = held["labels"]
    model = onnx.load(str(folder / "glyphs_float.onnx"))
    forms = {
        "": model,
        ", Clip ±6": clamped(model, 6.0),
        ", Clip ±100": clamped(model, 100.0),
        ", Clip ±3000": clamped(model, 3000.0),
        ", GlobalAveragePool": with_mean(model, "GlobalAveragePool"),
        ", ReduceMean": with_mean(model, "ReduceMean"),
        ", ReduceSum": with_mean(model, "ReduceSum"),
    }
    for name, form in forms.items():
        onnx.checker.check_model(sorted_nodes(form))
        yield Trained(f"glyphs{name}", form, data["test"], labels, data["train"][:64], top1)


def sorted_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """In place: every node behind what it reads."""
    waiting, known = list(model.graph.node), {t.name for t in (*model.graph.input, *model.graph.initializer)} | {""}
    del model.graph.node[:]
    while waiting:
        ready = [node for node in waiting if set(node.input) <= known]
        model.graph.node.extend(ready)
        waiting = [node for node in waiting if not set(node.input) <= known]
        known.update(name for node in ready for name in node.output)
    return model


NORMS = ("InstanceNormalization", "GroupNormalization", "LayerNormalization")
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "GroupNormalization": {"num_groups": 4},
    "LayerNormalization": {"axis": 1},
}


def denoiser(*layers: str) -> Trained:
    """Two random Convs of 24 channels with these layers behind each, and a 3 x 3 Conv fitted to the clean pictures: PSNR in dB."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape) for shape in ((24, 3, 3, 3), (24, 24, 3, 3))]
    arrays = {"w0": weights[0], "b0": rng.normal(0, 0.3, 24), "w1": weights[1], "b1": rng.normal(0, 0.3, 24)}
    conv: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
    nodes = []
    for number, source in enumerate(("input", "a0")):
        nodes.append(helper.make_node("Conv", [source, f"w{number}", f"b{number}"], [f"c{number}"], **conv))
        last = f"c{number}"
        for layer in layers:
            more = ["g", "h"] if layer.endswith("Normalization") else []
            made = f"a{number}" if layer == layers[-1] else f"{last}_{layer}"
            nodes.append(helper.make_node(layer, [last, *more], [made], **_ATTRIBUTES.get(layer, {})))
            last = made

    def model(output: str) -> onnx.ModelProto:
        given = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in arrays.items()]
        value = [
            helper.make_tensor_value_info(n, 1, ["N", c, 32, 32])
            for n, c in (("input", 3), (output, 24 if output == "a1" else 3))
        ]
        graph = helper.make_graph(nodes, "denoiser", value[:1], value[1:], given)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    if any(layer.endswith("Normalization") for layer in layers):
        shape = (24, 32, 32) if "LayerNormalization" in layers else (24,)
        arrays.update(g=rng.uniform(0.5, 1.5, shape), h=rng.normal(0, 0.3, shape))
    (noisy, clean), test = images.pairs(32, images.TRAINING), images.pairs(32, images.TEST)
    features = np.pad(Session(model("a1"), "features").run({"input": noisy})["a1"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    places = [features[:, :, y : y + 32, x : x + 32] for y in range(3) for x in range(3)]
    rows = (
        np.concatenate([*places, np.ones((len(noisy), 1, 32, 32))], axis=1)
        .transpose(0, 2, 3, 1)
        .reshape(-1, 9 * 24 + 1)
    )
    gram = rows.T @ rows + 1e-3 * len(rows) * np.eye(rows.shape[1])
    fitted = np.linalg.solve(gram, rows.T @ clean.transpose(0, 2, 3, 1).reshape(-1, 3))
    arrays.update(w2=fitted[:-1].reshape(3, 3, 24, 3).transpose(3, 2, 0, 1), b2=fitted[-1])
    nodes.append(helper.make_node("Conv", ["a1", "w2", "b2"], ["output"], **conv))
    return Trained(f"denoiser, {' and '.join(layers)}", model("output"), *test, noisy, psnr)


def value_of(case: Trained, model: onnx.ModelProto) -> float:
    session = Session(model, "measured")
    name = session.outputs[0]
    outputs = [
        session.run({"input": one[None]})[name].reshape(1, *[-1] * (case.labels.ndim == 1), *case.labels.shape[1:])
        for one in case.inputs
    ]
    return case.metric(np.concatenate(outputs), case.labels)


def simulated(case: Trained, made: Translation, applied: bool) -> float:
    return value_of(case, simulate(ImplicitNetwork.of(made), SimulationOptions(sigmoid_fp16=not applied)).model)


def metric_table(folder: Path) -> str:
    rows = METRICS
    denoisers = (*map(denoiser, ("Relu", "Elu", "Selu", "Celu")), *(denoiser(norm, "Relu") for norm in NORMS))
    for case in (*glyphs(), *denoisers):
        data = folder / "calibration.npy"
        np.save(data, case.calibration)
        shape = "x".join(map(str, (1, *case.inputs.shape[1:])))
        assume = "pow" if any(norm in case.name for norm in NORMS) else None
        options = dataclasses.replace(DLA, assume=assume, calibrate=str(data), shapes=[f"input:{shape}"])
        plain = translate(case.model, with_rewrites(options, False))
        made = translate(case.model, options)
        figures = [
            value_of(case, made.model),
            simulated(case, plain, False),
            *(simulated(case, made, a) for a in (False, True)),
        ]
        assert plain.costs is not None and made.costs is not None
        ms = ", ".join("?" if costs.ends is None else f"{costs.ends[1]:.2f}" for costs in (plain.costs, made.costs))
        rows += f"| {case.name} | {' | '.join(f'{figure:.1f}' for figure in figures)} | {ms} |\n"
        print(rows.splitlines()[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", type=Path, nargs="?", help="folder with Q/DQ models")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tables = {"metrics": metric_table(Path(folder)), "times": time_table(asked.zoo)}
    print(tables["times"].splitlines()[-1])
    if asked.write:
        text = page(PAGE.read_text(encoding="utf-8"), "machine", f"{machine()}\n")
        for part, table in tables.items():
            text = page(text, part, table)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
