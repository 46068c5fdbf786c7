"""Which scale rules hold: what the options come to (`settings.py`), as far as scale inference is concerned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """on: names of the options of `rules.py` that are given (`infer_concat_scales`). passed: operators that the user declares
    to keep the scale of their input. mode: 'sound', or 'reference' for NVIDIA's order and formulas. for_dla: the target is a
    DLA. unify: what is done where the tensors of one layer of a DLA have different ranges ('off', 'warn', 'max'), as long as
    none loses more than max_bits_lost. by_data: what no rule gives is observed on data (rule K1).
    """

    on: frozenset[str] = frozenset()
    passed: tuple[str, ...] = ()
    mode: str = "sound"
    for_dla: bool = False
    unify: str = "warn"
    max_bits_lost: float = 3.0
    by_data: bool = False
