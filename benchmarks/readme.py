"""The README's performance table, as Markdown.

python -m benchmarks.readme             # two minutes on a quiet machine; prints
python -m benchmarks.readme --write     # and replaces the table in README.md
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROOT, machine
from benchmarks.translate import Result, made, measure

NETWORKS = (
    ("chain", "100", "chain of 100 Convs"),
    ("chain", "1000", "chain of 1,000"),
    ("chain", "3000", "chain of 3,000"),
    ("chain", "10000", "chain of 10,000"),
    ("residual", "1000", "residual, 1,000"),
    ("mobilenet_v2", "", "MobileNet-v2"),
    ("resnet50", "", "ResNet-50"),
)
"""Function in networks.py, its size, the name in the table."""
HEADER = """| network | nodes | file | time | x load + save | peak memory | x file |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def row(title: str, result: Result) -> str:
    return "| " + " | ".join([title, *result.cells[1:]]) + " |\n"


def with_table(text: str, table: str) -> str:
    """`text` with its performance table replaced. Raises ValueError where it has none."""
    pattern = re.escape(HEADER) + r"(?:\|.*\n|PERFORMANCE_TABLE\n)*"
    if len(re.findall(pattern, text)) != 1:
        raise ValueError("README.md has not one performance table with the header of benchmarks/readme.py")
    return re.sub(pattern, lambda match: table, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the table in README.md")
    parser.add_argument("--repeats", type=int, default=3, help="runs behind each median (default: 3)")
    options = parser.parse_args()
    print(machine(), file=sys.stderr)
    table = HEADER
    with tempfile.TemporaryDirectory() as folder:
        for network, size, title in NETWORKS:
            path = made(network, Path(folder), size)
            table += row(title, measure(path, options.repeats))
            path.unlink()
    print(table, end="")
    if options.write:
        readme = ROOT / "README.md"
        readme.write_text(with_table(readme.read_text(encoding="utf-8"), table), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
