"""`python3 -m qdq_translator`: the same as `qdq_translator.py`."""

import sys

from qdq_translator.cli import main_translate

if __name__ == "__main__":
    sys.exit(main_translate())
