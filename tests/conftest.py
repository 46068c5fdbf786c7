"""What the tests share: where the real exporters' models lie, and a loud skip where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
ZOO = SHARED / "zoo"


def need_shared(path: Path) -> Path:
    """`path`, or a skip that says what is missing."""
    if not path.exists():
        pytest.skip(f"SKIPPED FOR LACK OF DATA: {path.name} does not lie beside the project")
    return path


@pytest.fixture
def zoo() -> Path:
    return need_shared(ZOO)
