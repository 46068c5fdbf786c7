"""What `verify`'s verdict notices: faults planted in translations whose files agree with each other, and correct translations.

    python -m benchmarks.verdict [--zoo ZOO] [--clean] [--networks NAME ...] [--faults NAME ...] [--write]

Six networks: those that the repository holds (a classifier and a detector with Q/DQ, a denoiser and a classifier of glyphs calibrated from
float) on the data stored beside them, and two Q/DQ networks of ZOO on random data. A fault is planted in the translation before it is written,
so that no digest shows it. It "changes the metric" if the metric falls by CHANGES more than that of the correct translation (points of
Top-1 or mAP, dB of PSNR); of ZOO's networks, which are not trained, if the SQNR of the worst output falls by CHANGES_DB.
`--write` puts the tables into docs/verdict.md. `--clean` judges every model of ZOO and of the repository, translated with three sets of options, on real or random data given as real, and CNNs by
chance that are calibrated.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

import numpy as np
import onnx

from benchmarks import random_networks
from benchmarks.dla_rewrites import page
from e2e_workflow.common import average_precision
from e2e_workflow.denoiser import images
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.commands.verify import Options
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.verify_rows import BROKEN, SUSPICIOUS
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.thresholds import USABLE_DB
from qdq_translator.lab.verification import verify
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.translator import Translation

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "verdict.md"
CHANGES, CHANGES_DB = 0.5, 3.0
SAMPLES = 16
BY_CHANCE = 200
"""CNNs by chance among the correct translations."""
TOP1, PSNR, MAP = (
    "top1",
    f"{images.__name__}:psnr",
    f"{average_precision.__name__}:MeanAveragePrecision",
)
DLA = {"preset": "dla", "platform": "jetpack-6.2"}
PRESETS: dict[str, dict[str, Any]] = {
    "none": {"asymmetric": "widen"},
    "gpu": {"preset": "gpu", "asymmetric": "widen"},
    "dla": {**DLA, "asymmetric": "widen"},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """inputs: an .npz; metric: '' for the SQNR of the worst output."""

    name: str
    model: Path
    inputs: Path
    options: dict[str, Any]
    metric: str = ""


def cases(folder: Path, zoo: Optional[Path] = None) -> list[Case]:
    """Data that are not stored are written into `folder`."""
    with np.load(ROOT / "e2e_workflow/glyphs/model/few_glyphs.npz") as held:
        glyphs = {key: held[key] for key in held}
    normal = {key: (glyphs[key][:, None].astype(np.float32) / 255 - 0.5) / 0.5 for key in ("train", "test")}
    np.savez(folder / "glyphs.npz", input=normal["test"][:64], labels=glyphs["labels"][:64])
    np.savez(folder / "glyphs_train.npz", input=normal["train"][:64])
    noisy, clean = images.pairs(SAMPLES, images.VALIDATION)
    np.savez(folder / "noisy.npz", input=noisy, labels=clean)
    np.savez(folder / "noisy_train.npz", input=images.pairs(32, images.TRAINING)[0])
    dla = {"target": "orin-dla", "platform": "jetpack-6.2"}
    found = [
        Case("digits", EXAMPLE_MODEL, EXAMPLE_SAMPLES, {"add_unary_ew_scales_for_dla": True}, TOP1),
        Case("detector", *(ROOT / "e2e_workflow/detector" / n for n in ("detector_qat.onnx", "samples.npz")), DLA, MAP),
        Case(
            "denoiser",
            ROOT / "e2e_workflow/denoiser/denoiser_float.onnx",
            folder / "noisy.npz",
            {**dla, "calibrate": str(folder / "noisy_train.npz"), "shapes": ["input:1x3x32x32"]},
            PSNR,
        ),
        Case(
            "glyphs",
            ROOT / "e2e_workflow/glyphs/model/glyphs_float.onnx",
            folder / "glyphs.npz",
            {"calibrate": str(folder / "glyphs_train.npz")},
            TOP1,
        ),
    ]
    for stem, options in (("resnet18__nvpq13nofold", {}), ("unet__nvpq13cat", {"preset": "gpu"})) if zoo else ():
        model = zoo / f"{stem}.onnx"  # type: ignore[operator]
        found.append(Case(stem, model, random_data(model, folder), options))
    return found


def random_data(model: Path, folder: Path, share: float = 1.0) -> Path:
    """Normal values, three standard deviations to the end of the range that the model states for its input, times a
    share: the ranges inside a network with random weights hold a quarter."""
    network = ImplicitNetwork.of(translate(model, TranslateOptions(asymmetric="widen")))
    samples = random_samples(input_specs(network.model, {}), network.scales, SAMPLES // 2, 7)
    feeds, path = list(samples), folder / f"{model.stem}.npz"
    np.savez(path, **{name: np.float32(share) * np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
    return path


# ---------------------------------------------------------------- faults

Fault = Callable[[Translation], bool]
"""Changes a translation; False if it has no place for it."""


def held(translation: Translation) -> list[str]:
    """Tensors whose scale the simulated engine applies, from the second third of the network on."""
    names = list(simulate(ImplicitNetwork.of(translation)).placement.held)
    return [n for n in (*names[len(names) // 3 :], *names[: len(names) // 3]) if n not in translation.graph.outputs]


def set_scale(translation: Translation, name: str, value: Optional[float]) -> None:
    scales = translation.tensor_scales
    if value is None:
        del scales[name]
    else:
        scales[name] = float(np.float32(value))


def scaled(factor: float, place: float) -> Fault:
    def plant(translation: Translation) -> bool:
        names = held(translation)
        if not names:
            return False
        name = names[int(place * (len(names) - 1))]
        set_scale(translation, name, translation.tensor_scales[name] * factor)
        return True

    return plant


def swapped(translation: Translation) -> bool:
    scales, names = translation.tensor_scales, held(translation)
    for one in names:
        for other in names:
            if scales[one] > 1.5 * scales[other]:
                scales[one], scales[other] = scales[other], scales[one]
                return True
    return False


def dropped(translation: Translation) -> bool:
    for name in held(translation)[:1]:
        set_scale(translation, name, None)
        return True
    return False


def middle(translation: Translation, *ops: str) -> Iterator[Node]:
    nodes = [n for n in translation.graph.nodes if n.is_op(*ops)]
    return iter(nodes[len(nodes) // 2 :] + nodes[: len(nodes) // 2])


def weights(change: Callable[[np.ndarray], np.ndarray], index: int = 1) -> Fault:
    """change: of a Conv's weight (or its bias, index 2)."""

    def plant(translation: Translation) -> bool:
        graph = translation.graph
        for node in middle(translation, "Conv"):
            values = graph.array(node.input(index)) if node.input(index) else None
            if values is not None and values.size and values.shape[0] > 1 and (index == 2 or values.shape[1] > 1):
                graph.set_input(
                    node, index, graph.add_initializer(f"{node.input(index)}_spoilt", change(values.copy()))
                )
                return True
        return False

    return plant


def channel_scaled(values: np.ndarray) -> np.ndarray:
    values[len(values) // 2] *= 2
    return values


def channels_swapped(values: np.ndarray) -> np.ndarray:
    values[[0, 1]] = values[[1, 0]]
    return values


def wrong_batchnorm(values: np.ndarray) -> np.ndarray:
    factors = 1 + 0.3 * np.sin(np.arange(len(values)))
    return (values * factors.reshape(-1, *[1] * (values.ndim - 1))).astype(values.dtype)


def pad(translation: Translation) -> bool:
    for node in middle(translation, "Conv"):
        pads = list(node.get("pads") or ())
        if len(pads) == 4 and pads[0]:
            node.set("pads", [pads[0] + 1, pads[1], pads[2] - 1, pads[3]])
            return True
    return False


def activation(translation: Translation) -> bool:
    for node in middle(translation, "Relu", "LeakyRelu", "Sigmoid", "HardSwish"):
        translation.graph.set_operator(node, "Tanh" if node.is_op("Relu", "Sigmoid") else "Relu")
        return True
    return False


def concat(translation: Translation) -> bool:
    for node in middle(translation, "Concat"):
        translation.graph.set_inputs(node, node.inputs[::-1])
        shapes = [translation.types.static_shape(n) for n in node.inputs]
        return shapes[0] is not None
    return False


def branch(translation: Translation) -> bool:
    graph = translation.graph
    for node in middle(translation, "Add"):
        if not any(map(graph.is_constant, node.inputs)) and len(set(node.inputs)) == 2:
            graph.set_inputs(node, [node.inputs[0], node.inputs[0]])
            return True
    return False


FAULTS: dict[str, Fault] = {
    **{
        f"scale {word} at {place:g}": scaled(factor, place)
        for word, factor in (("x2", 2), ("/2", 0.5))
        for place in (0.0, 0.6)
    },
    **{f"scale {word}": scaled(factor, 0.3) for word, factor in (("x8", 8), ("/8", 1 / 8), ("x127", 127))},
    "scales swapped": swapped,
    "scale dropped": dropped,
    "weight channel scaled": weights(channel_scaled),
    "weight channels swapped": weights(channels_swapped),
    "weight rolled": weights(lambda values: np.roll(values, 1, axis=1)),
    "bias": weights(lambda values: np.roll(values, 1), 2),
    "BatchNorm": weights(wrong_batchnorm),
    "pad": pad,
    "activation": activation,
    "Concat order": concat,
    "lost branch": branch,
}


# ---------------------------------------------------------------- judged


@dataclasses.dataclass(frozen=True)
class Found:
    """metric: of the simulated engine; without one the SQNR of its worst output in dB. hopeless: it is noticed only
    because outputs are below the floor that holds whatever was expected, and so they are by rounding alone."""

    verdict: str
    metric: float
    reasons: list[str]
    hopeless: bool = False

    @property
    def noticed(self) -> bool:
        return self.verdict in (SUSPICIOUS, BROKEN)


def judged(case: Case, fault: Optional[Fault] = None) -> Optional[Found]:
    """None if the network has no place for the fault."""
    translation = translate(case.model, TranslateOptions(**case.options))
    if fault is not None and not fault(translation):
        return None
    with tempfile.TemporaryDirectory() as folder:
        translation.save(folder)
        asked = Options(
            model=str(case.model),
            translation=folder,
            data=str(case.inputs),
            samples=64 if case.metric == TOP1 else SAMPLES,
            metric=case.metric or None,
        )
        found = verify(asked)
    row = found["verdict"]
    metric = found["outputs"]["metric"].get("simulated")
    if metric is None:
        rows = found["outputs"]["pairs"][0]["outputs"].values()
        metric = min(99.0 if r["identical"] else -99.0 if r["sqnr_db"] is None else r["sqnr_db"] for r in rows)
    measured = [
        f"{name}: {o['verdict']} {o['sqnr_db']} {o['least_db']} {o['where']}" for name, o in row["outputs"].items()
    ]
    lost = [o["expected_db"] for o in row["outputs"].values() if o["verdict"] in (SUSPICIOUS, BROKEN)]
    hopeless = bool(lost) and not row["reasons"] and all(db is not None and db < USABLE_DB for db in lost)
    return Found(row["overall"], metric, [*row["reasons"], *measured], hopeless)


@dataclasses.dataclass(frozen=True)
class Planted:
    """changes: the fault changes the metric. nothing: it changes no figure, as in a channel that a Relu makes 0."""

    network: str
    fault: str
    changes: bool
    nothing: bool
    found: Found

    @property
    def missed(self) -> str:
        """Its name, if it was not noticed."""
        return "" if self.found.noticed else f"{self.fault} (changes no figure)" if self.nothing else self.fault


def campaign(chosen: Sequence[Case], faults: Sequence[str] = tuple(FAULTS)) -> list[Planted]:
    """Every fault that the networks have a place for."""
    rows = []
    for case in chosen:
        right = judged(case)
        assert right is not None
        print(f"{case.name:<24} {'correct':<24} {right.metric:8.3f} {right.verdict}", flush=True)
        for name in faults:
            found = judged(case, FAULTS[name])
            if found is None:
                continue
            changes = right.metric - found.metric > (CHANGES if case.metric else CHANGES_DB)
            nothing = (found.metric, found.reasons) == (right.metric, right.reasons)
            rows.append(Planted(case.name, name, changes, nothing, found))
            print(f"{case.name:<24} {name:<24} {found.metric:8.3f} {found.verdict}{' CHANGES' * changes}", flush=True)
            if not found.noticed:
                print(
                    *(f"    {reason}" for reason in [f"correct: {right.reasons}", *found.reasons]), sep="\n", flush=True
                )
    return rows


def table(rows: Sequence[Planted]) -> Iterator[str]:
    """For docs/verdict.md: a line for each network, and the sum."""
    yield "| network | planted | noticed | change the metric | noticed of these | not noticed |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for network in (*dict.fromkeys(row.network for row in rows), ""):
        own = [row for row in rows if network in ("", row.network)]
        changing = [row for row in own if row.changes]
        counts = (len(own), sum(r.found.noticed for r in own), len(changing), sum(r.found.noticed for r in changing))
        missed = ", ".join(filter(None, (row.missed for row in own))) if network else ""
        yield f"| {network or 'all'} | {' | '.join(map(str, counts))} | {missed} |"


def clean_table(count: int, alarms: Sequence[str], hopeless: Sequence[str]) -> Iterator[str]:
    yield f"Correct translations: {count} judged, {len(alarms)} called suspicious or broken by mistake: {', '.join(alarms) or 'none'}."
    yield (
        f"{len(hopeless)} more have outputs below {USABLE_DB:g} dB, as rounding alone would give them (random weights): "
        f"{', '.join(hopeless) or 'none'}."
    )


def clean(folder: Path, zoo: Path) -> tuple[int, list[str], list[str]]:
    """(correct translations, those that are called suspicious or broken, those of them that are hopeless)."""
    count, alarms, hopeless = 0, [], []
    chosen = [c for c in cases(folder) if "calibrate" not in c.options]
    for model in sorted(zoo.glob("*.onnx")):
        try:
            chosen.append(Case(model.stem, model, random_data(model, folder, 0.25), {}))
        except UserError as error:
            print(f"{model.stem:<34} {error.what}"[:150], flush=True)
    for case in chosen:
        for name, options in PRESETS.items():
            try:
                found = judged(dataclasses.replace(case, options=options))
            except UserError as error:
                print(f"{case.name:<34} {name:<6} {error.what}"[:150], flush=True)
                continue
            assert found is not None
            count += 1
            if found.noticed:
                (hopeless if found.hopeless else alarms).append(f"{case.name} ({name})")
                print(f"{case.name} ({name}) {found.verdict} {found.reasons[:6]}", flush=True)
    found_count, found_alarms = by_chance(folder, range(BY_CHANCE))
    return count + found_count, [*alarms, *found_alarms], hopeless


def by_chance(folder: Path, seeds: Iterable[int]) -> tuple[int, list[str]]:
    """The same of CNNs by chance, calibrated and judged on data of one generator."""
    count, alarms = 0, []
    for seed in seeds:
        model, train, test = random_networks.network(seed)
        onnx.save(model, folder / "m.onnx")
        np.savez(folder / "train.npz", x=train)
        np.savez(folder / "test.npz", x=test)
        options = {"calibrate": str(folder / "train.npz"), "preset": ("gpu", "dla", None)[seed % 3]}
        inputs = folder / ("train.npz" if seed % 2 else "test.npz")
        found = judged(Case(f"random {seed}", folder / "m.onnx", inputs, options))
        count += 1
        if found is not None and found.noticed:
            alarms.append(f"random {seed}")
            print(f"{alarms[-1]:<40} {found.verdict} {found.reasons[:6]}", flush=True)
    return count, alarms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, help="a folder with Q/DQ models")
    parser.add_argument("--clean", action="store_true", help="correct translations alone (needs --zoo)")
    parser.add_argument("--networks", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--faults", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.clean:
            part, lines = "clean", [*clean_table(*clean(Path(folder), asked.zoo))]
        else:
            chosen = [c for c in cases(Path(folder), asked.zoo) if not asked.networks or c.name in asked.networks]
            part, lines = "planted", [*table(campaign(chosen, asked.faults or tuple(FAULTS)))]
    print("\n".join(lines))
    if asked.write:
        text = page(PAGE.read_text(encoding="utf-8"), part, "\n".join(lines) + "\n")
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
