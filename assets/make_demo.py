"""The moving picture of the README: three commands on the model that ships, with their real output.

    python assets/make_demo.py            # writes assets/demo.svg

One frame a command, shown in turn by SMIL animation, which browsers and GitHub play inside an <img>.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "translate --example --preset dla --dla_output 4d --platform jetpack-6.2 --shapes input:1x1x16x16",
    "verify --example",
    "trtexec --dla_standalone --input_io_formats int8:dla_linear --output_io_formats fp16:dla_linear",
)
COLUMNS, ROWS, SECONDS = 100, 26, 7
ADVANCE, LINE, MARGIN, TITLE = 8.43, 19, 18, 34


def frames(folder: Path) -> list[list[str]]:
    """The lines of each command, wrapped at COLUMNS. Raises CalledProcessError if a command fails."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    made = []
    for words in COMMANDS:
        call = [sys.executable, "-m", "qdq_translator", *words.split()]
        done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        lines = [
            line[i : i + COLUMNS]
            for line in done.stdout.replace(f"{ROOT}/", "").splitlines()
            for i in range(0, len(line) or 1, COLUMNS)
        ]
        command = textwrap.wrap(
            f"$ qdq-translator {words}", COLUMNS - 2, subsequent_indent="    ", break_on_hyphens=False
        )
        made.append([*command, "", *lines][:ROWS])
    return made


def picture(shown: list[list[str]]) -> str:
    """An SVG document that shows one frame after the other, for ever."""
    width, height = round(COLUMNS * ADVANCE) + 2 * MARGIN, TITLE + ROWS * LINE + MARGIN
    count = len(shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="translate, verify and trtexec in a terminal">',
        '<rect width="100%" height="100%" rx="10" fill="#16181d"/>',
        *(
            f'<circle cx="{20 + 18 * n}" cy="17" r="6" fill="{c}"/>'
            for n, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
    ]
    for number, lines in enumerate(shown):
        times = f"0;{number / count:.4f};{(number + 1) / count:.4f};1" if number else f"0;0;{1 / count:.4f};1"
        parts.append(
            f'<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" fill="#d6dae1" opacity="{int(not number)}" '
            f'style="white-space:pre"><animate attributeName="opacity" calcMode="discrete" values="0;1;0;0" keyTimes="{times}" '
            f'dur="{SECONDS * count}s" repeatCount="indefinite"/>'
        )
        for row, line in enumerate(lines):
            color = ' fill="#7ee787"' if row < lines.index("") else ""
            parts.append(f'<text x="{MARGIN}" y="{TITLE + LINE * row + 14}"{color}>{html.escape(line)}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = picture(frames(Path(folder)))
    (ROOT / "assets" / "demo.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
