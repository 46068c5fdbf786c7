"""The schemas of our JSON files: true of what is written, complete, in agreement with the docs, and plain about faults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Iterator

import pytest
from jsonschema import Draft7Validator

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.disk import write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.schemas import (
    DEVICE_RESULTS,
    LAYER_INFO,
    config_schema,
    parse_json,
    report_schema,
    results_schema,
)
from qdq_translator.translation import translator
from qdq_translator.translation.report.data import format_report
from tests.conftest import need_shared
from tests.json_examples import minimal, strict
from tests.test_zoo_function import MODELS, REFUSED, options_for

DOCS = Path(__file__).resolve().parents[1] / "docs" / "report_schema.md"
EVERYTHING: dict[str, Any] = {
    "target": "orin-dla",
    "platform": "jetpack-6.2",
    "dla_rewrites": True,
    "infer_mul_scales": True,
    "infer_concat_scales": True,
    "asymmetric": "widen",
    "unify_scales": "max",
    "add_unary_ew_scales_for_dla": True,
}


def hold(written: Any, schema: dict[str, Any]) -> None:
    faults = [
        f"{list(e.absolute_path)}: {e.message[:200]}" for e in Draft7Validator(strict(schema)).iter_errors(written)
    ]
    assert not faults, faults[:5]


def test_schemas_are_schemas() -> None:
    for schema in (report_schema(), config_schema(), results_schema(), DEVICE_RESULTS, LAYER_INFO):
        Draft7Validator.check_schema(schema)
        hold(minimal(schema), schema)


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_example_is_what_the_schemas_say(options: dict[str, Any], tmp_path: Path) -> None:
    files = translate(EXAMPLE_MODEL, TranslateOptions(**options)).save(tmp_path)
    hold(json.loads(files.report.read_text(encoding="utf-8")), report_schema())
    hold(json.loads(files.config.read_text(encoding="utf-8")), config_schema())
    results = tmp_path / "results.json"
    arguments = [
        "verify",
        "-i",
        str(EXAMPLE_MODEL),
        "-t",
        str(tmp_path),
        "--samples",
        "2",
        "--per_layer",
        "--save",
        str(results),
    ]
    assert main(arguments) == 0
    assert Draft7Validator(results_schema()).is_valid(json.loads(results.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_the_whole_zoo_is_what_the_schemas_say(path: Path, tmp_path: Path) -> None:
    """Defaults and every option by turns: every architecture is there in several dialects."""
    turn, path = MODELS.index(path), need_shared(path)
    options = options_for(path, **(EVERYTHING if turn % 2 else {}))
    files = (translate if turn % 4 < 2 else translator.translate)(path, options).save(tmp_path)
    hold(json.loads(files.report.read_text(encoding="utf-8")), report_schema())
    hold(json.loads(files.config.read_text(encoding="utf-8")), config_schema())


def keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, part in schema.get("properties", {}).items():
            yield key
            yield from keys(part)
        for below in ("items", "additionalProperties"):
            yield from keys(schema.get(below))


def test_the_docs_name_every_key_of_the_report() -> None:
    named = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]*)`", DOCS.read_text(encoding="utf-8")))))
    assert not set(keys(report_schema())) - named


FAULTS = {
    ("model",): "'model' is 7 instead of a text",
    ("plan",): "'plan' is 7 instead of a list",
    ("plan", 0, "precision"): "'plan[0].precision' is 7 instead of",
    ("plan", 0, "macs"): "",
    ("coverage", "layers", "int8"): "",
    ("schema_version",): "it has schema version 7",
}


@pytest.mark.parametrize("place", FAULTS, ids=str)
def test_a_fault_is_a_sentence_that_names_the_field(place: tuple[Any, ...], tmp_path: Path) -> None:
    files = translate(EXAMPLE_MODEL).save(tmp_path)
    report = json.loads(files.report.read_text(encoding="utf-8"))
    container = report
    for step in place[:-1]:
        container = container[step]
    container[place[-1]] = 7
    files.report.write_text(json.dumps(report), encoding="utf-8")
    if not FAULTS[place]:
        assert files.read_report()
        container[place[-1]] = "x"
        files.report.write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(UserError) as error:
        files.read_report()
    words = FAULTS[place] or f"'{'.'.join(map(str, place)).replace('.0', '[0]')}' is \"x\" instead of a whole number"
    assert words in str(error.value) and str(files.report) in str(error.value)
    del container[place[-1]]
    files.report.write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(UserError, match=rf"lacks '{place[-1]}'"):
        files.read_report()


def test_verdicts_for_a_dla_come_with_a_time(tmp_path: Path) -> None:
    files = translate(EXAMPLE_MODEL, TranslateOptions(**EVERYTHING)).save(tmp_path)
    report = json.loads(files.report.read_text(encoding="utf-8"))
    files.report.write_text(json.dumps({**report, "cost": None}), encoding="utf-8")
    with pytest.raises(UserError, match="'cost' is null instead of an object"):
        files.read_report()
    files.report.write_text(json.dumps({**report, "cost": None, "dla": None}), encoding="utf-8")
    assert files.read_report()


@pytest.mark.parametrize("options", [{"shapes": [None]}, {"shapes": {"x": 1}}, {"target": 7}])
def test_remembered_options_that_are_none(options: dict[str, Any], tmp_path: Path) -> None:
    files = translate(EXAMPLE_MODEL).save(tmp_path)
    config = json.loads(files.config.read_text(encoding="utf-8"))
    files.config.write_text(json.dumps({**config, "options": options}), encoding="utf-8")
    with pytest.raises(UserError, match=r"'options\."):
        files.read_config()


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 100_000, "NaN", "[1e999999]", "7", "null", "\ud800", '{"Layers": [7]}']
)
def test_what_is_no_json_of_ours(text: str) -> None:
    with pytest.raises(UserError, match=r"^f\.json"):
        parse_json(text, LAYER_INFO if "Layers" in text else report_schema(), "f.json", "Translate again.")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_what_is_no_number_is_never_written(value: float, tmp_path: Path) -> None:
    """JSON has no such numbers: null stands for them."""
    content = {"fine": [1.0, None], "rows": [{"a": 1}, {"b": {"c": value}}]}
    write_json(tmp_path / "x.json", content)
    for text in ((tmp_path / "x.json").read_text(), format_report(content)):
        assert parse_json(text, {"type": "object"}, "x", "")["rows"][1] == {"b": {"c": None}}


def test_a_set_that_its_readers_would_refuse_never_appears(tmp_path: Path) -> None:
    made = translate(EXAMPLE_MODEL)
    for damage in ({"coverage": 3}, {"integrity": None, "source": {"file": 1}}):
        made.report.update(damage)
        with pytest.raises(UserError):
            made.save(tmp_path)
        assert list(tmp_path.iterdir()) == []
