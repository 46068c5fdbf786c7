"""`qdq-translator doctor`: check this machine for TensorRT and the DLA."""

import os
from textwrap import fill

from qdq_translator.board.engine.machine import PROBLEM, examine
from qdq_translator.commands.located import print_json
from qdq_translator.core.command_options import DoctorOptions as Options


def run(options: Options) -> int:
    """Print one line per finding; status 1 if one is a problem."""
    findings = examine(path=os.environ.get("PATH", ""))
    if options.json:
        print_json(findings)
    else:
        for row in findings:
            print(f"{row.state:<8} {row.what}: {row.found}")
            if row.remedy:
                print(fill(row.remedy, 78, initial_indent=" " * 9, subsequent_indent=" " * 9))
    return int(any(row.state == PROBLEM for row in findings))
