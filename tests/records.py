"""Records of what the program makes of many small models: any change of it shows as a changed line of a text.

    python -m tests.records --write                write the records anew, and those of networks by chance (half a minute)
    python -m tests.records --write WORD ...       only those of the cases whose name holds a word
    python -m tests.records --show WORD            model, options and what is made of it, on the terminal
    python -m tests.records --add NAME MODEL.onnx [OPTION=VALUE ...]     one more case

A case is a model under a set of options. Its record (`tests/data/records/*.txt`) holds nodes, initializers, scales with the rule
that each comes from, the plan, verdicts for a DLA, rewrites, causes and messages: of these the rule, the tensor and the figures,
not the wording. Numbers are compared with a tolerance (`_same`), so that no record depends on a processor. A record says that
something changed, not that it is right; what is right is for the tests with numbers to say.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import importlib
import io
import itertools
import json
import os
import re
import sys
import tarfile
import tempfile
import zlib
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Iterator, Mapping, NamedTuple, Optional, cast
from unittest import mock

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from qdq_translator import TranslateOptions
from qdq_translator.core.command_options import ExplicitOptions
from qdq_translator.core.diagnostics import RENAMED_NODES, Diagnostic
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.rows import plain
from qdq_translator.lab.laboratory import translate
from qdq_translator.translation.explicit import Explicit, explicit
from qdq_translator.translation.planning import regions
from qdq_translator.translation.qdq.restore import restore
from qdq_translator.translation.translator import Translation
from tests.conftest import DATA, OWN_MODELS
from tests.fuzz.seeds import seeds
from tests.record_models import damaged, dialects, explicit_models, fixed, floats, sidecars

FOLDER = DATA / "records"
BY_CHANCE = ("test_networks_by_chance", "test_verdicts_by_chance", "dla.test_by_chance", "dla.test_chains")
"""Tests of networks by chance, with records of their own, which are written only where each network's function is the same."""
CASES = FOLDER / "cases.json"
MODELS = FOLDER / "models.tar.xz"
"""One stream for all: the models are alike, and each alone takes six times as much."""
_EVERY = {
    "default": {},
    "gpu": {"preset": "gpu", "platform": "jetpack-6.2", "asymmetric": "widen", "annotate": True},
    "flags": {
        "infer_average_pool_scales": True,
        "infer_concat_scales": True,
        "infer_mul_scales": True,
        "add_unary_ew_scales_for_dla": True,
        "asymmetric": "widen",
        "inference": "reference",
        "calibration_type": "histogram",
        "rename_node_outputs": True,
    },
    "dla": {"preset": "dla", "platform": "jetpack-6.2", "asymmetric": "widen", "per_channel_activations": "max"},
    "xavier": {
        "target": "xavier-dla",
        "platform": "jetpack-5.1.1",
        "preset": "gpu",
        "unify_scales": "max",
        "weights": "float",
        "on_conflict": "min",
        "asymmetric": "widen",
    },
    "plan": {"preset": "dla", "assume_scales": True},
}  # fmt: skip
"""Sets of options for the models of the repository and those of the campaigns. assume_scales: as `qdq-translator plan`."""
_EXPLICIT = {
    "fp32": {"explicit": {"float_type": "fp32"}},
    "fp16": {"explicit": {}, "preset": "gpu", "asymmetric": "widen"},
    "scales": {"explicit": {"scale_type": "fp32"}, "asymmetric": "widen"},
    "int8": {"explicit": {"float_type": "fp32", "io_types": "int8"}, "asymmetric": "widen"},
    "half": {"explicit": {"io_types": "fp16", "scale_type": "fp16"}, "asymmetric": "widen"},
    "dla": {"explicit": {"allow_fp16": True}, "preset": "dla", "asymmetric": "widen"},
    "complete": {"explicit": {}, "target": "orin-dla"},
    "keep": {"explicit": {"allow_fp16": True}, "target": "orin-dla", "asymmetric": "keep"},
    "restored": {"restored": True, "asymmetric": "widen", "per_channel_activations": "max"},
}  # fmt: skip
"""explicit: of `ExplicitOptions`, the explicit network instead of the translation. restored: Q/DQ from the translation's files."""

WITHOUT_TENSORRT = mock.patch("qdq_translator.translation.targets.platforms.installed_tensorrt", return_value=None)
_LARGE = 50_000
"""Models of so many bytes only under two of these sets: a record has a line a node."""


class Case(NamedTuple):
    """group: the file that its record stands in; in `unpriced` every rewrite is applied, whether or not it is worth it. options: of
    `TranslateOptions`, assume_scales, and those of `_EXPLICIT`."""

    group: str
    name: str
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


def cases() -> list[Case]:
    found = [Case("seeds", f"{name}-{key}", _EVERY[key]) for name, _ in seeds() for key in _EVERY]
    found += [Case("dialects", name, options) for name, (_, options) in dialects().items()]
    found += [Case("fixed", f"{name}-{size}", {"shapes": [size]}) for name, size in itertools.product(*fixed())]
    found += [Case("damaged", name, {}) for name in damaged()]
    found += [Case("sidecars", name, {"sidecar": given}) for name, given in sidecars().items()]
    found += [Case("explicit", f"{name}-{key}", _EXPLICIT[key]) for name in explicit_models() for key in _EXPLICIT]
    for path in sorted(OWN_MODELS.glob("*.onnx")):
        sets = ("dla",) if path.stat().st_size > _LARGE else tuple(_EVERY)
        found += [Case("exported", f"{path.stem}-{key}", _EVERY[key]) for key in sets]
    kept = json.loads(CASES.read_text(encoding="utf-8"))
    return found + [Case(row[0], row[1], row[3]) for row in kept]


def _members() -> dict[str, bytes]:
    """The archive of models: member -> its bytes."""
    with tarfile.open(MODELS) as archive:
        return {info.name: cast(IO[bytes], archive.extractfile(info)).read() for info in archive}


@functools.lru_cache(maxsize=None)
def _kept() -> dict[tuple[str, str], bytes]:
    """(group, name) -> the bytes of the model."""
    members = _members()
    rows = json.loads(CASES.read_text(encoding="utf-8"))
    return {(group, name): members[member] for group, name, member, _ in rows}


def model_of(case: Case) -> onnx.ModelProto:
    if case.group == "seeds":
        return dict(seeds())[case.name.rpartition("-")[0]]
    if case.group == "dialects":
        return dialects()[case.name][0]
    if case.group == "sidecars":
        return dict(seeds())["conv"] if case.name[0] == "q" else floats()
    if case.group in ("damaged", "explicit", "fixed"):
        made = {"damaged": damaged, "explicit": explicit_models, "fixed": lambda: fixed()[0]}[case.group]()
        return made[case.name.partition("-")[0]]
    if case.group == "exported":
        return onnx.load(OWN_MODELS / f"{case.name.rpartition('-')[0]}.onnx")
    return onnx.ModelProto.FromString(_kept()[case.group, case.name])


# ---------------------------------------------------------------- what is made, as lines


def record(case: Case) -> list[str]:
    """The lines of a case's record."""
    return [line.replace("\r", "\\r").replace("\n", "\\n") for line in _lines(case)]


def _lines(case: Case) -> list[str]:
    options = dict(case.options)
    assume, restored = (options.pop(name, False) for name in ("assume_scales", "restored"))
    how = options.pop("explicit", None)
    file, content = options.pop("sidecar", ("", ""))
    unpriced = case.group == "unpriced" and mock.patch.object(regions, "placed", lambda *given: None)
    try:
        with contextlib.ExitStack() as stack, WITHOUT_TENSORRT, unpriced or contextlib.nullcontext():
            if file:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                stack.callback(os.chdir, os.getcwd())
                os.chdir(folder)  # what is said has the file's name, and no folder's
                Path(file).write_text(content, encoding="utf-8")
                options["scales"] = file
            if how is not None:
                return [*_explicit(explicit(model_of(case), TranslateOptions(**options), ExplicitOptions(**how)))]
            made = translate(model_of(case), TranslateOptions(**options), assume_scales=assume)
        if restored:
            again = restore(made.model, made.cache.scales, dict.fromkeys(made.fp16_nodes, "fp16"))
            return [*_network(again.model), *(f"{f.name} {_plain(getattr(again, f.name))}" for f in fields(again)[1:])]
        return [*_network(made.model), *_scales(made), *_plan(made), *_said(made)]
    except UserError as error:
        return [f"refused {type(error).__name__}: {facts(error.what)} | {facts(error.hint)}"]


def _explicit(made: Explicit) -> Iterator[str]:
    yield from _network(made.model)
    for key, value in made.to_dict().items():
        if key not in ("generator", "source"):
            yield f"{key} {facts(str(value)) if key == 'notes' else _plain(value)}"


def _network(model: onnx.ModelProto) -> Iterator[str]:
    yield (
        "opset " + " ".join(f"{o.domain or 'onnx'}={o.version}" for o in model.opset_import) + f" ir {model.ir_version}"
    )
    yield from (f"in {typed(value)}" for value in model.graph.input)
    yield from (f"out {typed(value)}" for value in model.graph.output)
    yield from (f"declared {typed(value)}" for value in model.graph.value_info)
    yield from map(node_line, model.graph.node)
    for tensor in sorted(model.graph.initializer, key=lambda t: t.name):
        yield f"const {tensor.name} {values(numpy_helper.to_array(tensor))}"


def typed(value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type
    sizes = ",".join(d.dim_param or str(d.dim_value) if d.WhichOneof("value") else "?" for d in kind.shape.dim)
    more = "".join(f" {p.key}={facts(p.value)}" for p in getattr(value, "metadata_props", ()))
    if value.type.WhichOneof("value") not in ("tensor_type", None):
        return f"{value.name} {' '.join(str(value.type).split())}{more}"
    return f"{value.name} {_dtype(kind.elem_type)}[{sizes if kind.HasField('shape') else '...'}]{more}"


def _dtype(number: int) -> str:
    return str(onnx.TensorProto.DataType.Name(number)).lower()


def node_line(node: onnx.NodeProto) -> str:
    attributes = " ".join(f"{a.name}={_attribute(a)}" for a in sorted(node.attribute, key=lambda a: a.name))
    domain = f"{node.domain}:" if node.domain else ""
    more = [f"{p.key}={facts(p.value)}" for p in getattr(node, "metadata_props", ())]
    made = ", ".join(node.output)
    return " ".join(
        filter(None, [f"{domain}{node.op_type} {node.name} ({', '.join(node.input)}) -> {made}", attributes, *more])
    )


def _attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.type == AttributeProto.GRAPH:
        return "{" + "; ".join(map(node_line, attribute.g.node)) + "}"
    if attribute.type == AttributeProto.TENSOR:
        return values(numpy_helper.to_array(attribute.t))
    return _plain(onnx.helper.get_attribute_value(attribute))


def values(array: np.ndarray) -> str:
    """A few values as they are; of more, integers as a checksum, others as a norm and a centre, which are not compared exactly."""
    kind = array.dtype
    shape = f"{kind}[{','.join(map(str, array.shape))}]"
    if array.size <= 8 or kind.kind not in "biufV":
        return f"{shape} {_plain(array.reshape(-1).tolist())}"
    if kind.kind in "biu":
        return f"{shape} crc {zlib.crc32(np.ascontiguousarray(array).astype('<i8').tobytes()):08x}"
    wide = array.astype(np.float64).reshape(-1)
    known = wide[np.isfinite(wide)]
    norm = float(np.sqrt(np.sum(known**2)))
    places = (np.arange(wide.size) * 2654435761 % 1009)[np.isfinite(wide)] / 1009
    centre = float(np.sum(known * places)) / norm if norm else 0.0
    return f"{shape} norm {norm:.7g} at ~{centre:.6f}" + (f" of {known.size}" if known.size < wide.size else "")


def _scales(made: Translation) -> Iterator[str]:
    for name, value in made.tensor_scales.items():
        origin = made.scales[name].origin
        yield f"scale {name} {value:.7g} {origin.rule} {origin.node} <- {origin.source}" + (
            f" ({facts(origin.note)})" if origin.note else ""
        )
    yield from (f"automatic {name} {value:.7g}" for name, value in made.automatic.items())
    for shared in made.shared_ranges:
        rows = _plain(shared.before)
        yield f"shared {shared.largest:.7g} of {shared.source} raised {shared.raised} refused {shared.refused} at {_plain(list(shared.nodes))} {rows} but {sorted(shared.unapplied)}"


def _plan(made: Translation) -> Iterator[str]:
    verdicts = made.dla.layers if made.dla is not None else [None] * len(made.plan)
    for row, verdict in zip(made.plan, verdicts):
        about = {
            "listed": row.listed,
            "by_design": row.by_design,
            "macs": row.macs,
            "weights": row.weights,
            "missing": list(row.missing),
            "cause": row.cause,
        }
        words = facts(f"{row.reason} {row.cure}")
        text = (
            f"layer {row.name} {' '.join((row.precision, *row.hypotheses))} "
            + _plain({key: value for key, value in about.items() if value})
            + f" {words}"
        )
        if verdict is not None:
            text += f" {verdict.verdict} {verdict.subgraph}" + " wants a scale" * verdict.wants_scale
            text += "".join(f" {found.limit} ({facts(found.found)})" for found in verdict.findings)
            text += "".join(f" unknown {name}" for name in verdict.unknown)
        yield text
    if made.dla is not None:
        yield f"parts {made.dla.subgraphs} {made.dla.generation} " + " | ".join(map(facts, made.dla.notes))
    yield f"cache {made.hardware.cache_number} {made.hardware.origin}"
    for cause in made.causes.causes:
        yield (
            f"cause {cause.tensor} ({cause.users}) by {cause.op} {cause.producer} rule {cause.rule} options {list(cause.options)}"
            f" follows {list(cause.follows)} layers {list(cause.layers)} shared {list(cause.shared)} macs {cause.macs}"
        )
    for option in made.causes.what_if:
        yield f"with {' '.join(option.options)}: layers {option.int8_layers} scales {option.scales} gpu {option.gpu_layers} bits {_plain(option.bits_lost)}"


def _said(made: Translation) -> Iterator[str]:
    for applied in made.rewrites.applied:
        yield f"rewritten {_plain(plain(applied.row()))}"
    for node, why in made.rewrites.reasons.items():
        yield f"left {node} ({facts(why)})"
    yield from (f"node {name} was {was}" for name, was in made.users_nodes.items())
    for row in made.weights:
        yield f"weight {_plain({k: v for k, v in plain(row).items() if k != 'note'})} ({facts(row.note)})"
    for d in made.diagnostics:
        data = f" {_plain(_news(d))}" if _news(d) else ""
        said = "" if d.rule == "D0" else f"{facts(d.message)} | {'hint ' + facts(d.hint) if d.hint else ''}"
        yield f"{d.code} {d.node} {d.tensor}{data} | {said}"


def _news(diagnostic: Diagnostic) -> Mapping[str, Any]:
    """Its data without what other lines say (rows of weights, verdicts), and without names given to nodes that had none."""
    if diagnostic.rule in ("W1", "D0"):
        return {}
    renamed = {new: old for new, old in diagnostic.data.get(RENAMED_NODES, {}).items() if old}
    kept = {key: value for key, value in diagnostic.data.items() if key != RENAMED_NODES}
    return {**kept, RENAMED_NODES: renamed} if renamed else kept


def _plain(value: Any) -> str:
    """Floats with 7 digits, the rest as JSON has it."""
    if isinstance(value, (float, np.floating)):
        return f"{value:.7g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_plain(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)) or hasattr(value, "add") or type(value).__name__.startswith("Repeated"):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def facts(text: str) -> str:
    """What a sentence says beside its wording: quoted names, options, numbers."""
    found = re.findall(r"(?<!\w)'[^']*'|--\w+(?: [\w.]+[:=][\w.:=]+)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)
    return " ".join(found)


# ---------------------------------------------------------------- comparing


_NUMBER = re.compile(r"~?-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _same(kept: str, now: str, most: float = 1e-5) -> bool:
    """Equal, or equal but for numbers with a fraction, which may differ by `most` of their value or in their last digit."""
    if kept == now:
        return True
    if _NUMBER.sub("#", kept) != _NUMBER.sub("#", now):
        return False
    return all(_close(a, b, most) for a, b in zip(_NUMBER.findall(kept), _NUMBER.findall(now)))


def _close(kept: str, now: str, most: float) -> bool:
    if kept == now or "." not in kept + now:
        return kept == now
    a, b = Decimal(kept.lstrip("~")), Decimal(now.lstrip("~"))
    digit = Decimal((0, (1,), max(a.as_tuple().exponent, b.as_tuple().exponent)))
    return abs(a - b) <= max(digit, Decimal(most) * max(abs(a), abs(b)), Decimal("2e-5") * ("~" in kept))


def differences(kept: list[str], now: list[str], most: float = 1e-5) -> str:
    """'' where the records are equal, else a unified diff. most: see `_same`."""
    if len(kept) == len(now) and all(_same(old, line, most) for old, line in zip(kept, now)):
        return ""
    close = {line: old for old, line in zip(kept, now) if _same(old, line, most)}
    return "\n".join(
        difflib.unified_diff(kept, [close.get(line, line) for line in now], "kept", "now", n=1, lineterm="")
    )


# ---------------------------------------------------------------- the files


@functools.lru_cache(maxsize=None)
def kept_records(group: str) -> dict[str, list[str]]:
    """Name of a case -> the lines of its record, of one file."""
    path = FOLDER / f"{group}.txt"
    found: dict[str, list[str]] = {}
    for part in (path.read_text(encoding="utf-8") if path.exists() else "").split("\n== ")[1:]:
        name, *lines = part.rstrip("\n").split("\n")
        found[name.partition(" ")[0]] = lines
    return found


def _write(words: list[str]) -> int:
    """Returns how many records changed."""
    changed = 0
    for group in dict.fromkeys(case.group for case in cases()):
        own = [case for case in cases() if case.group == group]
        old, text = kept_records(group), []
        for case in own:
            lines = old.get(case.name, [])
            if case.name not in old or not words or any(word in str(case) for word in words):
                now = record(case)
                if differences(lines, now):
                    lines, changed = now, changed + 1
            options = _plain(case.options).encode("unicode_escape").decode()
            text.append(f"\n== {case.name} {options}\n" + "\n".join(lines) + "\n")
        (FOLDER / f"{group}.txt").write_text("".join(text), encoding="utf-8")
    return changed


def add(rows: list[tuple[str, str, bytes, Mapping[str, Any]]]) -> None:
    """rows: group, name, model, options. A model that is there already is not stored twice."""
    old = json.loads(CASES.read_text(encoding="utf-8")) if CASES.exists() else []
    members = _members() if MODELS.exists() else {}
    by_data = {data: name for name, data in members.items()}
    for group, name, data, options in rows:
        member = by_data.setdefault(data, f"{len(by_data):04d}.onnx")
        members[member] = data
        old = [row for row in old if row[:2] != [group, name]] + [[group, name, member, dict(options)]]
    CASES.write_text("[\n" + ",\n".join(json.dumps(row) for row in old) + "\n]\n", encoding="utf-8")
    with tarfile.open(MODELS, "w:xz", preset=9) as archive:
        for member, data in sorted(members.items()):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def main(argv: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.records", description=__doc__)
    parser.add_argument("--write", nargs="*", metavar="WORD")
    parser.add_argument("--show", metavar="WORD")
    parser.add_argument("--add", nargs="+", metavar="NAME MODEL [OPTION=VALUE ...]")
    options = parser.parse_args(argv)
    if options.add:
        name, path, *settings = options.add
        given = {k: json.loads(v) for k, _, v in (s.partition("=") for s in settings)}
        add([("added", name, Path(path).read_bytes(), given)])
        _kept.cache_clear()
        options.write = [name]
    if options.write is not None:
        print(f"{_write(options.write)} of {len(cases())} records changed")
        for module in BY_CHANCE if not options.write else ():
            importlib.import_module(f"tests.{module}").write_record()
    if options.show:
        for case in cases():
            if options.show in str(case):
                model = model_of(case)
                print(f"== {case} {_plain(case.options)}", onnx.printer.to_text(model), *record(case), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
