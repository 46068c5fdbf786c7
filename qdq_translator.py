#!/usr/bin/env python3
"""Drop-in for NVIDIA's script of this name: `qdq_translator.py -i model.onnx`."""

import os
import sys

# Installed, this file's own folder is first on sys.path and holds no package but this file: it would import itself.
_here = os.path.dirname(os.path.realpath(__file__))
if not os.path.isdir(os.path.join(_here, "qdq_translator")):
    sys.path[:] = [p for p in sys.path if os.path.realpath(p or os.curdir) != _here]

from qdq_translator.cli import main_translate  # noqa: E402

if __name__ == "__main__":
    sys.exit(main_translate())
