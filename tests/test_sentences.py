"""What the program says stands in one file, as it is said."""

from __future__ import annotations

from tests.sentences import GOLDEN, golden


def test_every_sentence_is_in_the_golden_file() -> None:
    made, kept = golden().splitlines(), GOLDEN.read_text(encoding="utf-8").splitlines()
    new, gone = [line for line in made if line not in kept], [line for line in kept if line not in made]
    assert made == kept, (
        "The program says other sentences than tests/data/sentences.txt holds. Read them as a native speaker would, then run "
        f"python -m tests.sentences.\nnew: {new}\ngone: {gone}"
    )
    assert len(made) > 300


def test_sentences_end_and_begin() -> None:
    """Errors and what to do are whole sentences; what is typed or filled in may stand at either end."""
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        kind, _, said = line.partition(": ")
        for part in said.split(" // ") if kind in ("error", "warning", "info") else ():
            assert part.rstrip()[-1] in ".}|)?'" or part.startswith("pip install"), line
