# Made by 'python -m tests.renew' from the options of the commands.

import os
from typing import List, Literal, Mapping, Sequence, TypedDict, Union

Place = Union[str, os.PathLike[str]]
Real = float

class Common(TypedDict, total=False):
    board: Union[str, None]
    on: Union[Literal["dla", "gpu"], None]
    as_is: bool
    trt_calib_version: Union[str, None]
    infer_average_pool_scales: bool
    infer_concat_scales: bool
    infer_mul_scales: bool
    infer_bounds: bool
    infer_add_scales: bool
    inference: Literal["sound", "reference"]
    keep_fp16: List[str]
    float_type: Literal["fp16", "fp32"]
    keep_norm_fp16: bool
    calibration_type: Literal["max", "histogram"]
    addtl_ops_to_infer_adjacent_scales: List[str]
    rename_node_outputs: bool
    add_unary_ew_scales_for_dla: bool
    target: Literal["gpu", "orin-dla", "xavier-dla"]
    platform: Union[str, None]
    weights: Literal["baked", "float"]
    on_conflict: Literal["max", "min", "first", "error"]
    asymmetric: Literal["error", "widen", "data", "keep"]
    per_channel_activations: Literal["error", "max"]
    scales: Union[Place, None]
    missing_zero_point: Literal["uint8", "int8"]
    graph_optimizer: Literal["native", "onnxoptimizer"]
    no_auto_names: bool
    unify_scales: Literal["off", "warn", "max", "data", "requantize"]
    max_bits_lost: Real
    dla_rewrites: Union[bool, Literal["on", "off", "list", "force", "approximate"]]
    dla_output: Literal["same", "4d"]
    assume: Union[Literal["pow"], None]
    preset: Union[Literal["gpu", "dla"], None]
    without: List[str]
    power_mode: Union[str, None]
    dla_clock: Union[Real, None]
    cost_model: Union[Place, None]
    calibrate_method: str
    calibrate_samples: Union[int, None]
    recalibrate: List[str]
    equalize: bool
    calibrate_outputs: bool
    ignore_nonfinite: bool
    image_mean: List[Real]
    image_std: List[Real]
    resize: Literal["auto", "letterbox", "stretch", "crop"]
    colors: Literal["auto", "rgb", "bgr"]
    layout: Literal["auto", "nchw", "nhwc"]
    shapes: Union[List[str], Mapping[str, Sequence[int]]]
    keep_model: bool
    cache_algorithm: Literal["entropy2", "minmax", "entropy", "legacy"]
    annotate: bool
    strict: bool

class Plan(TypedDict, total=False):
    board: Union[str, None]
    on: Union[Literal["dla", "gpu"], None]
    shapes: Union[List[str], Mapping[str, Sequence[int]]]
    target: Literal["gpu", "orin-dla", "xavier-dla"]
    platform: Union[str, None]
    power_mode: Union[str, None]
    dla_clock: Union[Real, None]
    cost_model: Union[Place, None]
    keep_fp16: List[str]
    dla_rewrites: Union[Literal["on", "off", "approximate"], None]

class Translate(Common, total=False):
    calibrate: Union[Place, None]

class Calibrate(Common, total=False):
    workers: int
    scheduler: Union[str, None]
    provider: str

class Explicit(Common, total=False):
    scale_type: Literal["auto", "fp16", "fp32"]
    io_types: Literal["same", "fp32", "fp16", "int8"]
    allow_fp16: bool
    cache: Union[Place, None]

class Verify(TypedDict, total=False):
    float: Union[Place, None]
    samples: Union[int, None]
    ignore_nonfinite: bool
    seed: int
    shapes: Union[List[str], Mapping[str, Sequence[int]]]
    image_mean: List[Real]
    image_std: List[Real]
    resize: Literal["auto", "letterbox", "stretch", "crop"]
    colors: Literal["auto", "rgb", "bgr"]
    layout: Literal["auto", "nchw", "nhwc"]
    per_layer: bool
    audit: bool
    allow_suspicious: bool
    sensitivity: bool
    time_limit: Real
    higher: Literal["fp16", "fp32"]
    rounding: Literal["auto", "even", "away"]
    sigmoid: Literal["auto", "int8", "fp16"]
    fuse: Literal["both", "on", "off"]
    hypotheses: Literal["both", "plan"]
    layer_arg: Union[Place, None]
    min_cosine: Union[Real, None]
    min_top1_agreement: Union[Real, None]
    max_drop: Union[Real, None]
    device_results: Union[Place, None]
    explicit_network: Union[Place, None]
    workers: int
    scheduler: Union[str, None]
    provider: str

class Tune(Common, total=False):
    held_out: Union[Place, None]
    max_drop: Union[Real, None]
    budget_ms: Union[Real, None]
    output_dir: Place
    samples: Union[int, None]
    passes: int
    workers: int
    scheduler: Union[str, None]
    provider: str

class Deploy(TypedDict, total=False):
    on: Union[Literal["dla", "gpu", "both"], None]
    consumers: List[str]
    output_dir: Place
    max_drop: Union[Real, None]
    target: Union[Literal["gpu", "orin-dla", "xavier-dla"], None]
    platform: Union[str, None]
    dla_core: int
    keep_model: bool
    shapes: Union[List[str], Mapping[str, Sequence[int]]]
    samples: Union[int, None]
    image_mean: List[Real]
    image_std: List[Real]
    resize: Literal["auto", "letterbox", "stretch", "crop"]
    colors: Literal["auto", "rgb", "bgr"]
    layout: Literal["auto", "nchw", "nhwc"]
    recover: Real
    skip: List[str]
    allow_suspicious: bool
