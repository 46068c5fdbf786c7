"""Simulate the implicit engine: convert a translation to an ONNX model that computes the numbers of an INT8 engine, as
far as the facts specify them (fact 5).

1. Quantized tensors, and layers that compute on them: `placement`. The scales are those of the cache file. Entries of
   tensors that only TensorRT's own network has (rule S10: constants, a Gemm before its bias) are not applied, because
   TensorRT fuses these tensors.
2. Rounding: half to even (GPU, Orin), or half away from zero (Xavier, fact 5.4); quantized values [-128, 127].
3. Weights of INT8 layers: `max|w| / 127` per output channel (and group), quantized values [-127, 127] (fact 5.1, 5.2).
4. Layers planned in FP16 on a DLA compute in float16: their inputs, weights and outputs are rounded to it. Other layers
   above INT8 compute in float32, or with `fp16` in float16 too, which `verify` does by default, unless the layer
   argument names fp32.
5. `fuse`: whether the tensor between a Conv and the Add or activation that it fuses with stays unrounded (see
   `placement`). Unary scales (rule S9) are among the scales that are not applied then.
6. `sigmoid_fp16`: the scales around Sigmoid and Tanh are not applied (hypothesis `sigmoid`, fact 5.12b, 6.3).
7. Bias stays float (fact 5.7). TensorRT's quantization noise reduction (fact 5.6), which keeps the layer before a
   network output from writing INT8, is not simulated: a scale on a graph output is applied. Noise reduction concerns
   GPUs, and measured results on a DLA (rule S2) show the damage of such a scale.
8. In a float16 model the INT8 layers compute in float32, on quantized values times scale without float16 rounding: the
   engine sums products of quantized values in 32-bit integers.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Iterable, Mapping, Optional

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.formats.rows import read as read_row
from qdq_translator.core.hypotheses import FUSION, SIGMOID
from qdq_translator.core.options import effective
from qdq_translator.core.rules import MARKERS
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.operators import SIGMOIDS, OutputChannels, has_one_scale, output_channels
from qdq_translator.translation.ir.qparams import INT8_MAX, row_blocks
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import Initializer, as_weight
from qdq_translator.translation.passes.cleanup import remove_unused_initializers
from qdq_translator.translation.passes.dialects import is_unary_marker
from qdq_translator.translation.planning.placement import Placement, by_device, by_ranges, place
from qdq_translator.translation.planning.translation import Translated
from qdq_translator.translation.qdq.pairs import weight_scales, with_opset
from qdq_translator.translation.targets.precision import ON_DLA, LayerPlan

STEPS_INPUT, PLACES = "simulated_steps", 2**16
"""The last input of a network with jittered steps, and its size: a factor for each rounded tensor."""
LEAST_OPSET = 11
"""The first with QuantizeLinear and Round; older networks are simulated in it."""
JITTER = 0.25
"""A step of the rounding 'jittered' is at most this power of 2 apart from the given one."""


@dataclasses.dataclass(frozen=True)
class SimulationOptions:
    """See the module: `rounding` rule 2, `fp16` rule 4, `fuse` rule 5, `sigmoid_fp16` rule 6. 'jittered': ties to even
    with steps that a last input changes a little (`jittered_steps`), so that equal values round alike, as in the
    engine, but to another value with each seed. `other`: hypotheses about devices (`placement.by_device`) that are
    assumed to be the opposite."""

    rounding: str = "even"
    fp16: bool = False
    fuse: bool = True
    sigmoid_fp16: bool = False
    other: frozenset[str] = frozenset()

    @classmethod
    def on(cls, target: str) -> SimulationOptions:
        """The options of a target, as in --target; '' if it is not known."""
        return cls("away" if target == "xavier-dla" else "even", sigmoid_fp16=target.endswith("dla"))

    def at_other_end(self, hypothesis: str) -> SimulationOptions:
        """These options with the opposite assumption of one open fact."""
        if hypothesis == FUSION:
            return dataclasses.replace(self, fuse=False)
        if hypothesis == SIGMOID:
            return dataclasses.replace(self, sigmoid_fp16=not self.sigmoid_fp16)
        return dataclasses.replace(self, other=frozenset((hypothesis,)))


@dataclasses.dataclass
class ImplicitNetwork:
    """A translation as TensorRT would get it: the stripped model, the cache's scales, the layer argument.

    weights: initializers that the model lacks. unary: tensors whose scale is a unary marker. config, report: the JSON
    files' content, {} if there is none. plan: the planned layers, [] if no report lists them; INT8 then follows from
    scales and layer argument alone.
    """

    model: onnx.ModelProto
    scales: dict[str, float]
    precisions: dict[str, str]
    unary: frozenset[str]
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    report: dict[str, Any] = dataclasses.field(default_factory=dict)
    plan: list[LayerPlan] = dataclasses.field(default_factory=list)
    weights: dict[str, Initializer] = dataclasses.field(default_factory=dict)

    def graph(self) -> Graph:
        """A copy of the model."""
        return Graph.from_picture((self.model, self.weights))

    @classmethod
    def read(cls, files: TranslationFiles) -> ImplicitNetwork:
        """Raises UserError if a file is missing or broken; config and report may be missing."""
        model, _ = load_model(files.model)
        for node in model.graph.node:
            if not node.name and node.output:
                node.name = f"node_of_{node.output[0]}"  # TensorRT's name for it (fact 4.3)
        scales = files.read_cache().scales
        config = files.read_config() if files.config.is_file() else {}
        report = files.read_report() if files.report.is_file() else {}
        precisions = files.read_layer_precisions() if files.layer_arg.is_file() else {}
        origins = config.get("scale_origins")
        if origins is not None:
            unary = frozenset(n for n, o in origins.items() if o.get("rule") in MARKERS and scales.get(n) == 1.0)
        else:  # another translator's files do not record it; it is derived from the graph
            graph = Graph.from_picture((model, {}))
            unary = frozenset(n for n, scale in scales.items() if is_unary_marker(graph, n, scale))
        plan = [read_row(LayerPlan, row) for row in report.get("plan", ())]
        return cls(model, scales, precisions, unary, config, report, plan)

    @classmethod
    def of(cls, translated: Translated, light: bool = False) -> ImplicitNetwork:
        """The network of a translation that was not written, equal to what `read` reads from its files. light: without
        the model's weights."""
        origins = {name: plain(translated.scales[name].origin.row()) for name in translated.tensor_scales}
        unary = frozenset(n for n, o in origins.items() if o["rule"] in MARKERS and translated.tensor_scales[n] == 1.0)
        config = {"scale_origins": origins, "options": effective(translated.options)}
        precisions = translated.layer_precisions
        scales = dict(translated.tensor_scales)
        model, weights = translated.graph.picture() if light else (translated.model, {})
        return cls(model, scales, precisions, unary, config, plan=translated.plan, weights=weights)

    @property
    def origins(self) -> dict[str, dict[str, str]]:
        """Tensor -> origin of its scale; {} of another translator's files."""
        return dict(self.config.get("scale_origins", {}))

    @property
    def rules(self) -> dict[str, str]:
        """Tensor -> the rule that gave its scale."""
        return {name: origin.get("rule", "") for name, origin in self.origins.items()}

    @property
    def clamping(self) -> frozenset[str]:
        """Quantizers whose saturation is a node of the network (rule Q9)."""
        return frozenset(data["quantizer"] for data in self._saturation if "quantizer" in data)

    @property
    def idle(self) -> frozenset[tuple[str, int]]:
        """Bounds of quantizers that no data reach (`Settings.idle`)."""
        return frozenset((name, end) for data in self._saturation for name, end in data.get("idle", ()))

    @property
    def _saturation(self) -> list[dict[str, Any]]:
        """What the messages of rule Q9 name; scales do not show it, because other rules may replace them."""
        return [row.get("data", {}) for row in self.config.get("diagnostics", ()) if row["rule"] == "Q9"]

    @property
    def on_dla(self) -> frozenset[str]:
        """Names of the layers that are planned on a DLA."""
        return frozenset(row.name for row in self.plan if row.device == ON_DLA)

    @property
    def option(self) -> dict[str, Any]:
        """The options of the translation."""
        return dict(self.config.get("options", {}))


@dataclasses.dataclass
class Simulated:
    """The simulated engine as a network. graph: for ONNX Runtime. made: stripped tensor -> its name as its layer makes
    it; read: -> as its readers get it. wide: float16 tensor of the model -> the float32 one that INT8 layers read
    instead (rule 8)."""

    graph: Graph
    made: dict[str, str]
    read: dict[str, str]
    placement: Placement
    wide: dict[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def model(self) -> onnx.ModelProto:
        return self.graph.to_model()


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def placement_of(
    network: ImplicitNetwork,
    options: SimulationOptions = SimulationOptions(),
    graph: Optional[Graph] = None,
    types: Optional[TensorTypes] = None,
    precisions: Optional[Mapping[str, str]] = None,
) -> Placement:
    """The placement that `simulate` applies by default. `graph`, `types`: save work. `precisions`: see `simulate`."""
    graph = graph or network.graph()
    asked, plan, unary = network.precisions if precisions is None else precisions, network.plan, network.unary
    scales, planned = by_ranges(plan, network.scales, options.other, unary), by_device(plan, options.other)
    return place(graph, types or TensorTypes(graph), scales, asked, options.fuse, unary=unary, planned=planned)


def simulate(
    network: ImplicitNetwork,
    options: SimulationOptions = SimulationOptions(),
    precisions: Optional[Mapping[str, str]] = None,
    types: Optional[TensorTypes] = None,
    placement: Optional[Placement] = None,
    unrounded: bool = False,
) -> Simulated:
    """`precisions` replaces the layer argument, `placement` everything that follows from scales and layer argument.
    `types` of the network's model saves inferring them. unrounded: keep original weights next to the rounded ones."""
    graph = network.graph()
    if graph.opset() < LEAST_OPSET:
        graph, types = with_opset(graph, LEAST_OPSET, "The simulation of INT8"), None
    types = types or TensorTypes(graph)
    placement = placement or placement_of(network, options, graph, types, precisions)
    builder = _Builder(graph, types, options, placement)
    builder.weights()
    asked = network.precisions if precisions is None else precisions
    in_half = builder.half_layers(network.on_dla, {name for name, precision in asked.items() if precision == "fp32"})
    builder.tensors(in_half)
    builder.widen()
    if not unrounded:
        remove_unused_initializers(graph)
    return Simulated(graph, builder.made, builder.read, placement, builder._wide)


def chained(parts: Mapping[str, Simulated], whole: Simulated) -> Simulated:
    """`whole` with the network that is composed of its parts. parts: role -> simulation, in order of execution; tensors
    of the same name connect them. Raises ModelError if one is missing."""
    result = onnx.ModelProto(ir_version=whole.model.ir_version, opset_import=whole.model.opset_import)
    result.graph.name = "parts"
    result.graph.input.extend(whole.model.graph.input)
    result.graph.output.extend(whole.model.graph.output)
    for role, part in parts.items():
        own = onnx.compose.add_prefix(part.model, f"{role}/", rename_inputs=False, rename_outputs=False)
        # onnx 1.17 and earlier rename inputs and outputs in the nodes nevertheless
        ends = {f"{role}/{end.name}": end.name for end in (*part.model.graph.input, *part.model.graph.output)}
        for node in own.graph.node:
            for names in (node.input, node.output):
                names[:] = [ends.get(name, name) for name in names]
        result.graph.node.extend(own.graph.node)
        result.graph.initializer.extend(own.graph.initializer)
        result.graph.value_info.extend(own.graph.value_info)
    return dataclasses.replace(whole, graph=Graph.from_model(result))


class _Builder:
    def __init__(self, graph: Graph, types: TensorTypes, options: SimulationOptions, placement: Placement) -> None:
        self.graph, self.types, self.options, self.placement = graph, types, options, placement
        self.made: dict[str, str] = {}
        self.read: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._half = {n for n in graph.producer if types.elem_type(n) == TensorProto.FLOAT16}
        self._half.update(n for n in graph.inputs if types.elem_type(n) == TensorProto.FLOAT16)
        self._half.update(n for n, t in graph.initializers.items() if t.data_type == TensorProto.FLOAT16)
        self._sigmoids = {n.name for n in graph.nodes if options.sigmoid_fp16 and n.is_op(*SIGMOIDS)}
        self._jittered = 0
        self._wide: dict[str, str] = {}
        self._widening: set[str] = set()

    # ---------------------------------------------------------------- weights

    def weights(self) -> None:
        """Rule 3, computed once in NumPy: layers with the same weight and axis share the result."""
        graph = self.graph
        done: dict[tuple[str, Optional[OutputChannels]], str] = {}
        for node in graph.nodes:
            for index, name in enumerate(list(node.inputs[:2])):
                if (node.name, index) not in self.placement.weights:
                    continue
                weight = as_weight(graph.initializers[name])
                if weight is None or weight.dtype not in (np.float32, np.float16):  # bfloat16, or already integers
                    continue
                rank = len(weight.dims)
                one = has_one_scale(node, index, rank, self.types.rank(node.inputs[1 - index]))
                key = (name, None if one else output_channels(node, index, rank))
                if key not in done:
                    done[key] = graph.unique_name(f"{name}_int8")
                    rounded = functools.partial(rounded_weight, channels=key[1], rounding=self.options.rounding)
                    if weight.dtype == np.float16:
                        graph.add_initializer(done[key], rounded(weight.array().astype(np.float32)))
                    else:
                        graph.set_initializer(done[key], weight.remade(done[key], rounded, weight.dims))
                graph.set_input(node, index, done[key])

    # ---------------------------------------------------------------- float16

    def half_layers(self, on_dla: frozenset[str], wide: set[str]) -> set[str]:
        """Rules 4 and 6: nodes whose float32 inputs and outputs pass through float16. Rounds their constants. wide:
        layers in FP32."""
        graph, names = self.graph, set()
        for node in graph.nodes:
            fp16 = (self.options.fp16 and node.name not in wide) or node.name in on_dla
            above = fp16 and node.name in self.placement.higher
            if not above and node.name not in self._sigmoids:
                continue
            names.add(node.name)
            if node.is_op("Resize", "Upsample"):  # their constants are sizes
                continue
            for index, name in enumerate(list(node.inputs)):
                if name in graph.initializers and graph.initializers[name].data_type == TensorProto.FLOAT:
                    graph.set_input(node, index, self._constant_in_half(name))
        return names

    def _constant_in_half(self, name: str) -> str:
        if name not in self._constants:
            half, weight = self.graph.unique_name(f"{name}_fp16"), as_weight(self.graph.initializers[name])
            assert weight is not None
            remade = weight.remade(half, _through_half, weight.dims)
            self._constants[name] = self.graph.set_initializer(half, remade)
        return self._constants[name]

    def _cast(self, source: str, target: str, to: int) -> Node:
        return Node("Cast", [source], [target], self.graph.unique_name(f"{target}_cast"), to=to)

    def _insert_half(self, source: str, target: str, readers: list[Node]) -> None:
        """Insert float32 -> float16 -> float32: these readers of `source` now read `target`."""
        narrow = self.graph.unique_name(f"{target}_half")
        steps = self._cast(source, narrow, TensorProto.FLOAT16), self._cast(narrow, target, TensorProto.FLOAT)
        self._insert(source, target, steps, readers)

    def _insert(self, source: str, target: str, nodes: Iterable[Node], readers: list[Node]) -> None:
        """Add the nodes, which compute `target` from `source`: these readers of `source` now read `target`."""
        self.graph.insert_behind(source, nodes)
        for reader in readers:
            self.graph.replace_use(reader, source, target)

    # ---------------------------------------------------------------- activations

    def tensors(self, in_half: set[str]) -> None:
        """Apply rules 1, 2, 4 and 6 to every tensor, as produced and as read."""
        graph = self.graph
        for name in self._activations():
            maker = graph.producer[name].name if name in graph.producer else ""
            is_float32 = self.types.elem_type(name) in (0, TensorProto.FLOAT)  # 0: unknown, usually float32
            if maker in in_half and is_float32:
                wide = graph.before_output(name, "wide")
                self._insert_half(wide, name, graph.consumers(wide))
            self.made[name] = self.read[name] = name
            scale = self.placement.held.get(name)
            if scale is not None and maker not in self._sigmoids:
                self._hold(name, scale)
            for source in dict.fromkeys((self.made[name], self.read[name])) if is_float32 else ():
                readers = [n for n in graph.consumers(source) if n.name in in_half and source in n.inputs]
                if readers:
                    self._insert_half(source, graph.unique_name(f"{source}_fp16"), readers)

    def _activations(self) -> list[str]:
        names = [*self.graph.inputs, *(name for node in self.graph.nodes for name in node.outputs if name)]
        return [name for name in names if self.types.is_float(name) and not self.graph.is_constant(name)]

    def _hold(self, name: str, scale: float) -> None:
        graph = self.graph
        if name in graph.outputs and name in graph.producer:  # the output keeps its name and gets the rounded values
            made, read = graph.before_output(name, "made"), name
        else:
            made, read = name, graph.unique_name(f"{name}_held")
        readers = [n for n in graph.consumers(made) if n.name not in self._sigmoids]
        half = name in self._half
        if half:
            self._half.update((made, read))
        self._insert(made, read, self._rounded(made, read, scale, half), readers)
        self.made[name], self.read[name] = made, read

    def widen(self) -> None:
        """Rule 8, after everything else."""
        graph = self.graph
        for node in list(graph.nodes) if self._half else ():
            if node.name not in self.placement.int8:
                continue
            for index, name in enumerate(list(node.inputs)):
                if name in self._half:
                    graph.set_input(node, index, self._widened(name))
            for name in [n for n in node.outputs if n in self._half]:
                wide = graph.before_output(name, "wide")
                graph.value_info.pop(wide, None)  # it has the old type
                readers = [reader for reader in graph.consumers(wide) if reader.name not in self._widening]
                self._insert(wide, name, [self._cast(wide, name, TensorProto.FLOAT16)], readers)

    def _widened(self, name: str) -> str:
        """A float16 tensor or constant in float32; for quantized values, the one before rounding to float16."""
        graph = self.graph
        if name not in self._wide:
            values = graph.array(name)
            wide = self._wide[name] = graph.unique_name(f"{name}_float32")
            if values is not None:
                graph.add_initializer(wide, values.astype(np.float32))
            else:
                graph.insert_behind(name, [self._cast(name, wide, TensorProto.FLOAT)])
        return self._wide[name]

    def _constant(self, key: str, value: npt.ArrayLike, dtype: type = np.float32) -> str:
        if key not in self._constants:
            self._constants[key] = self.graph.add_initializer(self.graph.unique_name(key), np.asarray(value, dtype))
        return self._constants[key]

    def _step(self, scale: float, code: int = 1) -> str:
        """The constant `code * scale`."""
        what = "scale" if code == 1 else code
        return self._constant(f"simulated_{what}_{np.float32(scale).view(np.uint32):08x}", code * scale)

    def _rounded(self, source: str, target: str, scale: float, half: bool) -> list[Node]:
        """Nodes that compute `target` from `source` in float32."""
        graph = self.graph
        nodes: list[Node] = []

        def made(op: str, *inputs: str, **attributes: Any) -> str:
            output = graph.unique_name(f"{target}_{op}")
            nodes.append(Node(op, inputs, [output], graph.unique_name(f"{output}_op"), **attributes))
            return output

        values = made("Cast", source, to=TensorProto.FLOAT) if half else source
        if self.options.rounding == "jittered":
            values = self._jitter(made, source, values, scale)
        else:
            values = (self._away if self.options.rounding == "away" else self._even)(made, values, scale)
        if half:
            self._widening.add(nodes[0].name)
            self._wide[target] = values
            made("Cast", values, to=TensorProto.FLOAT16)
        nodes[-1].outputs = [target]
        return nodes

    def _even(self, made: Callable[..., str], values: str, scale: float) -> str:
        step, zero = self._step(scale), self._constant("simulated_zero", 0, np.int8)
        return made("DequantizeLinear", made("QuantizeLinear", values, step, zero), step, zero)

    def _away(self, made: Callable[..., str], values: str, scale: float) -> str:
        """sign(v) * floor(|v| + 1/2) for v = x / scale, clipped to [-128, 127], times scale."""
        step, half = self._step(scale), self._constant("simulated_half", 0.5)
        low, high = self._constant("simulated_low", -128), self._constant("simulated_high", 127)
        steps = made("Div", values, step)
        codes = made("Mul", made("Floor", made("Add", made("Abs", steps), half)), made("Sign", steps))
        return made("Mul", made("Min", made("Max", codes, low), high), step)

    def _jitter(self, made: Callable[..., str], source: str, values: str, scale: float) -> str:
        """Rounded in steps of the scale times this tensor's factor, and clipped to the range of the scale itself."""
        if not self._jittered:
            self.graph.inputs[STEPS_INPUT] = helper.make_tensor_value_info(STEPS_INPUT, TensorProto.FLOAT, [PLACES])
        place = self._constant(f"{source}_place", self._jittered % PLACES, np.int64)
        self._jittered += 1
        step = made("Mul", made("Gather", STEPS_INPUT, place), self._step(scale))
        values = made("Mul", made("Round", made("Div", values, step)), step)
        low, high = (self._step(scale, code) for code in (-128, 127))
        return made("Min", made("Max", values, low), high)


def jittered_steps(seed: int) -> np.ndarray:
    """(PLACES,), float32: factors of the steps of a network with `rounding="jittered"`."""
    powers = np.random.default_rng(seed).uniform(-JITTER, JITTER, PLACES)
    return np.exp2(powers).astype(np.float32)


def _through_half(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def rounded_weight(values: np.ndarray, channels: Optional[OutputChannels], rounding: str) -> np.ndarray:
    """The weight as INT8 layers use it (rule 3): same shape and dtype. channels: None for one scale per tensor."""
    rows = values.reshape(1, -1) if channels is None else channels.rows(values)
    scale = weight_scales(rows, 0).astype(np.float32)[:, None]
    made = np.empty(rows.shape, values.dtype)
    for block in row_blocks(rows.shape):
        codes = rows[block].astype(np.float32)
        codes /= scale[block]
        if rounding == "away":
            codes = np.sign(codes) * np.floor(np.abs(codes) + np.float32(0.5))
        np.clip(np.rint(codes, codes), -INT8_MAX, INT8_MAX, codes)
        codes *= scale[block]
        made[block] = codes
    return made.reshape(values.shape) if channels is None else channels.unrolled(made, values.shape)
