"""Writes again everything that is generated from the code, in one go: `python -m tests.renew`. Read `git diff` afterwards.

Operators and rewrites in docs/dla_rules.md, the parts of docs/ that `benchmarks/reference.py` writes, keys of the report
in docs/report_schema.md, the golden file of messages, the record of the public API and its types, the records of small
models and those of networks by chance, and the transcripts. Tables with measurements have commands of their own (docs/performance.md,
docs/tables).
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import dla_rewrites, reference, report_schema
from tests import public_api, records, sentences, transcripts

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "docs" / "report_schema.md"


def pages() -> dict[Path, str]:
    """Each generated file but the records -> what it has to contain."""
    page = dla_rewrites.RULES_PAGE.read_text(encoding="utf-8")
    for part, content in (("rules", dla_rewrites.rules()), ("operators", dla_rewrites.operators())):
        page = dla_rewrites.page(page, part, content)
    return {
        dla_rewrites.RULES_PAGE: page,
        sentences.GOLDEN: sentences.golden(),
        SCHEMA: dla_rewrites.page(SCHEMA.read_text(encoding="utf-8"), "rows", report_schema.tables()),
        **reference.pages(),
        public_api.RECORD: public_api.record(),
        public_api.KEYWORDS: public_api.keywords(),
    }


def main() -> int:
    for path, text in pages().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    transcripts.write([])
    return records.main(["--write"])


if __name__ == "__main__":
    sys.exit(main())
