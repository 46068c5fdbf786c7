"""Each row of `board/engine/removed.json`, worded as Python, C++ compilers, linkers and trtexec word that the name is gone.

The wordings are those of CPython 3.8 to 3.13 and pybind11, gcc 5 to 14, clang, nvcc (EDG), MSVC, GNU ld and lld, link.exe.
"""

from __future__ import annotations

import re
from typing import Iterator

import pytest

from qdq_translator.board.engine import removed
from qdq_translator.board.engine.messages import parse_log
from qdq_translator.board.engine.removed import Removal

PYTHON_MEMBERS = (
    "AttributeError: '{module}.{owner}' object has no attribute '{member}'",
    "AttributeError: type object '{cut}' has no attribute '{member}'",
    "AttributeError: type object '{module}.{owner}' has no attribute '{member}'. Did you mean: '{other}'?",
    "E   AttributeError: '{owner}' object has no attribute '{member}'",
    "[ERROR] export failed: '{module}.{owner}' object has no attribute '{member}'",
)
PYTHON_CLASSES = (
    "AttributeError: module 'tensorrt' has no attribute '{member}'",
    "AttributeError: module 'tensorrt_bindings' has no attribute '{member}'. Did you mean: '{other}'?",
    "AttributeError: module 'tensorrt.tensorrt' has no attribute '{member}'",
    "ImportError: cannot import name '{member}' from 'tensorrt' (/usr/lib/python3/dist-packages/tensorrt/__init__.py)",
)
MODULES = ("tensorrt_bindings.tensorrt", "tensorrt.tensorrt", "tensorrt")
CPP_MEMBERS = (
    "a.cpp:3:31: error: ‘class {owner}’ has no member named ‘{member}’; did you mean ‘{other}’?",
    "a.cpp:3:31: error: '{owner}' has no member named '{member}'",
    "/src/a.cpp:3:31: error: ‘using std::__shared_ptr_access<{owner}, __gnu_cxx::_S_atomic>::element_type = class {owner}’"
    " {{aka ‘class {owner}’}} has no member named ‘{member}’",
    "a.cpp:3:31: error: ‘using element_type = std::remove_extent<{owner}>::type’ {{aka ‘class {owner}’}} has no member named"
    " ‘{member}’",
    "a.cpp:3:31: error: no member named '{member}' in '{owner}'",
    "a.cpp:3:31: error: no member named '{member}' in '{owner}'; did you mean '{other}'?",
    'a.cu(31): error: class "{owner}" has no member "{member}"',
    'a.cu(31): error: class "{owner}" has no member "{member}" (did you mean "{other}"?)',
    "a.cpp(31): error C2039: '{member}': is not a member of '{owner}'",
    "a.cpp(31,5): error C2039: '{member}' : is not a member of '{owner}' [C:\\src\\a.vcxproj]",
    "a.cpp:(.text+0x1f): undefined reference to `{owner}::{member}(int)'",
    "ld.lld: error: undefined symbol: {owner}::{member}(int)",
    'a.obj : error LNK2019: unresolved external symbol "public: void __cdecl {owner}::{member}(int)"',
)
CPP_SCOPED = (
    "a.cpp:3:31: error: ‘{member}’ is not a member of ‘{owner}’",
    "a.cpp:3:31: error: '{member}' is not a member of '{owner}'; did you mean '{other}'?",
    "a.cpp:3:31: error: no member named '{member}' in '{owner}'",
    "a.cpp(31): error C2039: '{member}': is not a member of '{owner}'",
)
CPP_ENUMS = (
    'a.cu(31): error: enum "{owner}" has no member "{member}"',
    'a.cu(31): error: "{owner}" has no member "{member}"',
    "a.cpp:3:31: error: ‘{member}’ is not a member of ‘{short}’",
    "a.cpp(31): error C2838: '{member}': illegal qualified name in member declaration",
)
CPP_CLASSES = (
    "a.h:9:14: error: ‘{member}’ in namespace ‘{owner}’ does not name a type",
    "a.h:9:14: error: ‘{member}’ is not a member of ‘{owner}’",
    "a.h:9:14: error: ‘{owner}::{member}’ has not been declared",
    "a.h:9:14: error: ‘{member}’ was not declared in this scope",
    "a.h:9:14: error: ‘{member}’ was not declared in this scope; did you mean ‘{other}’?",
    "a.h:9:14: error: ‘{member}’ does not name a type; did you mean ‘{other}’?",
    "a.h:9:14: error: ‘{member}’ has not been declared",
    "a.h:9:14: error: no type named '{member}' in namespace '{owner}'",
    "a.h:9:14: error: no member named '{member}' in namespace '{owner}'; did you mean '{other}'?",
    "a.h:9:14: error: unknown type name '{member}'; did you mean '{other}'?",
    "a.h:9:14: error: use of undeclared identifier '{member}'",
    'a.cu(31): error: namespace "{owner}" has no member "{member}"',
    'a.cu(31): error: namespace "{owner}" has no member class "{member}"',
    'a.cu(31): error: identifier "{member}" is undefined',
    "a.h(9): error C2039: '{member}': is not a member of '{owner}'",
    "a.h(9): error C2065: '{member}': undeclared identifier",
    "a.h(9): error C3083: '{member}': the symbol to the left of a '::' must be a type",
    "a.h(9): error C2061: syntax error: identifier '{member}'",
    "a.h(9): error C2504: '{owner}::{member}': base class undefined",
)
CPP_FUNCTIONS = (
    "a.cpp:3:31: error: ‘{member}’ is not a member of ‘{owner}’",
    "a.cpp:3:31: error: no member named '{member}' in namespace '{owner}'",
    "a.cpp:3:31: error: ‘{member}’ was not declared in this scope",
    'a.cu(31): error: identifier "{member}" is undefined',
    "a.cpp(31): error C3861: '{member}': identifier not found",
    "a.cpp:3:31: error: use of undeclared identifier '{member}'",
)
TRTEXEC = ("[06/08/2026-12:03:32] [E] Unknown option: {0} x", "[E] Unknown option: {0} ", "Unknown option: {0}")
OTHER = "somethingElse"


def simple_name(row: Removal) -> bool:
    return not set("(#= ") & set(row.name)


def worded(row: Removal) -> Iterator[str]:
    """The messages of a program that uses the name."""
    if row.language == "trtexec":
        yield from (text.format(row.name) for text in TRTEXEC if row.name.startswith("--") and simple_name(row))
    elif row.language == "python" and simple_name(row):
        owner, _, member = row.name.rpartition(".")
        if owner == "trt":
            yield from (text.format(member=member, other=OTHER) for text in PYTHON_CLASSES)
            return
        for module in MODULES:
            whole = f"{module}.{owner}"
            for text in PYTHON_MEMBERS:
                yield text.format(module=module, owner=owner, member=member, other=OTHER, cut=whole[:50])
    elif row.language == "cpp" and simple_name(row):
        owner, _, member = row.name.rpartition("::")
        forms = CPP_MEMBERS
        if re.match(r"k[A-Z]", member):
            forms = (*CPP_SCOPED, *CPP_ENUMS)
        elif member[0].isupper() and owner.count("::") == 0:
            forms = CPP_CLASSES
        elif owner.count("::") == 0:
            forms = CPP_FUNCTIONS
        for text in forms:
            yield text.format(owner=owner, short=owner.rpartition("::")[2], member=member, other=OTHER)


def named(line: str, *before: str) -> str:
    ranked = parse_log([*before, line]).ranked()
    return ranked[0].message.id if ranked else ""


def test_each_name_in_each_wording() -> None:
    """The row that is named has the same member and was removed in the same version; at least 99%."""
    lines, wrong = 0, []
    for row in removed.removals().values():
        if row.status != "removed":
            continue
        for line in worded(row):
            lines += 1
            found = parse_log([line]).ranked()
            gone = found[0].message.removal if found else None
            member = re.split(r"::|\.", row.name)[-1]
            if gone is None or re.split(r"::|\.", gone.name)[-1] != member or gone.removed != row.removed:
                wrong.append((row.name, line, found[0].message.id if found else ""))
    assert lines > 4000 and len(wrong) <= lines * 0.01, (len(wrong), lines, wrong[:40])


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("a.cpp:1:10: fatal error: NvCaffeParser.h: No such file or directory", "#include <NvCaffeParser.h>"),
        ("a.cpp:1:10: fatal error: 'NvUffParser.h' file not found", "#include <NvUffParser.h>"),
        ('a.cu(1): catastrophic error: cannot open source file "NvUtils.h"', "#include <NvUtils.h>"),
        ("a.cpp(1): fatal error C1083: Cannot open include file: 'NvUffParser.h'", "#include <NvUffParser.h>"),
        (
            "TypeError: add_quantize(): incompatible function arguments. The following argument types are supported:",
            "INetworkDefinition.add_quantize(input, scale)",
        ),
        ("TypeError: object of type 'tensorrt_bindings.tensorrt.ICudaEngine' has no len()", "ICudaEngine.__len__"),
        (
            "AttributeError: property 'dtype' of 'tensorrt_bindings.tensorrt.ITensor' object has no setter",
            "ITensor.dtype (assignment)",
        ),
        ("[E] Unknown preview feature: profileSharing0806", "--preview=+profileSharing0806"),
        ("[E] Unknown tactic source: CUBLAS_LT", "--tacticSources=-CUBLAS_LT"),
        ("[E] Invalid TensorFormat int8:chw32", "--outputIOFormats=<type>:<format>"),
        ("getPluginCreator could not find plugin: BatchTilePlugin_TRT version: 1", "plugin BatchTilePlugin_TRT"),
        (
            "IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find plugin: CoordConvAC, version: 1)",
            "plugin CoordConvAC",
        ),
        ("Warning: Unknown or legacy key specified 'model-file' for group [property]", "model-file"),
    ],
)
def test_names_of_other_kinds(line: str, name: str) -> None:
    (found,) = parse_log([line]).ranked()
    assert found.message.removal is not None and name in (found.message.removal.name, found.message.id)


@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: type object 'tensorrt_bindings.tensorrt.BuilderFlag' has no attribute 'DIRECT_IO'",
        "AttributeError: 'tensorrt.tensorrt.ICudaEngine' object has no attribute 'num_io_tensors'",
        "a.cpp:3:31: error: 'class nvinfer1::IExecutionContext' has no member named 'enqueueV3'",
        "AttributeError: 'Trainer' object has no attribute 'precision'",
        "AttributeError: 'MyContext' object has no attribute 'execute'",
        "a.cpp:3:31: error: 'class cv::Mat' has no member named 'destroy'",
        "undefined reference to `app::Engine::destroy()'",
        "a.cpp:3:31: error: 'class nvinfer1::IBuilderConfig' has no member named 'setInt8Calibratr'",
    ],
)
def test_names_that_nobody_removed(line: str) -> None:
    """A name of a newer TensorRT, of the user's own classes, or misspelled is not called removed."""
    for entry in parse_log([line]).ranked():
        assert entry.message.removal is None
        assert entry.message.kind == "general" or entry.message.id == "name-too-new"


def test_the_stated_version_decides() -> None:
    line = "AttributeError: 'tensorrt.tensorrt.IBuilderConfig' object has no attribute 'max_workspace_size'"
    assert named(line, "TensorRT 10.3.0") == "removed IBuilderConfig.max_workspace_size"
    assert named(line, "TensorRT 8.6.1") == ""


@pytest.mark.parametrize(
    "line",
    [
        "a.cpp:3: warning: ‘void nvinfer1::IBuilderConfig::setInt8Calibrator(nvinfer1::IInt8Calibrator*)’ is deprecated",
        "a.cpp(3): warning C4996: 'nvinfer1::IBuilderConfig::setInt8Calibrator': was declared deprecated",
        'a.cu(3): warning #1444-D: function "nvinfer1::IBuilderConfig::setInt8Calibrator" was declared deprecated',
    ],
)
def test_deprecation_warnings_are_the_first_sign(line: str) -> None:
    (found,) = parse_log(["TensorRT version: 10.13.2", line]).ranked()
    assert found.message.kind == "note" and "removed in TensorRT 11.0" in found.message.happened
