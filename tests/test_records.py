"""What is made of many small models is what was recorded (tests/records.py says how, and how to record anew)."""

from __future__ import annotations

import pytest

from tests.records import FOLDER, Case, cases, differences, kept_records, record


@pytest.mark.parametrize("case", cases(), ids=str)
def test_what_is_made_is_what_was_recorded(case: Case) -> None:
    kept, now = kept_records(case.group).get(case.name, []), record(case)
    assert not differences(kept, now), differences(kept, now)


def test_every_record_is_of_a_case() -> None:
    groups = {case.group for case in cases()}
    assert {path.stem for path in FOLDER.glob("*.txt")} == groups
    for group in groups:
        assert list(kept_records(group)) == [case.name for case in cases() if case.group == group]


@pytest.mark.parametrize(
    "kept, now, same",
    [
        ("scale x 0.5 Q1", "scale x 0.5 Q1", True),
        ("scale x 0.1234567 Q1", "scale x 0.1234571 Q1", True),
        ("scale x 0.1234567 Q1", "scale x 0.1234600 Q1", False),
        ("scale x 0.5 Q1", "scale x 0.5 Q2", False),
        ("scale x -0.5 Q1", "scale x 0.5 Q1", False),
        ("layer 3 of 4", "layer 3 of 5", False),
        ("at ~0.000001", "at ~-0.000009", True),
        ("at ~0.000001", "at ~0.000091", False),
        ("share 1.0312", "share 1.0313", True),
        ("share 1.0312", "share 1.0314", False),
        ("a 1e-07", "a 2e-07", False),
        ("a 1.5e-07", "a 1.500001e-07", True),
    ],
)
def test_what_counts_as_a_difference(kept: str, now: str, same: bool) -> None:
    assert bool(differences([kept, "x"], [now, "x"])) != same


def test_a_difference_shows_its_lines_alone() -> None:
    kept = ["a 0.1234567", "b 1", "c", "d", "e"]
    text = differences(kept, ["a 0.1234568", "b 2", "c", "d", "e"])
    assert "-b 1" in text and "+b 2" in text and "0.1234568" not in text
