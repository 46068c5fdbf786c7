#!/usr/bin/env python3
"""Drop-in for NVIDIA's script of this name: `qdq_translator.py -i model.onnx`."""

import importlib
import os
import sys

# Installed, this file stands in a folder (bin/) without the package and hides it from every script there: from itself,
# and from `qdq-translator`, which then imports this file where it wants the package. So the folder leaves sys.path.
_here = os.path.dirname(os.path.realpath(__file__))
if not os.path.isdir(os.path.join(_here, "qdq_translator")):
    sys.path[:] = [p for p in sys.path if os.path.realpath(p or os.curdir) != _here]

if __name__ == "__main__":
    from qdq_translator.cli import main_translate

    sys.exit(main_translate())

# Imported in the package's place: hand over to the package.
del sys.modules[__name__]
importlib.import_module(__name__)
