#!/usr/bin/env python3
"""Drop-in for NVIDIA's script of this name: `qdq_translator.py -i model.onnx`."""

import os
import sys

# Installed, this file's folder is first on sys.path for every command in it, and `import qdq_translator` finds this file
# instead of the package. So it takes the folder off the path and, where it was imported, steps aside.
_here = os.path.dirname(os.path.realpath(__file__))
if not os.path.isdir(os.path.join(_here, "qdq_translator")):
    sys.path[:] = [p for p in sys.path if os.path.realpath(p or os.curdir) != _here]
if __name__ == "qdq_translator":
    del sys.modules[__name__]

from qdq_translator.cli import main_translate  # noqa: E402

if __name__ == "__main__":
    sys.exit(main_translate())
