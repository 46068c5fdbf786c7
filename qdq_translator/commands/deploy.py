"""`qdq-translator deploy`: a model as one folder for a board and the programs that run it there."""

import shlex
import sys

from qdq_translator.commands.located import print_json
from qdq_translator.core.command_options import DeployOptions as Options
from qdq_translator.core.formats.report_rows import DeploySummary
from qdq_translator.core.words import counted
from qdq_translator.output.report.model import DEVICES
from qdq_translator.workflows.deployment import Deployed, deploy


def run(options: Options) -> int:
    """Print a summary and the next command; status 1 if the comparison found the translation broken."""
    made = deploy(options, lambda text: print(text, file=sys.stderr, flush=True))
    summary = summary_of(made)
    if options.json:
        print_json(summary)
    else:
        _draw(summary)
    for key, why in made.refused.items():
        print(f"note: not for {key}: {why}.", file=sys.stderr)
    for sentence in summary.failed:
        print(sentence, file=sys.stderr)
    return int(bool(summary.failed))


def summary_of(made: Deployed) -> DeploySummary:
    report, verdict = made.report, made.verdict
    return DeploySummary(
        folder=str(made.folder),
        network=made.name,
        coverage=report.coverage,
        dla=report.dla.counts if report.dla else None,
        milliseconds=report.cost.milliseconds if report.cost else None,
        verdict=verdict.overall if verdict else None,
        reasons=verdict.reasons if verdict else (),
        failed=tuple(made.failed),
        consumers=made.commands,
        refused=made.refused,
        redone=tuple(made.redone),
    )


def _draw(summary: DeploySummary) -> None:
    """At most 20 lines."""
    macs = summary.coverage.macs
    share = (
        f"{100 * macs.int8 / macs.total:.1f}% of MACs in INT8"
        if macs.total and macs.int8 is not None
        else "share of INT8 unknown"
    )
    print(f"{summary.network} -> {summary.folder}\n plan        {share}")
    if summary.dla:
        counts = ((key.replace("_", "-"), count) for key, count in vars(summary.dla).items() if count)
        print(" layers      " + "; ".join(f"{DEVICES[key][1]}: {counted(count, 'layer')}" for key, count in counts))
    if summary.milliseconds:
        print(f" estimate    {summary.milliseconds:.2f} ms on the DLA")
    if summary.verdict:
        why = summary.reasons
        print(f" verify      {summary.verdict}{f', for {len(why)} reasons; the first: {why[0]}' if why else ''}")
    for key, commands in summary.consumers.items():
        first = next((line for line in commands if not line.startswith("#")), commands[0])
        print(f" {key:<12}{first.partition('  #')[0].rstrip()}")
    print(f" made        {', '.join(summary.redone) or 'nothing, all as before'}")
    print(f"next:\n  copy {shlex.quote(summary.folder)} to the board; README.md contains the commands")
