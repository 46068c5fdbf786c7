"""Shared by commands: finding the translation that they read, the next command, and results as JSON."""

import shlex
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, TextIO, Union

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import MODEL_SUFFIX, TranslationFiles
from qdq_translator.core.formats.report_rows import CutParts
from qdq_translator.core.formats.rows import json_text
from qdq_translator.core.options import image_words

EXAMPLE_MODEL = Path(__file__).resolve().parents[1] / "models" / "digits_resnet_qat.onnx"
EXAMPLE_SAMPLES = EXAMPLE_MODEL.parent / "digits_samples.npz"
"""Real inputs of the included model, with labels."""


def print_next(
    files: TranslationFiles,
    model: str,
    after: str,
    info: Optional[Path] = None,
    parts: Optional[CutParts] = None,
    static: bool = False,
    falls_back: bool = False,
    unmeasured: bool = False,
) -> None:
    """Prints the command that follows `after` on the way from a model to an engine (verify, then build --print, of each
    part that the DLA runs; both after report), ready to paste, on stdout; on stderr after trtexec, whose stdout is a
    command of its own.

    model: the explicit model, '' if only its name is known (without the model, verify is not mentioned). info: the
    layer information that the command writes, after trtexec. parts: the manifest, if a tail was cut off. static: all
    inputs have known sizes, and falls_back is true if layers of a DLA's network run on the GPU; without static both are
    read from the report. unmeasured: verify ran on random inputs, and comes first, with data.
    """
    stream = sys.stderr if after == "trtexec" else sys.stdout
    where = _where(files)
    if info is not None:
        print_commands(f"qdq-translator report {_word(info)}{where}", stream=stream)
    if info is not None or after == "trtexec":
        return
    explicit = model or find_explicit(files, "")
    which = "--example" if Path(explicit) == EXAMPLE_MODEL else _word(explicit)  # with inputs of its own
    verify = [f"verify {which}{_data_of(files, ' DATA' * unmeasured)}{where}"] * bool(explicit)
    build: List[str] = []
    if after == "report" or not (verify and (unmeasured or after == "translate")):
        flags = ["--allow_gpu_fallback"] * falls_back if static else _flags_to_build(files)
        build = _to_build(" ".join([f"build --print{where}", *flags]), parts, files.model.name)
    lines = [*verify * (unmeasured or after != "verify"), *build]
    print_commands(*(f"qdq-translator {line}" for line in lines), stream=stream)


def _where(files: TranslationFiles) -> str:
    """The option that names the translation; '' for the one of the default folder."""
    folder = str(files.folder) if TranslationFiles.names_in(files.folder) == [files.name] else str(files.model)
    return "" if folder == "translated" else f" -t {_word(folder)}"


def _to_build(whole: str, parts: Optional[CutParts], name: str) -> List[str]:
    """The commands that build the network and the DLA's parts of it."""
    return list({"trtexec": whole, **(_loadable(parts, name) if parts else {})}.values())


def _data_of(files: TranslationFiles, otherwise: str = "") -> str:
    """The data that the translation was calibrated on, and how images become inputs, for a command."""
    options = files.read_config().get("options", {}) if files.config.exists() else {}
    data = options.get("calibrate")
    return " ".join(["", _word(data), *image_words(options)]) if data and Path(data).exists() else otherwise


def _flags_to_build(files: TranslationFiles) -> List[str]:
    """Properties for trtexec, from the report: GPU fallback, and static sizes."""
    if not files.report.exists():
        return []
    inputs, dla = files.report_parts("inputs", "dla")
    falls_back = dla is not None and any(row.verdict == "gpu" for row in dla.layers)
    shapes = static_shapes({row.name: row.shape for row in inputs or ()})
    return [*["--allow_gpu_fallback"] * falls_back, *["--opt_shapes"] * bool(shapes), *shapes]


def _word(path: Union[str, Path]) -> str:
    """A path for a shell, and none that reads like an option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def _loadable(parts: CutParts, whole: str) -> Dict[str, str]:
    """The commands that build the DLA's parts: loadables, or engines if some layers run on the GPU. One replaces
    `trtexec` if that part is `whole` itself. {} for parts that were not planned for a DLA."""
    found = {}
    for part in (row for row in parts.parts if row.role == "dla" and row.gpu_layers is not None):
        words = f"build --print -t {_word(Path(parts.folder) / part.file)} "
        if part.gpu_layers:
            words += "--allow_gpu_fallback"
        else:
            formats = (",".join(row.format for row in ends) for ends in (part.inputs, part.outputs))
            words += "--dla_standalone --builder input_io_formats={} output_io_formats={}".format(*formats)
        found["trtexec" if part.file == whole else f"loadable {part.file}"] = words
    return found


def is_explicit(path: str) -> bool:
    """A model with Q/DQ, not a translation."""
    return Path(path).is_file() and not path.endswith(MODEL_SUFFIX)


def find_explicit(files: TranslationFiles, model: str) -> str:
    """The file of the explicit model: `model` if it exists, else its likely place (here, or in or next to the
    translation's folder), '' for none."""
    if Path(model).is_file():
        return model
    source = files.report_parts("source")[0] if files.report.exists() else None
    name = source.file if source and source.file else f"{files.name}.onnx"
    places = (Path(name), files.folder / name, files.folder.parent / name)
    return next((str(path) for path in places if path.is_file()), "")


def explicit_model(files: TranslationFiles, model: str) -> str:
    """The file of the model with Q/DQ that a translation was made from. Raises UserError if it is not found."""
    found = find_explicit(files, model)
    if not found:
        raise UserError(f"The explicit model of '{files.name}' was not found.", "Give its file with -i.")
    return found


def static_shapes(shapes: Mapping[str, Sequence[Any]]) -> List[str]:
    """NAME:DIMS of inputs with a size that is open: 1 for a batch, nothing if more is unknown. shapes: input -> sizes,
    None or a name for an open one."""
    found = []
    for name, shape in shapes.items():
        if shape and not isinstance(shape[0], int) and all(isinstance(size, int) for size in shape[1:]):
            found.append(shlex.quote(f"{name}:{'x'.join(map(str, [1, *shape[1:]]))}"))
    return found


def print_commands(*lines: str, stream: Optional[TextIO] = None) -> None:
    """The last lines of a command: the possible next commands, ready to paste."""
    print("\n".join(["next:", *(f"  {line}" for line in lines)]), file=stream)


def print_notes(notes: Iterable[str]) -> None:
    """Prints to stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def print_json(result: Any) -> None:
    """Prints rows, or values of JSON types, as one object."""
    print(json_text(result, indent=2))
