"""`python3 -m qdq_translator`: a command of `qdq-translator`, else NVIDIA's flags."""

import sys

from qdq_translator.cli import main_module

if __name__ == "__main__":
    sys.exit(main_module())
