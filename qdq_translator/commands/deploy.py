"""`qdq-translator deploy`: a model as one folder for a board and the programs that run it there."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from qdq_translator.core.options import REQUIRED, same_option, setting

if TYPE_CHECKING:
    from qdq_translator.workflows.deployment import Deployed


@dataclass
class Options:
    """Make one folder with everything that a board needs for a model: scales (from the model's Q/DQ and from data), the network, the
    calibration cache, scripts and configurations for the programs that run it, a comparison in ONNX Runtime, and a page. Done again,
    only what changed is made again."""

    model: str = setting("an ONNX model, float or with Q/DQ", REQUIRED, positional=True, metavar="MODEL")
    board: str = setting(
        "the platform, e.g. jetpack-6.2 ('qdq-translator platforms' lists them)", REQUIRED, metavar="NAME"
    )
    consumers: List[str] = setting(
        "programs: trtexec, python (qdq-translator build), cudla, deepstream, ultralytics, onnxruntime, triton",
        ["trtexec"],
        short="--for",
        nargs="+",
        metavar="NAME",
    )
    data: Optional[str] = setting(
        "inputs to calibrate and to verify on: an .npz, .npy, image, or a folder of them", None, metavar="PATH"
    )
    output_dir: str = setting("the folder (default: MODEL's name and _deploy)", "", short="-o", metavar="FOLDER")
    target: Optional[str] = setting(
        "gpu: not the DLA that the board has", None, choices=("gpu", "orin-dla", "xavier-dla")
    )
    dla_core: int = setting("which DLA", 0, metavar="N", type=int)
    keep_model: bool = setting("programs that can build from the float ONNX as it is given do so, with a cache for it")
    shapes: List[str] = same_option("shapes", group="")
    samples: Optional[int] = setting("samples of --data to calibrate on (default: all)", None, metavar="N", type=int)
    image_mean: List[float] = same_option("image_mean", group="")
    image_std: List[float] = same_option("image_std", group="")
    layout: str = same_option("layout", group="")
    skip: List[str] = setting("steps to leave out: cut, verify", [], nargs="+", metavar="STEP")
    json: bool = setting("the summary as one JSON object on stdout, nothing else there")
    verbose: bool = setting("tracebacks of errors")


def run(options: Options) -> int:
    """Prints a summary and the next command; status 1 where the comparison found the translation broken."""
    import json

    made = deployed(options, lambda text: print(text, file=sys.stderr, flush=True))
    summary = summary_of(made)
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        _draw(summary)
    for key, why in made.refused.items():
        print(f"note: not for {key}: {why}.", file=sys.stderr)
    for sentence in summary["failed"]:
        print(sentence, file=sys.stderr)
    return int(bool(summary["failed"]))


def deployed(options: Options, say: "Callable[[str], None]") -> "Deployed":
    """The folder of `options`, written. say: told each step. Raises UserError where a step fails."""
    from pathlib import Path

    from qdq_translator.core.formats.files import model_name
    from qdq_translator.core.options import TranslateOptions
    from qdq_translator.workflows.deployment import Request, deploy

    shared = {name: getattr(options, name) for name in ("shapes", "image_mean", "image_std", "layout")}
    request = Request(
        model=options.model,
        board=options.board,
        output=Path(options.output_dir or f"{model_name(options.model)}_deploy"),
        consumers=list(dict.fromkeys(options.consumers)),
        options=TranslateOptions(calibrate=options.data, calibrate_samples=options.samples, **shared),
        verify=lambda files, shapes: _verified(options, str(files.model), shapes),
        target=options.target or "",
        dla_core=options.dla_core,
        skip=options.skip,
        keep_model=options.keep_model,
    )
    return deploy(request, say)


def _verified(options: Options, translation: str, shapes: List[str]) -> Dict[str, Any]:
    """`verify` on the data, or on random inputs."""
    from qdq_translator.commands.verify import Options as VerifyOptions
    from qdq_translator.workflows.verification import verify

    same = {name: getattr(options, name) for name in ("image_mean", "image_std", "layout")}
    asked = VerifyOptions(
        model=options.model,
        translation=translation,
        inputs=options.data,
        samples=options.samples,
        shapes=shapes,
        fuse="on",
        **same,
    )
    return dict(verify(asked))


def summary_of(made: "Deployed") -> Dict[str, Any]:
    """What `deploy --json` prints."""
    report, verification = made.report, made.verification or {}
    dla, cost = report["dla"], report["cost"]
    return {
        "folder": str(made.folder),
        "network": made.name,
        "coverage": report["coverage"],
        "dla": None if dla is None else dla["counts"],
        "milliseconds": None if cost is None else cost["milliseconds"],
        "verdict": (verification.get("verdict") or {}).get("overall"),
        "failed": list(verification.get("failed", [])),
        "consumers": made.commands,
        "refused": made.refused,
        "redone": made.redone,
    }


def _draw(summary: Dict[str, Any]) -> None:
    """At most 20 lines."""
    import shlex

    macs = summary["coverage"]["macs"]
    share = f"{100 * macs['int8'] / macs['total']:.1f}% of MACs in INT8" if macs["total"] else "share of INT8 unknown"
    print(f"{summary['network']} -> {summary['folder']}\n plan        {share}")
    if summary["dla"]:
        print(" DLA         " + ", ".join(f"{count} layers {key}" for key, count in summary["dla"].items() if count))
    if summary["milliseconds"]:
        print(f" estimate    {summary['milliseconds']:.2f} ms on the DLA")
    if summary["verdict"]:
        print(f" verify      {summary['verdict']}")
    for key, commands in summary["consumers"].items():
        print(
            f" {key:<12}{next((line for line in commands if not line.startswith('#')), commands[0]).partition('  #')[0]}"
        )
    print(f" made        {', '.join(summary['redone']) or 'nothing, all as before'}")
    print(f"next:\n  copy {shlex.quote(summary['folder'])} to the board; README.md contains the commands")
