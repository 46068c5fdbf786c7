"""Choices of a search: a point is the difference of a translation from the given options."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Mapping, NamedTuple

from qdq_translator.core.options import PRESETS, TranslateOptions, words_of
from qdq_translator.core.rules import inference_options

EVERY = "worst:1000"
"""Give up all scales of the model that a better range fits."""
DECIDED = (
    "keep_fp16",
    "float_type",
    "calibrate_method",
    "recalibrate",
    "max_bits_lost",
    *inference_options(markers=True),
)
"""Options that change neither layers nor weights."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A translation that the search may choose. changes: options and their values, by name. kept: FP16 layers in
    addition to those of the options."""

    changes: tuple[tuple[str, Any], ...] = ()
    kept: tuple[str, ...] = ()

    @classmethod
    def of(cls, changes: Mapping[str, Any], kept: Iterable[str] = ()) -> Point:
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
        """The point without changes that have no effect on `base`, so that one translation is one point."""

        def same(name: str, value: Any) -> bool:
            return bool(getattr(base, name) == (list(value) if isinstance(value, tuple) else value))

        return Point.of({name: value for name, value in self.changes if not same(name, value)}, self.kept)

    def moved(self, changes: Mapping[str, Any]) -> Point:
        """The point with other options."""
        return Point.of({**dict(self.changes), **changes}, self.kept)

    def with_kept(self, layers: Iterable[str]) -> Point:
        """The point with these layers in FP16 too."""
        return Point.of(dict(self.changes), (*self.kept, *layers))

    @property
    def layers(self) -> Point:
        """The part that decides which layers and weights the network has."""
        return Point.of({k: v for k, v in self.changes if k not in DECIDED and (k, v) not in _SHARED})


_SHARED = tuple(("unify_scales", how) for how in ("off", "warn", "max", "data"))


class Proposal(NamedTuple):
    """A change to try. passes: of the network over the samples, at most, needed to make it."""

    changes: dict[str, Any]
    passes: float = 1.0


_DATA, _FLOAT, _TRAINED, _DLA, _EDIT = "data", "float", "trained", "dla", "edit"
_ROWS: tuple[tuple[str, Proposal], ...] = (
    (_DATA, Proposal({"calibrate_method": "mse"})),
    (f"{_DLA} {_EDIT}", Proposal({"dla_rewrites": True})),
    (f"{_DATA} {_FLOAT} {_EDIT}", Proposal({"equalize": True}, 3.0)),
    (f"{_DATA} {_DLA}", Proposal({"unify_scales": "data"})),
    (f"{_DATA} {_DLA} {_EDIT}", Proposal({"unify_scales": "requantize"}, 3.0)),
    (f"{_DATA} {_TRAINED}", Proposal({"recalibrate": (EVERY,)}, 2.0)),
    (_DATA, Proposal({"calibrate_method": "max"})),
    (_DATA, Proposal({"calibrate_method": "percentile"})),
    (_DATA, Proposal({"calibrate_method": "output"}, 9.0)),
    (_TRAINED, Proposal({name: True for name in PRESETS["gpu"] if name in DECIDED})),
    (_TRAINED, Proposal(dict.fromkeys(inference_options(markers=False), True))),
    *((_DLA, Proposal({"unify_scales": "max", "max_bits_lost": bits})) for bits in (1.0, 3.0, 8.0)),
)
"""What a proposal needs (calibration data; a model without scales, or with; a DLA; that layers may change), and the
proposal: those that cost no time, then those that may save some, the most promising first."""


def proposals(base: TranslateOptions, is_float: bool) -> list[Proposal]:
    """The changes to try on these options. is_float: the model has no scales."""
    given = {
        _DATA: base.calibrate is not None,
        _FLOAT: is_float,
        _TRAINED: not is_float,
        _DLA: base.target != "gpu",
        _EDIT: not base.keep_model,
    }
    rows = [row for needs, row in _ROWS if all(given[need] for need in needs.split())]
    return [row for row in rows if Point.of(row.changes).plain(base).changes and not _is_more(base, row)]


def _is_more(base: TranslateOptions, row: Proposal) -> bool:
    """Whether the options have more than the proposal: `--dla_rewrites approximate`."""
    return bool(row.changes.get("dla_rewrites") and base.dla_rewrites)
