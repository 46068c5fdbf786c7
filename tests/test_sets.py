"""The files of one translation are one set: whatever mixture of two lies in a folder, every reader refuses it."""

from __future__ import annotations

import itertools
import shutil
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
    "command",
    [["report"], ["build", "--print", *SHAPES], ["build", *SHAPES], ["report", "none.json"]],
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


@pytest.mark.parametrize("command", [["explicit", "--for", "onnxruntime"], ["explicit"]])
def test_a_cache_that_is_named_alone_is_held_against_its_config(
    command: list[str],
    two: tuple[TranslationFiles, TranslationFiles],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every pair of model and cache in a folder with either config is refused unless they are of one set; without a config
    it is said that nobody can know."""
    said = []
    for number, (model, cache, config) in enumerate(itertools.product(range(2), range(2), (0, 1, None))):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = TranslationFiles(folder, two[0].name)
        shutil.copy(two[model].model, files.model)
        shutil.copy(two[cache].cache, files.cache)
        if config is not None:
            shutil.copy(two[config].config, files.config)
        out = folder / ("r.onnx" if len(command) > 1 else "r")
        status = main([*command, "-i", str(files.model), "-c", str(files.cache), "-o", str(out)])
        said.append(capsys.readouterr().err)
        assert (status == 0) == (config is None or model == cache == config) == out.exists()
        assert ("Nothing shows whether" in said[-1]) == (config is None)
    assert any("is not the file that was written with" in text for text in said)
    assert any("are of different translations" in text for text in said)


def test_a_report_of_another_explicit_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kind in (("a", "fp16"), ("b", "fp32")):
        assert main(["explicit", "-i", str(EXAMPLE_MODEL), "-o", str(tmp_path / name), "--float_type", kind]) == 0
    report, network = (f"{EXAMPLE_MODEL.stem}_explicit{end}" for end in ("_report.json", ".onnx"))
    shown = ["build", "--print", "-t", str(tmp_path / "a" / network), *SHAPES]
    assert main(shown) == 0
    shutil.copy(tmp_path / "b" / report, tmp_path / "a" / report)
    capsys.readouterr()
    assert main(shown) == 1
    assert "is not of the network" in capsys.readouterr().err


def test_who_changes_a_file_on_purpose_deletes_the_report(
    two: tuple[TranslationFiles, TranslationFiles], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in two[0]:
        if path.exists():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    cache = tmp_path / two[0].cache.name
    cache.write_text(cache.read_text() + "extra: 3c010204\n")
    assert main(["build", "--print", "-t", str(tmp_path), *SHAPES]) == 1
    assert "or delete" in capsys.readouterr().err
    (tmp_path / two[0].report.name).unlink()
    assert main(["build", "--print", "-t", str(tmp_path), *SHAPES]) == 0
