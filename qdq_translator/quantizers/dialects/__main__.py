"""`python -m qdq_translator.quantizers.dialects docs/dialects.md` writes the table of that page."""

from __future__ import annotations

import sys
from pathlib import Path

from qdq_translator.quantizers.dialects import page

for name in sys.argv[1:]:
    Path(name).write_text(page(Path(name).read_text(encoding="utf-8")), encoding="utf-8")
