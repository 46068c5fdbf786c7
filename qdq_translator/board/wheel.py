"""The program itself as a wheel, so that a board needs no package index for it."""

from __future__ import annotations

import base64
import configparser
import hashlib
import importlib.metadata
import io
import zipfile
from pathlib import Path

from qdq_translator._version import __version__

NAME = f"qdq_translator-{__version__}-py3-none-any.whl"
_WHEEL = b"Wheel-Version: 1.0\nGenerator: qdq-translator\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_LEFT_OUT = ("__pycache__", ".pyc")


def wheel() -> bytes:
    """The wheel of the running package. The same package makes the same bytes."""
    root, info = Path(__file__).resolve().parents[1], f"qdq_translator-{__version__}.dist-info"
    files = {
        path.relative_to(root.parent).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not any(part in str(path) for part in _LEFT_OUT)
    }
    files[f"{info}/METADATA"] = _metadata(root.parent / "setup.cfg").encode()
    files[f"{info}/WHEEL"] = _WHEEL
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nqdq-translator = qdq_translator.cli:main\n"
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _metadata(setup: Path) -> str:
    """The METADATA file of the installed package; that of a checkout is made from its setup.cfg."""
    lines = ["Metadata-Version: 2.1", "Name: qdq-translator", f"Version: {__version__}", "Requires-Python: >=3.8"]
    if not setup.is_file():
        return importlib.metadata.distribution("qdq-translator").read_text("METADATA") or "\n".join(lines)
    read = configparser.ConfigParser(interpolation=None)
    read.read(setup)
    wanted = read["options"]["install_requires"].strip().splitlines()
    extra = [f'{text}; extra == "verify"' for text in read["options.extras_require"]["verify"].strip().splitlines()]
    return "\n".join([*lines, "Provides-Extra: verify", *(f"Requires-Dist: {text}" for text in [*wanted, *extra]), ""])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
