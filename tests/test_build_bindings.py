"""`build` and the on-device kit against the real Python bindings of four TensorRT versions (issue 4, items 1, 2, 6, 7).

Nothing is built: the bindings import over a stub library, and doubles stand for the objects they cannot make. A double
refuses what the real class of that version does not have, so a sequence that passes here is one the binding takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trt_bindings.wheels import NEWEST_PYTHON, WHEELS, NotHere, prepare, run_scenarios

IMPLICIT = ("8.6.1", "10.3.0", "10.16.1")
NUMBERS = {"8.6.1": "8601", "10.3.0": "100300", "10.16.1": "101601"}
_found: dict[str, dict[str, Any]] = {}
_not_here: dict[str, str] = {}


def found_for(version: str, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> dict[str, Any]:
    if sys.version_info[:2] > NEWEST_PYTHON.get(version, sys.version_info[:2]):
        pytest.skip(f"TENSORRT BINDINGS {version} NOT TESTED: they do not exist for this Python")
    if version not in _found and version not in _not_here:
        named = os.environ.get("QDQ_TRT_CACHE")
        cache = Path(named) if named else Path(request.config.cache.mkdir("trt_bindings"))
        try:
            place = prepare(version, cache)
        except NotHere as reason:
            _not_here[version] = f"TENSORRT BINDINGS {version} NOT TESTED: {reason}"
        else:
            _found[version] = run_scenarios(place, factory.mktemp(f"trt_{version}"))
    if version in _not_here:
        if os.environ.get("QDQ_REQUIRE_TRT_BINDINGS") == "1":
            pytest.fail(_not_here[version])
        pytest.skip(_not_here[version])
    return _found[version]


@pytest.fixture(params=IMPLICIT)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the scenarios of one version with implicit INT8 found; `version` is ours, three numbers."""
    yield {**found_for(request.param, request, tmp_path_factory), "short": request.param}


@pytest.fixture
def eleven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found_for("11.4.0", request, tmp_path_factory)


def calls(found: dict[str, Any], scenario: str) -> list[list[Any]]:
    return found["builds"][scenario]["calls"]


def of(calls: list[list[Any]], prefix: str) -> list[list[Any]]:
    return [call for call in calls if call[0].startswith(prefix)]


def build_flags(recorded: list[list[Any]]) -> list[str]:
    return [call[1] for call in recorded if call[0] == "config.set_flag"]


# ---------------------------------------------------------------- the bindings are the real ones


def test_versions_are_the_real_ones(found: dict[str, Any]) -> None:
    assert found["version"].startswith(found["short"])
    assert {"INT8", "FP16", "OBEY_PRECISION_CONSTRAINTS"} <= set(found["gate"]["builder_flags"])


def test_all_wheels_are_named() -> None:
    assert set(WHEELS) == {*IMPLICIT, "11.4.0"}


def test_tensorrt_that_cannot_start_is_an_error_in_its_own_words(found: dict[str, Any]) -> None:
    gate = found["gate"]
    assert gate["status"] == 1
    assert "could not start: pybind11::init(): factory function returned nullptr" in gate["err"]
    assert "GPU" in gate["err"] and "Traceback" not in gate["err"]
    assert not [name for name in gate["files"] if name.endswith(".engine")]


def test_eleven_is_refused_with_what_to_do_instead(eleven: dict[str, Any]) -> None:
    gate = eleven["gate"]
    assert "INT8" not in gate["builder_flags"] and not gate["has_calibrator"]
    assert gate["status"] == 1
    assert "TensorRT 11.4.0 has no implicit INT8" in gate["err"]
    assert "qdq-translator explicit" in gate["err"] and "strongly typed" in gate["err"]
    assert "Traceback" not in gate["err"]
    assert not [name for name in gate["files"] if name.endswith(".engine")]


@pytest.mark.parametrize("form", ["gpu", "dla", "loadable"])
def test_eleven_builds_what_explicit_writes(eleven: dict[str, Any], form: str) -> None:
    """Strongly typed by name, no precisions or ranges, layouts without types, the parser told of the DLA."""
    build = eleven["typed"][form]
    assert build["status"] == 0, build["err"]
    recorded = build["calls"]
    assert of(recorded, "builder.create_network") == [["builder.create_network", 1]]  # STRONGLY_TYPED is 0 in 11
    assert not of(recorded, "config.int8_calibrator") and not of(recorded, "tensor input.set_dynamic_range")
    assert not {"INT8", "FP16"} & set(build_flags(recorded))
    parser = [call[1] for call in of(recorded, "parser.set_flag")]
    assert parser == {"gpu": [], "dla": ["ADJUST_FOR_DLA"]}.get(form, ["REPORT_CAPABILITY_DLA", "ADJUST_FOR_DLA"])
    formats = [call[0].split(".")[0] for call in recorded if call[0].endswith(".allowed_formats =")]
    assert formats == ([] if form == "gpu" else ["tensor input", "tensor logits"])
    assert (["config.DLA_core =", 0] in recorded) is (form != "gpu")
    ending = {"gpu": "explicit.engine", "dla": "explicit_orin-dla.engine"}.get(form, "explicit_orin-dla.loadable")
    assert f"digits_resnet_qat_{ending}" in build["files"]


# ---------------------------------------------------------------- callbacks


def test_callbacks_work_through_the_cpp_side(found: dict[str, Any]) -> None:
    callbacks = found["callbacks"]
    assert callbacks["is_calibrator"]
    assert callbacks["algorithm"] == [2, 2]  # ENTROPY_CALIBRATION_2, as DLA requires
    assert callbacks["cache"] == "text"
    assert callbacks["batch"] is False and callbacks["asked"] == [False, True]
    assert callbacks["messages"] == [
        ["E", "internal_error"],
        ["E", "error"],
        ["W", "warning"],
        ["I", "info"],
        ["V", "verbose"],
    ]


def test_version_differences(found: dict[str, Any]) -> None:
    callbacks, short = found["callbacks"], found["short"]
    assert callbacks["number"] == NUMBERS[short]
    assert callbacks["network_flags"] == (1 if short == "8.6.1" else 0)  # EXPLICIT_BATCH
    assert callbacks["masks"] == callbacks["expected_masks"]
    assert callbacks["has_progress"] is (short != "8.6.1")
    expected = [] if short == "8.6.1" else [["config.progress_monitor =", "Monitor"], ["progress", True]]
    assert callbacks["progress"] == expected
    assert callbacks["progress_screen"] is (short != "8.6.1")


# ---------------------------------------------------------------- sequences


def test_gpu_sequence(found: dict[str, Any]) -> None:
    number = NUMBERS[found["short"]]
    build = found["builds"]["gpu"]
    assert build["status"] == 0, build["err"]
    assert build["calls"] == [
        ["Builder", "Collector"],
        ["builder.create_network", found["callbacks"]["network_flags"]],
        ["builder.create_builder_config"],
        ["OnnxParser", "network", "Collector"],
        ["parser.parse_from_file", "WORK/gpu/net_noqdq.onnx"],
        ["config.set_flag", "INT8"],
        ["config.set_flag", "FP16"],
        ["config.set_flag", "OBEY_PRECISION_CONSTRAINTS"],
        ["config.int8_calibrator =", "CacheCalibrator"],
        ["tensor images.set_dynamic_range", -127 * 0.0078125, 127 * 0.0078125],
        ["tensor c1_out.set_dynamic_range", -31.75, 31.75],
        ["tensor r1_out.set_dynamic_range", -15.875, 15.875],
        ["tensor c2_out.set_dynamic_range", -63.5, 63.5],
        ["layer pool.precision =", "HALF"],
        ["config.profiling_verbosity =", "DETAILED"],
        ["builder.build_serialized_network", "network", "config", *([None] if len(build["calls"][15]) == 4 else [])],
        [
            "calibrator",
            2,
            1,
            f"TRT-{number}-EntropyCalibration2\nimages: 3c000000\nc1_out: 3e800000\nr1_out: 3e000000\n"
            "c2_out: 3f000000\nghost: 3f800000\n",
        ],
        ["Runtime", "Collector"],
        ["runtime.deserialize_cuda_engine", "engine bytes"],
        ["engine.create_engine_inspector"],
    ]


def test_what_did_not_match_is_counted_and_shown(found: dict[str, Any]) -> None:
    out = found["builds"]["gpu"]["out"]
    number = NUMBERS[found["short"]]
    assert f"TRT-8600-EntropyCalibration2 is served as TRT-{number}-EntropyCalibration2" in out
    assert "range from the calibration cache: 4\n" in out
    # Gemm: its weight and its product before the bias are tensors of TensorRT's alone (fact 4.12)
    assert "without scale (their layers are not INT8): 6: sum, mean, flat, w3_output, fc_output, logits\n" in out
    assert "names of the cache that are no tensor there: 1: ghost\n" in out
    assert "Layer precisions set (obey): 1 of 3\n" in out
    assert "names that match no layer: 1: nowhere\n" in out
    assert "layers of integers or shapes, which take none: 1: shape\n" in out
    assert "Warnings of TensorRT: 1, the first: Missing scale and zero-point for tensor mean\n" in out


def test_files_that_are_written(found: dict[str, Any]) -> None:
    files = found["builds"]["gpu"]["files"]
    assert files["net_int8.engine"] == "engine bytes"
    assert '"Layers": ["c1", "r1"' in files["net_int8_layer_info.json"]
    assert files["b.log"] == (
        "[I] [TRT] Set layer pool to precision fp16\n[W] [TRT] Missing scale and zero-point for tensor mean\n"
    )
    assert len(files) == 3  # nothing half-written beside them


def test_names_that_all_match_leave_no_line(found: dict[str, Any]) -> None:
    assert "no tensor there" not in found["builds"]["matching_names"]["out"]


def test_header_of_this_version_is_served_without_a_note(found: dict[str, Any]) -> None:
    build = found["builds"]["odd_cache"]  # its header says 100300
    assert ("is served as" in build["out"]) is (found["short"] != "10.3.0")
    served = of(build["calls"], "calibrator")[0][3]
    assert "zero" not in served and "inf" not in served and "nonsense" not in served
    assert "3 lines of the calibration cache have no usable scale" in build["out"]


def test_precision_constraints_exactly_one(found: dict[str, Any]) -> None:
    assert build_flags(calls(found, "gpu_prefer")) == ["INT8", "FP16", "PREFER_PRECISION_CONSTRAINTS"]


def test_options_reach_the_configuration(found: dict[str, Any]) -> None:
    build = found["builds"]["options"]
    recorded = build["calls"]
    assert build["status"] == 0, build["err"]
    assert of(recorded, "config.set_memory_pool_limit") == [
        ["config.set_memory_pool_limit", "WORKSPACE", 64 << 20],
        ["config.set_memory_pool_limit", "DLA_MANAGED_SRAM", 1 << 19],
    ]
    assert ["config.builder_optimization_level =", 4] in recorded
    assert ["config.create_timing_cache", "old timings"] in recorded
    assert ["config.set_timing_cache", "timing cache of 11 bytes", False] in recorded
    assert build["files"] == {"a b.engine": "engine bytes", "i.json": build["files"]["i.json"], "t.timing": "timings"}


def test_timing_cache_of_another_device_is_made_anew(found: dict[str, Any]) -> None:
    build = found["builds"]["stale_timing_cache"]
    assert of(build["calls"], "config.set_timing_cache") == [
        ["config.set_timing_cache", "timing cache of 11 bytes", False],
        ["config.set_timing_cache", "timing cache of 0 bytes", False],
    ]
    assert "it is rebuilt" in build["out"] and build["files"]["t.timing"] == "timings"


@pytest.mark.parametrize(("precision", "flags"), [("fp16", ["FP16"]), ("fp32", [])])
def test_baseline_of_the_same_network(found: dict[str, Any], precision: str, flags: list[str]) -> None:
    recorded = calls(found, precision)
    assert build_flags(recorded) == flags
    assert not of(recorded, "config.int8_calibrator") and not of(recorded, "layer ") and not of(recorded, "tensor ")
    assert f"net_{precision}.engine" in found["builds"][precision]["files"]


def test_explicit_model(found: dict[str, Any]) -> None:
    recorded = calls(found, "explicit")
    assert build_flags(recorded) == ["INT8", "FP16", "OBEY_PRECISION_CONSTRAINTS"]
    assert not of(recorded, "config.int8_calibrator") and not of(recorded, "tensor ")
    assert ["parser.parse_from_file", "WORK/explicit/q.onnx"] in recorded
    left = found["builds"]["left_over_qdq"]
    assert left["status"] == 1 and "still has 2 Q/DQ layers (first: 'quantize')" in left["err"]


def test_dla_without_fallback(found: dict[str, Any]) -> None:
    build = found["builds"]["dla"]
    recorded = build["calls"]
    assert build["status"] == 0, build["err"]
    assert of(recorded, "config.default_device_type") == [["config.default_device_type =", "DLA"]]
    assert ["config.DLA_core =", 1] in recorded and ["runtime.DLA_core =", 1] in recorded
    assert build_flags(recorded) == ["DIRECT_IO", "INT8", "FP16", "PREFER_PRECISION_CONSTRAINTS"]
    assert not of(recorded, "config.engine_capability")
    assert ["tensor images.dtype =", "INT8"] in recorded and ["tensor logits.dtype =", "HALF"] in recorded
    assert ["tensor images.set_dynamic_range", -0.9921875, 0.9921875] in recorded  # INT8 input keeps its range
    assert "chosen: images int8:dla_linear (--input_io_formats)" in build["out"]
    assert "does not take one by one (TensorRT may fold them): 2: pool, shape" in build["out"]


def test_dla_with_fallback(found: dict[str, Any]) -> None:
    recorded = calls(found, "dla_fallback")
    assert build_flags(recorded) == ["GPU_FALLBACK", "INT8", "FP16", "PREFER_PRECISION_CONSTRAINTS"]
    assert not [call for call in recorded if call[0].endswith((".dtype =", ".allowed_formats ="))]


def test_dla_standalone(found: dict[str, Any]) -> None:
    build = found["builds"]["dla_standalone"]
    recorded = build["calls"]
    assert build["status"] == 0, build["err"]
    old_name = "SAFE_DLA" if found["short"] == "8.6.1" else "DLA_STANDALONE"  # one value, two names there
    assert of(recorded, "config.engine_capability") == [["config.engine_capability =", old_name]]
    assert "DIRECT_IO" in build_flags(recorded) and "GPU_FALLBACK" not in build_flags(recorded)
    hwc4 = found["callbacks"]["masks"][1] & ~(1 << 5)  # the mask of dla_hwc4 and chw32, without chw32
    assert ["tensor images.allowed_formats =", hwc4] in recorded
    assert ["tensor logits.allowed_formats =", 1 << 4] in recorded  # CHW16
    assert "'hwc4' is no format" in build["out"]
    assert not of(recorded, "Runtime")  # a loadable is no engine
    assert build["files"] == {"net_int8_orin-dla.loadable": "engine bytes"}


@pytest.mark.parametrize(
    ("scenario", "status", "words"),
    [
        ("dla_refused", 1, "'pool' is not supported on DLA but GPU fallback is not enabled. Add --allow_gpu_fallback"),
        ("dla_wrong_format", 2, "the DLA alone has no fp32:chw for an input"),
        ("dla_none_there", 1, "finds no DLA on this machine"),
        ("no_place", 1, "WORK/no_place is a folder. Name a file in it."),
        ("dla_no_such_core", 2, "There is no DLA core 1. Cores here are 0 to 0."),
        ("int8_input_without_scale", 1, "INT8 network input 'images' has no scale"),
        ("hwc4_channels", 2, "dla_hwc4 needs 1, 3 or 4 channels; 'images' has 5"),
        ("dynamic_dla_range", 2, "The DLA needs static shapes"),
        ("dynamic_without_shapes", 1, "Input 'images' has dynamic dimensions -1x3x4x4. Give --opt_shapes"),
        ("shapes_on_static", 2, "all inputs are static. Inputs are images:1x3x4x4."),
        ("build_fails", 1, "could not build the engine: 1: [builder] first | 4: no implementation for {fc}. Try"),
        ("build_fails_silently", 1, "could not build the engine: it gives no reason."),
        ("out_of_memory", 1, "GPU memory could not be had. Give it more memory: --mem_pools"),
        ("cache_rejected", 1, "does not match calibrator algorithm type. TensorRT did not take the calibration cache"),
    ],
)
def test_errors(found: dict[str, Any], scenario: str, status: int, words: str) -> None:
    build = found["builds"][scenario]
    assert build["status"] == status
    assert words in build["err"]
    assert "Traceback" not in build["err"]
    assert [n for n in build["files"] if n.endswith("layer_info.json")] == []


def test_parser_error_names_the_node(found: dict[str, Any]) -> None:
    build = found["builds"]["parser_fails"]
    assert build["status"] == 1 and "No importer registered for op: Frobnicate" in build["err"]
    assert ("node 3" if found["short"] == "8.6.1" else "node 'frob_3', Frobnicate") in build["err"]


def test_failed_build_leaves_the_earlier_engine(found: dict[str, Any]) -> None:
    assert found["builds"]["build_fails"]["files"] == {"net_int8.engine": "an engine of before"}


def test_cache_that_was_not_taken_is_told(found: dict[str, Any]) -> None:
    build = found["builds"]["cache_rejected_but_built"]
    assert build["status"] == 0 and ["batch", False] in build["calls"]
    assert "rejected the calibration cache and asked for calibration data" in build["out"]


def test_dynamic_shapes(found: dict[str, Any]) -> None:
    recorded = calls(found, "dynamic")
    shapes = ["profile.set_shape", "images", [1, 3, 4, 4], [4, 3, 4, 4], [8, 3, 4, 4]]
    assert of(recorded, "profile.") == [shapes]
    assert ["config.add_optimization_profile", "profile"] in recorded
    assert ["config.set_calibration_profile", "profile"] in recorded  # fact 2.10
    fixed = of(calls(found, "dynamic_dla"), "profile.")
    assert fixed == [["profile.set_shape", "images", *[[2, 3, 4, 4]] * 3]]


def test_input_names_that_trtexec_cannot_express(found: dict[str, Any]) -> None:
    recorded = calls(found, "comma_in_input_name")
    assert of(recorded, "profile.") == [["profile.set_shape", "a,b", *[[2, 3, 4, 4]] * 3]]


def test_nothing_is_built_where_nothing_can_be_written(found: dict[str, Any]) -> None:
    assert calls(found, "no_place") == []


def test_parser_flags_exist_from_10_15(found: dict[str, Any]) -> None:
    build = found["builds"]["parser_flags"]
    if found["short"] == "10.16.1":
        assert build["status"] == 0, build["err"]
        assert of(build["calls"], "parser.")[:3] == [
            ["parser.set_flag", "ADJUST_FOR_DLA"],
            ["parser.set_flag", "REPORT_CAPABILITY_DLA"],
            ["parser.set_builder_config", "config"],
        ]
    else:
        assert build["status"] == 1 and "has no parser flag adjust_for_dla" in build["err"]


def test_what_translate_writes_is_used_up_to_the_last_name(found: dict[str, Any]) -> None:
    build = found["translated"]
    assert build["status"] == 0, build["err"]
    ranges = [call for call in build["calls"] if call[0].endswith(".set_dynamic_range")]
    precisions = [call for call in build["calls"] if call[0].endswith(".precision =")]
    assert len(ranges) == build["scales"] > 10
    assert len(precisions) == build["layers"] > 0
    assert "no tensor there" not in build["out"] and "match no layer" not in build["out"]


def test_verbose_shows_the_log_and_quiet_does_not(found: dict[str, Any]) -> None:
    assert "[V] [TRT] a verbose line" in found["builds"]["verbose"]["err"]
    assert found["builds"]["gpu"]["err"] == ""


# ---------------------------------------------------------------- the kit for the board


def test_kit_runs_every_sample_once_and_in_order(found: dict[str, Any]) -> None:
    kit = found["kit"]["gpu"]
    assert set(kit["outputs"]) == {"implicit_outputs.npz", "fp16_outputs.npz"}
    for values in kit["outputs"].values():
        assert values == kit["expected"]  # 5 samples in batches of 2
    assert kit["left_on_device"] == 0
    assert kit["executions"] == [8, 8]  # 3 batches, 2 for warming up, 3 timed


def test_kit_results(found: dict[str, Any]) -> None:
    kit = found["kit"]["gpu"]
    results = kit["written"]
    assert results == kit["results"]
    assert results["schema_version"] == 1 and results["kind"] == "qdq-translator device results"
    assert results["tensorrt"] == found["short"] and results["target"] == "gpu" and results["dla_core"] is None
    assert results["inputs"]["samples"] == 5 and len(results["model"]["sha256"]) == 64
    implicit = results["engines"]["implicit"]
    assert implicit["status"] == "ok" and implicit["batch"] == 2 and implicit["engine_bytes"] == 12
    assert implicit["latency_ms"] == {"mean": 2.0, "median": 2.0, "p99": 2.49, "min": 1.5, "max": 2.5, "iterations": 3}
    assert implicit["scales"]["count"] == 4 and implicit["scales"]["unmatched"] == ["ghost"]
    assert "scales" not in results["engines"]["fp16"]
    assert kit["files"] == [
        "device_results.json",
        "fp16.engine",
        "fp16_layer_info.json",
        "fp16_outputs.npz",
        "implicit.engine",
        "implicit_layer_info.json",
        "implicit_outputs.npz",
    ]


def test_kit_on_a_dla(found: dict[str, Any]) -> None:
    kit = found["kit"]["dla"]
    implicit, fp16 = kit["calls"]
    assert build_flags(implicit) == ["GPU_FALLBACK", "INT8", "FP16", "PREFER_PRECISION_CONSTRAINTS"]
    assert build_flags(fp16) == ["GPU_FALLBACK", "FP16"]
    assert [c for c in implicit if c[0] == "runtime.DLA_core ="] == [["runtime.DLA_core =", 1]] * 2  # inspect, run
    assert kit["results"]["engines"]["implicit"]["gpu_layers"] == ["pool"]
    assert kit["outputs"]["implicit_outputs.npz"] == kit["expected"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("build_fails", "could not build the engine: no kernel"),
        ("wrong_shape", "Input 'images' is (2, 4, 4) for each sample, the engine takes (3, 4, 4)."),
        ("wrong_name", "The saved inputs have no array 'images'."),
    ],
)
def test_kit_records_failures_and_goes_on(found: dict[str, Any], case: str, words: str) -> None:
    engines = found["kit"][case]["written"]["engines"]
    assert list(engines) == ["implicit", "fp16"]
    for engine in engines.values():
        assert engine["status"] == "failed" and words in engine["error"]
