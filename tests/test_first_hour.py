"""What a new user meets first: commands, help, suggestions, defaults, and the next command to paste."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qdq_translator.cli import main, main_module
from qdq_translator.commands import COMMANDS, options_of_command
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.options import TranslateCommand
from qdq_translator.core.parsing import GROUPS, make_parser, spread
from tests.conftest import OWN_MODELS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with two models in a folder of their own."""
    nets = tmp_path / "my nets"
    nets.mkdir()
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(EXAMPLE_MODEL, nets / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.glob("*_noqdq.onnx")}


def test_models_by_position_by_flag_and_by_folder(desk: Path) -> None:
    assert main(["translate", "my nets/a.onnx"]) == 0
    assert names(desk / "translated") == {"a_noqdq.onnx"}
    assert main(["translate", "my nets", "-o", "both"]) == 0
    assert names(desk / "both") == {"a_noqdq.onnx", "b_noqdq.onnx"}
    assert main(["translate", "my nets/a.onnx", "-i", "my nets/b.onnx", "--workers", "2", "-o", "mixed"]) == 0
    for path in (desk / "both").iterdir():
        assert path.read_bytes() == (desk / "mixed" / path.name).read_bytes()
    (desk / "empty").mkdir()
    assert main(["translate", "empty"]) == 2


def test_every_printed_next_command_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the first translation to the trtexec command, each step is what the one before printed."""
    shutil.copy("my nets/a.onnx", "a.onnx")
    line, seen = f"qdq-translator translate a.onnx -o {shlex.quote('out dir')}", []
    while line:
        seen.append(line.split()[1])
        assert main(shlex.split(line)[1:]) == 0, line
        captured = capsys.readouterr()
        following = re.findall(r"^  (qdq-translator .*)$", captured.out + captured.err, re.M)
        line = following[0] if following and "layer_info.json" not in following[0] else ""
        line = line.replace(" DATA", f" {EXAMPLE_SAMPLES}")  # after random inputs
    assert seen == ["translate", "verify", "verify", "build"]
    assert following[0].startswith("qdq-translator report 'out dir/a_int8_layer_info.json' -t 'out dir'")


@pytest.mark.parametrize("preset", ["gpu", "dla"])
def test_the_first_screen_of_translate_has_15_lines(
    preset: str, desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for model in sorted(OWN_MODELS.glob("*.onnx")):
        if main(["translate", str(model), "--preset", preset]) == 0:
            screen = capsys.readouterr().out.splitlines()
            assert len(screen) <= 15 and screen[-2] == "next:", (model, screen)
            assert max(map(len, screen[1:-1])) <= 80, screen


def test_the_collector_of_cycles_is_on_again(desk: Path) -> None:
    """Whether a model was translated or refused."""
    for model, status in (("my nets/a.onnx", 0), ("missing.onnx", 1)):
        assert gc.isenabled() and main(["translate", model]) == status and gc.isenabled()


def test_every_option_of_translate_has_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert {
        f.name: f.metadata.get("group")
        for f in dataclasses.fields(TranslateCommand)
        if f.metadata.get("group") not in GROUPS
    } == {}
    with pytest.raises(SystemExit):
        main(["help", "translate", "--all"])
    heads = [
        line[:-1] for line in capsys.readouterr().out.splitlines() if line.endswith(":") and not line.startswith(" ")
    ]
    assert heads == [*GROUPS, "Other"]


@pytest.mark.parametrize("command", COMMANDS)
def test_version_and_module_of_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in (main, main_module):
        with pytest.raises(SystemExit) as end:
            entry([command, "--version"])
        assert end.value.code == 0 and re.match(r"qdq-translator \d+\.\d+", capsys.readouterr().out)


@pytest.mark.parametrize("line, wanted, unwanted", [
    ("qdq-translator tra", {"translate"}, {"report"}),
    ("qdq-translator translate --infer", {"--infer"}, {"--json"}),
    ("qdq-translator translate --target ", {"orin-dla", "gpu"}, {"max"}),
    ("qdq_translator.py --on_conflict m", {"max", "min"}, {"first"}),
])  # fmt: skip
def test_completion(line: str, wanted: set[str], unwanted: set[str], tmp_path: Path) -> None:
    """As a shell asks: the answers come on file descriptor 8 (here a file)."""
    answers = tmp_path / "answers"
    script = "import sys; sys.argv[0] = 'qdq-translator'; from qdq_translator.cli import main, main_translate; " + (
        "main_translate()" if line.startswith("qdq_translator.py") else "main()"
    )
    env = {
        **os.environ, "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answers), "COMP_TYPE": "9",
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", script], env=env, cwd=ROOT, check=False, timeout=60)
    found = {word.strip() for word in answers.read_text().splitlines()}
    assert wanted <= found and not unwanted & found, found


def test_the_completion_of_bash_is_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    subprocess.run(["bash", "-n"], input=capsys.readouterr().out, text=True, check=True)


def test_a_missing_dependency_is_one_sentence() -> None:
    probe = (
        "import sys; sys.modules['argparse_dataclass'] = None\n"
        "from qdq_translator.cli import main_translate; sys.exit(main_translate(['-i', 'x.onnx']))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "'argparse_dataclass' is not installed" in done.stderr and "pip install" in done.stderr


@pytest.mark.parametrize("argv", [["--help"], ["translate", "--help"], ["explain"], ["explain", "platforms", "--json"]])
def test_a_closed_pipe_is_no_traceback(argv: list[str]) -> None:
    script = f"import sys; from qdq_translator.cli import main; sys.exit(main({argv!r}))"
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert running.stdout is not None and running.stderr is not None
    running.stdout.close()
    error = running.stderr.read()
    running.wait(60)
    assert b"Traceback" not in error and b"BrokenPipe" not in error, error


def test_the_hour_of_a_detector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/first_hour.md: every command runs, what is shown of its output is its output, and every next command runs as printed."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "e2e_workflow").symlink_to(ROOT / "e2e_workflow")
    shutil.copy(ROOT / "e2e_workflow" / "detector" / "detector_qat.onnx", tmp_path)

    def said_by(line: str) -> str:
        assert main(shlex.split(line)[1:]) == 0, line
        captured = capsys.readouterr()
        return f"{captured.out}\n{captured.err}"

    said, ran, following = "", set(), {}
    page = (ROOT / "docs" / "first_hour.md").read_text(encoding="utf-8")
    for kind, block in re.findall(r"```(sh|text)\n(.*?)```", page, re.S):
        if kind == "text":
            for line in block.splitlines():
                assert line in " ".join(said.split()), line
            continue
        said = ""
        for line in filter(lambda text: text.startswith("qdq-translator"), block.splitlines()):
            said += said_by(line)
            ran.add(line.split()[1])
            following.update(dict.fromkeys(re.findall(r"^  (qdq-translator .*)$", said, re.M)))
    assert ran == {"plan", "translate", "report", "verify", "build"}
    script = (tmp_path / "build.sh").read_text()
    assert "--buildDLAStandalone" in script and "--calib=" in script
    subprocess.run(["sh", "-n", "build.sh"], check=True)
    offered = [line for line in following if "layer_info.json" not in line]
    assert {line.split()[1] for line in offered} >= {"translate", "verify", "build"}
    for line in offered:
        said_by(line)


WORKFLOWS = [
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in sorted((ROOT / "e2e_workflow").glob("*/*.py"))
    if "argparse" in path.read_text(encoding="utf-8") and "__main__" in path.read_text(encoding="utf-8")
]


def test_the_help_of_every_workflow_needs_no_framework() -> None:
    """Nor the packages that only some of them use; it fits 80 columns."""
    absent = ("torch", "tensorflow", "tf2onnx", "modelopt", "onnxruntime", "sklearn", "torchvision", "tensorrt")
    workflows = [*WORKFLOWS, "e2e_workflow.onnxruntime_ptq.run", "e2e_workflow.modelopt_ptq.run"]
    assert len(workflows) > 15
    probe = f"""
import contextlib, io, json, runpy, sys
for name in {absent!r}: sys.modules[name] = None
found = {{}}
for workflow in {workflows!r}:
    sys.argv, said, status = ['run', '--help'], io.StringIO(), None
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_module(workflow, run_name='__main__')
        except SystemExit as left:
            status = left.code
    found[workflow] = [status, said.getvalue()]
print(json.dumps(found))"""
    env = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    for workflow, (status, said) in json.loads(done.stdout).items():
        assert status == 0 and said.startswith("usage:"), workflow
        assert max(map(len, said.splitlines())) <= 80, workflow


# ---------------------------------------------------------------- one path


def shown(command: str, everything: bool) -> set[str]:
    """What the help lists, positional arguments and --help, --version aside."""
    parser = make_parser(options_of_command(COMMANDS[command][0]), command, everything)
    listed = [a for a in parser._actions if a.option_strings and a.help != argparse.SUPPRESS]
    return {a.dest for a in listed} - {"help", "version"}


def test_ten_commands_and_ninety_options() -> None:
    assert len(COMMANDS) == 10
    assert all(len(shown(command, everything=False)) <= 12 for command in COMMANDS)
    assert len(set().union(*(shown(command, everything=True) for command in COMMANDS))) <= 90


def parsed(*argv: str) -> Any:
    options: Any = make_parser(TranslateCommand, "translate").parse_args(["m.onnx", *argv])
    return options


def test_names_of_one_option_are_fields() -> None:
    """`--infer` sets exactly what it names, over every default."""
    named = parsed("--infer", "concat", "mul", "reference")
    assert named.infer_concat_scales and named.infer_mul_scales and named.inference == "reference"
    assert not named.infer_bounds and not named.infer_add_scales and named.keep_norm_fp16
    none = parsed("--infer", "none", "--on", "dla")
    assert not none.infer_concat_scales and none.dla_rewrites is True and none.target == "orin-dla"
    quantizers, images = ("--quantizers", "asymmetric=error"), ("--preprocess", "bgr", "mean=0.5,0.25")
    read = parsed(*quantizers, *images, "--fail", "over_ms=2", "on_gpu_fallback")
    assert (read.asymmetric, read.image_mean, read.fail_over_ms) == ("error", [0.5, 0.25], 2.0)
    assert read.fail_on_gpu_fallback and spread(TranslateCommand, "run", ["workers=3"]) == {"workers": 3}


def test_models_then_data(tmp_path: Path) -> None:
    """The last path is data unless it is a model or a folder of models."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "a.onnx").write_bytes(b"")
    (tmp_path / "photos").mkdir()
    nets, photos = str(tmp_path / "nets"), str(tmp_path / "photos")
    bucket = "s3://bucket/val/"
    for last, data in (("x.npz", "x.npz"), (photos, photos), (bucket, bucket), ("b.onnx", None), (nets, None)):
        options = parsed(last)
        assert (options.calibrate, len(options.models)) == (data, 1 if data else 2)
        assert options.asymmetric == ("data" if data else "widen")


def test_positional_arguments_stand_anywhere_and_flags_name_them_too() -> None:
    parser = make_parser(options_of_command("verify"), "verify")
    for argv in (["m", "d"], ["m", "-t", "t", "d"], ["-i", "m", "--data", "d"], ["--json", "m", "--data", "d"]):
        options: Any = parser.parse_args(argv)
        assert (options.model, options.data) == ("m", "d")


def test_the_scripts_of_nvidia_add_nothing(desk: Path) -> None:
    """Every other way in adds what costs nothing; --as_is does not."""
    ways: dict[str, list[str]] = {"script": ["-i"], "as_is": ["translate", "--as_is"], "best": ["translate"]}
    for name, words in ways.items():
        assert main_module([*words, "my nets/a.onnx", "-o", name]) == 0
    files = {name: (desk / name / "a_precision_config_calib.cache").read_bytes() for name in ways}
    assert files["script"] == files["as_is"] and len(files["best"]) > len(files["script"])
