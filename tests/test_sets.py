"""The files of one translation are one set: whatever mixture of two lies in a folder, every reader refuses it."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import MODEL_KEY, TranslationFiles, refuse_mixture, set_of_model

SHAPES = ["--opt_shapes", "input:1x1x16x16"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[TranslationFiles, TranslationFiles]:
    """Sets of one model that differ in every file."""
    options = (
        TranslateOptions(platform="jetpack-6.2"),
        TranslateOptions(platform="drive-os-6.0.9", infer_mul_scales=True, keep_fp16=["*onv*"], weights="float"),
    )
    made = [translate(EXAMPLE_MODEL, o).save(tmp_path_factory.mktemp("set")) for o in options]
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(*made) if a.exists())
    return made[0], made[1]


def test_a_set_is_accepted_and_its_id_depends_on_its_content_alone(
    two: tuple[TranslationFiles, TranslationFiles], tmp_path: Path
) -> None:
    for files in two:
        refuse_mixture(files)
    again = translate(EXAMPLE_MODEL, TranslateOptions(platform="jetpack-6.2")).save(tmp_path)
    assert set_of_model(again.model) == set_of_model(two[0].model) != set_of_model(two[1].model)
    model = onnx.load(again.model)
    assert [p.value for p in model.metadata_props if p.key == MODEL_KEY] == [set_of_model(again.model)]
    onnx.save(model, again.model)  # other tools write the metadata behind the graph
    refuse_mixture(again)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_mixture_of_two_sets_is_refused(
    count: int, two: tuple[TranslationFiles, TranslationFiles], tmp_path: Path
) -> None:
    first, second = ([path for path in files if path.exists()] for files in two)
    for number, chosen in enumerate(itertools.combinations(range(5), count)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for index, (one, other) in enumerate(zip(first, second)):
            (folder / one.name).write_bytes((other if index in chosen else one).read_bytes())
        with pytest.raises(UserError):
            refuse_mixture(TranslationFiles(folder, two[0].name))


@pytest.mark.parametrize(
    "command", [["report"], ["trtexec", *SHAPES], ["build", *SHAPES], ["check-engine", "--layer_info", "none.json"]]
)
def test_every_reader_refuses(
    command: list[str],
    two: tuple[TranslationFiles, TranslationFiles],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path in two[0]:
        if path.exists():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / two[1].cache.name).write_bytes(two[1].cache.read_bytes())
    arguments = [*command, "-t", str(tmp_path)]
    assert main(arguments) == 1
    assert "is not the file that was written with" in capsys.readouterr().err
    (tmp_path / two[1].model.name).write_bytes(two[1].model.read_bytes())
    assert main(arguments) == 1
    assert "are of different translations. Translate the model again." in capsys.readouterr().err


def test_who_changes_a_file_on_purpose_deletes_the_report(
    two: tuple[TranslationFiles, TranslationFiles], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in two[0]:
        if path.exists():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    cache = tmp_path / two[0].cache.name
    cache.write_text(cache.read_text() + "extra: 3c010204\n")
    assert main(["trtexec", "-t", str(tmp_path), *SHAPES]) == 1
    assert "or delete" in capsys.readouterr().err
    (tmp_path / two[0].report.name).unlink()
    assert main(["trtexec", "-t", str(tmp_path), *SHAPES]) == 0


def test_the_switched_link_of_the_docs_shows_one_set_at_any_time(
    two: tuple[TranslationFiles, TranslationFiles], tmp_path: Path
) -> None:
    """The recipe for readers that know nothing of sets: a reader that resolves the link once never meets files of two sets,
    also if the switch is killed in between."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "files.md").read_text(encoding="utf-8")
    link, switch = re.findall(r"^(?:ln -s|mv -T) .*current.*$", page, re.M)
    for number, files in enumerate(two, 1):
        shutil.copytree(files.folder, tmp_path / "sets" / str(number))
    sets = {set_of_model(files.model) for files in two}
    seen: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            folder = (tmp_path / "current").resolve()
            files = TranslationFiles(folder, two[0].name)
            report, config = (json.loads(path.read_text(encoding="utf-8")) for path in (files.report, files.config))
            found = {set_of_model(files.model), config["set"], report["integrity"]["set"]}
            seen.append(found.pop() if len(found) == 1 else "mixture")

    def bash(*lines: str) -> None:
        subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, check=True)

    bash(link.replace("sets/2", "sets/1"), switch)
    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(30):
        bash(link.replace("sets/2", f"sets/{turn % 2 + 1}"), switch)
    bash(link)  # killed here: the link is still the old one
    done.set()
    reader.join()
    assert set(seen) == sets and (tmp_path / "current").resolve() == tmp_path / "sets" / "2"
