"""`explain` on lines that its rows were not made from: patterns supported by one half of the threads, scored on the other.

    python -m benchmarks.explain_lines

A pattern of a row counts as learned from the threads whose lines (`tests/data/log_lines.json`) it fits. Patterns that
only the other half supports are left out, then the lines of that half are read: right if the row of the line is found and claims its cause,
listed if it names at most four, wrong if another row claims a cause, else abstained. Each of ten divisions is scored in
both directions: once with the patterns of the threads alone, once with those that public source prints too
(`benchmarks/message_sources.py`). At last the rows that have to be written as symptoms.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Container

from qdq_translator.board.engine import messages as table
from qdq_translator.board.engine.messages import Message, messages, plain, recognize, rows, writer_fits

LINES = Path(__file__).parents[1] / "tests" / "data" / "log_lines.json"
LISTED = LINES.with_name("message_sources.json")

BROAD = 0.8
"""A row whose claims are right less often than this names a symptom."""


def learned(
    table_rows: list[dict[str, Any]], known: list[dict[str, Any]], half: set[str], listed: Container[str] = ()
) -> dict[str, list[re.Pattern[str]]]:
    """Id of each row -> its patterns that a thread of `half`, no thread at all, or public source (`listed`) supports."""
    kept: dict[str, list[re.Pattern[str]]] = {}
    for row in table_rows:
        own = [(line["thread"], line["line"]) for line in known if line["id"] == row["id"]]
        for text in row["patterns"]:
            pattern = re.compile(text, re.IGNORECASE)
            threads = {thread for thread, line in own if pattern.search(plain(line)) or pattern.search(line)}
            if not threads or threads & half or text in listed:
                kept.setdefault(row["id"], []).append(pattern)
    return kept


def answer(line: str, kept: dict[str, list[re.Pattern[str]]]) -> list[Message]:
    """The most specific of the rows whose kept patterns fit."""
    text = plain(line)
    fitting = []
    for message in messages():
        found = next((m for p in kept.get(message.id, ()) if (m := p.search(text) or p.search(line))), None)
        if found and writer_fits(message, text):
            fitting.append((message, found))
    return [message for message, _ in table._most_specific(fitting)]


def score(
    known: list[dict[str, Any]], kept: dict[str, list[re.Pattern[str]]], claimed: dict[str, list[bool]]
) -> tuple[int, int, int, int]:
    """(right, listed, wrong, abstained). claimed: id of a row -> whether it was right in each line that it claimed."""
    right = listed = wrong = 0
    for line in known:
        gone = recognize(line["line"])
        found = answer(line["line"], kept) if gone is None or gone.message.removal is None else [gone.message]
        first = found[0] if found else None
        if first is None:
            continue
        own = first.id == line["id"]
        right += own and not first.causes
        listed += own and bool(first.causes)
        if first.claims:
            wrong += not own
            claimed[first.id] += [own]
    return right, listed, wrong, len(known) - right - listed - wrong


def main() -> None:
    known = [line for line in json.loads(LINES.read_text(encoding="utf-8")) if not line.get("part")]
    sources = json.loads(LISTED.read_text(encoding="utf-8"))["patterns"]
    threads = sorted({line["thread"] for line in known})
    print(f"{len(known)} lines of {len(threads)} threads, {len(messages())} rows")
    claimed: dict[str, list[bool]] = defaultdict(list)
    for title, public in (("threads alone", {}), ("with public source", sources)):
        total = [0, 0, 0, 0]
        for seed in range(10):
            half = set(random.Random(seed).sample(threads, len(threads) // 2))
            for learn in (half, set(threads) - half):
                unseen = [line for line in known if line["thread"] not in learn]
                total = [a + b for a, b in zip(total, score(unseen, learned(rows(), known, learn, public), claimed))]
        names = ("right", "listed", "confidently wrong", "abstained")
        print(f"{title}:", ", ".join(f"{name} {count / sum(total):.1%}" for name, count in zip(names, total)))
    broad = {key: (sum(right), len(right)) for key, right in claimed.items() if sum(right) < BROAD * len(right)}
    print("symptoms, to be written with their causes:", broad or "none")


if __name__ == "__main__":
    main()
