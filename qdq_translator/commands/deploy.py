"""`qdq-translator deploy`: is a model good on a board, how fast, and what to copy there."""

import sys
from textwrap import fill

from qdq_translator.api.requests import summary_of
from qdq_translator.board.deployment import Deployed, deploy
from qdq_translator.commands.located import print_json
from qdq_translator.core.command_options import DeployOptions as Options
from qdq_translator.core.words import counted, percent
from qdq_translator.translation.report.terminal_summary import time_rows


def run(options: Options) -> int:
    """Print the answer; status 1 if it is no."""
    made = deploy(options, lambda text: print(text, file=sys.stderr, flush=True))
    if options.json:
        print_json(summary_of(made))
    else:
        _draw(made)
    for key, why in made.refused.items():
        print(f"note: not for {key}: {why}.", file=sys.stderr)
    if made.answer.good is False and made.verification is not None:
        for sentence in made.verification.failed[:3]:
            if not sentence.startswith("The verdict is"):  # which the answer has
                print(sentence, file=sys.stderr)
    return int(made.answer.good is False)


def _draw(made: Deployed) -> None:
    """Print the answer in at most 20 lines of 80 columns; a command may be longer."""
    told, report = made.answer, made.report
    rows = [("good?", f"{told.words}: {told.reason}")]
    rows += time_rows(report.cost, report.dla is not None)
    if told.good is not None:
        rows += [("" if number else "data", note) for number, note in enumerate(made.notes[:2])]
        rows += [("accuracy", told.accuracy()), *(("", line) for line in made.accuracy[:2])]
    macs = report.coverage.macs
    if macs.total:
        rows.append(("INT8", f"{percent(macs.int8, macs.total)} of the multiply-accumulates"))
    if report.dla is not None:
        counts = report.dla.counts
        rows.append(
            ("layers", f"{counted(counts.dla_int8 + counts.dla_fp16, 'layer')} on the DLA, {counts.gpu} on the GPU")
        )
    if made.other is not None:
        rows.append(("other", made.other.in_words()))
    rows.append(("folder", str(made.folder)))
    for key, commands in list(made.commands.items())[:2]:
        first = next((line for line in commands if not line.startswith("#")), commands[0])
        rows.append(("on board", f"{first.partition('  #')[0].rstrip()} ({key})"))
    if len(made.commands) > 2:
        rows.append(("", f"README.md there has the commands of {len(made.commands) - 2} more programs"))
    print(f"{made.name} on {made.board}")
    for name, text in rows:
        start, rest = f" {name:<9}", " " * 10
        print(fill(text, 80, initial_indent=start, subsequent_indent=rest, break_long_words=False))
    print(f"next:\n  {told.next}")
