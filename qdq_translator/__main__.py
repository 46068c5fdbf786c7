"""`python3 -m qdq_translator`: a command of `qdq-translator`, else NVIDIA's flags."""

from qdq_translator.cli import main_module
from qdq_translator.core.ending import program

if __name__ == "__main__":
    program(main_module)
