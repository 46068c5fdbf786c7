"""Choices of a search: a point is the difference of a translation from the options given to `tune`."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Iterator

from qdq_translator.core.options import CALIBRATE_METHODS, PRESETS, TENSOR_METHODS, TranslateOptions, words_of
from qdq_translator.core.rules import inference_options

MARKERS = "add_unary_ew_scales_for_dla"
WORST = (2, 4, 8)
"""Of the model's own scales, how many `--recalibrate worst:N` gives up."""
EVERY = "worst:1000"
"""Give up all that a better range fits."""
BITS = (1.0, 3.0, 8.0)
"""That raising a shared range may cost a tensor, before its layers go to FP16 instead; no int8 tensor has more than 8.
"""


@dataclasses.dataclass(frozen=True)
class Point:
    """changes: options and their values, by name. kept: FP16 layers in addition to those of the options."""

    changes: tuple[tuple[str, Any], ...] = ()
    kept: tuple[str, ...] = ()

    @classmethod
    def of(cls, changes: dict[str, Any], kept: Iterable[str] = ()) -> Point:
        return cls(tuple(sorted(changes.items())), tuple(sorted(set(kept))))

    def options(self, base: TranslateOptions) -> TranslateOptions:
        changes: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value for name, value in self.changes
        }
        return dataclasses.replace(base, **changes, keep_fp16=list(dict.fromkeys([*base.keep_fp16, *self.kept])))

    def words(self, base: TranslateOptions) -> list[str]:
        """Arguments after `translate MODEL` for the same translation."""
        return words_of(dataclasses.asdict(self.options(base)))

    def plain(self, base: TranslateOptions) -> Point:
        """The same point without changes that have no effect, so that one translation is one point."""

        def same(name: str, value: Any) -> bool:
            return bool(getattr(base, name) == (list(value) if isinstance(value, tuple) else value))

        return Point.of({name: value for name, value in self.changes if not same(name, value)}, self.kept)

    def includes(self, layers: Iterable[str]) -> bool:
        """Whether the point has all these layers in FP16."""
        return set(layers) <= set(self.kept)

    def moved(self, **changes: Any) -> Point:
        """The point with other options."""
        return Point.of({**dict(self.changes), **changes}, self.kept)


def starts(base: TranslateOptions) -> list[Point]:
    """Usual manual choices, each on a DLA with the rewrites too: the options as given; with data the output's error,
    equalized channels, trained scales given up, shared ranges by the data, each calibration method; each usual set of
    inference rules."""
    rewrites: list[dict[str, Any]] = [{}] if base.target == "gpu" else [{}, {"dla_rewrites": True}]
    chosen = list(rewrites)
    if base.calibrate is not None:
        on_output: dict[str, Any] = {**rewrites[-1], "calibrate_method": "output"}
        chosen += [{**on_output, **more} for more in ({}, {"equalize": True}, {"recalibrate": (EVERY,)})]
        for row in rewrites[1:]:
            chosen += [{**on_output, "equalize": True, "unify_scales": "requantize"}, {**row, "unify_scales": "data"}]
        chosen += [{**row, "calibrate_method": method} for method in TENSOR_METHODS for row in rewrites]
    rules = inference_options(markers=False)
    sound = {name: value for name, value in PRESETS["gpu"].items() if name in rules}
    usual: list[dict[str, Any]] = [sound, rules, {**rules, MARKERS: True}]
    chosen += [{**more, **row} for more in rewrites for row in usual]
    chosen += [{**row, **more, "unify_scales": "max"} for more in rewrites[1:] for row in usual]
    return list(dict.fromkeys(Point.of(row).plain(base) for row in chosen))


def moves(base: TranslateOptions) -> Iterator[dict[str, Any]]:
    """Single changes of options, in a fixed order; a value may be one that a point already has. Shared ranges of a DLA
    are reported, raised, or left to FP16 if raising costs too many bits; with data they are calibrated together as well
    (K1)."""
    for name in inference_options(markers=True):
        for value in (True, False):
            yield {name: value}
    if base.target != "gpu":
        for how in ("warn", "max", *(("data", "requantize") if base.calibrate is not None else ())):
            yield {"unify_scales": how}
        for bits in BITS:
            yield {"unify_scales": "max", "max_bits_lost": bits}
        for rewrites in (True, "approximate", False):
            yield {"dla_rewrites": rewrites}
    if base.calibrate is not None:
        for method in CALIBRATE_METHODS:
            yield {"calibrate_method": method}
        for equalize in (True, False):
            yield {"equalize": equalize}
        for count in WORST:
            yield {"recalibrate": (f"worst:{count}",)}
        yield {"recalibrate": ()}
