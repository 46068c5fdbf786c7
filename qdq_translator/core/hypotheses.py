"""Open questions of the facts: for each hypothesis the alternative that plan and simulation use, and the other one.

`verify` shows both ends of those in `HYPOTHESES` that change its results. A layer names those that it depends on
(`LayerPlan.hypotheses`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """planned, other: sentences about the two ends. stage: name of the simulation at the other end in `verify`."""

    id: str
    stage: str
    planned: str
    other: str
    fact: str


FUSION, SIGMOID, BETWEEN, GPU_INT8, RANGES = "fusion", "sigmoid", "between", "gpu", "ranges"

HYPOTHESES = {
    row.id: row
    for row in (
        Hypothesis(
            FUSION,
            "unfused",
            "the tensor between a Conv and the Add, Relu or Clip that it fuses with passes unrounded",
            "its scale rounds it",
            "fact 5.8",
        ),
        Hypothesis(
            SIGMOID,
            "sigmoid int8",
            "the scales around a Sigmoid or Tanh of the DLA are not applied, its input and output pass in FP16",
            "they round its input and output if a layer in INT8 reads them too",
            "fact 5.12b",
        ),
        Hypothesis(
            BETWEEN,
            "between fp16",
            "layers without weights that could run in INT8 run in INT8 between FP16 layers of the DLA",
            "they run in FP16",
            "fact 6.6",
        ),
        Hypothesis(
            GPU_INT8,
            "gpu int8",
            "a layer of the GPU beside the DLA computes above INT8",
            "it computes in INT8, because all of its tensors have scales",
            "fact 5.5",
        ),
        Hypothesis(
            RANGES,
            "one range",
            (
                "a pooling, Concat or element-wise layer of the DLA whose scales differ runs in FP16, and "
                "they stay as they are"
            ),
            "it runs in INT8, with the largest of them for all tensors that must share it",
            "facts 5.9 to 5.11",
        ),
    )
}

TRANSITIONS = Hypothesis(
    "transitions",
    "",
    "a tensor between DLA and GPU takes about 0.02 ms and its bytes",
    "to begin or end a DLA region beside layers of the GPU takes about 0.29 ms more",
    "docs/cost.md",
)
"""The two ends of an estimate, which the time of an engine decides."""


@dataclass(frozen=True)
class DeviceQuestion:
    """The open question on which device the layers of an operator run. indices: data type of the index inputs that it
    is about, '' for any. planned: DLA or GPU. on_dla, on_gpu: sentences about the two answers."""

    id: str
    op: str
    indices: str
    planned: str
    on_dla: str
    on_gpu: str
    fact: str


DEVICE_QUESTIONS = (
    DeviceQuestion(
        "pow",
        "Pow",
        "",
        "GPU",
        "Pow with a constant exponent runs on the DLA (plan with --assume pow)",
        "Pow with a constant exponent runs on the GPU",
        "fact 6.3e",
    ),
    DeviceQuestion(
        "slice",
        "Slice",
        "INT32",
        "DLA",
        "a Slice with INT32 indices runs on the DLA",
        "a Slice with INT32 indices runs on the GPU",
        "rule F10",
    ),
    DeviceQuestion(
        "slice64",
        "Slice",
        "INT64",
        "GPU",
        "a Slice with INT64 indices runs on the DLA as well: rule F10 is not needed for it",
        "a Slice with INT64 indices is not static for the parser and runs on the GPU",
        "rule F10",
    ),
)
