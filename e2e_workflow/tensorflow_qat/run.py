"""Quantization-aware training in TensorFlow, exported with tf2onnx, and what the translator makes of it.

python -m e2e_workflow.tensorflow_qat.run [--smoke]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from e2e_workflow.common import results, translation
from e2e_workflow.common.lazy import later

if TYPE_CHECKING:
    from e2e_workflow.tensorflow_qat.model import Classifier, Mode

tf, tf2onnx = later("tensorflow"), later("tf2onnx")
digits, evaluate = later("e2e_workflow.common.digits"), later("e2e_workflow.common.evaluate")
models = later("e2e_workflow.tensorflow_qat.model")
COMMAND = "python -m e2e_workflow.tensorflow_qat.run"
PACKAGES = ["tensorflow-cpu", "tf2onnx", "onnx", "onnxruntime", "numpy", "scikit-learn"]
HEADER = ["network", "metric", "float", "Q/DQ", *translation.HEADER]
FOLDER = Path(__file__).resolve().parents[1] / "work"
BATCH = 64
CALIBRATION_IMAGES = 512
SEED = 0


def train(network: Classifier, data: digits.Digits, mode: Mode, epochs: int, rate: float) -> None:
    """SGD with momentum and a cosine learning rate."""
    images, labels = data.train_images.transpose(0, 2, 3, 1), data.train_labels
    batches = len(images) // BATCH
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, epochs * batches)
    optimizer = tf.keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True)
    variables = network.trainable_variables
    random = np.random.default_rng(SEED)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = network(x, mode, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
            loss += 5e-5 * tf.add_n([tf.nn.l2_loss(v) for v in variables])
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for _ in range(epochs):
        order = random.permutation(len(images))
        for start in range(0, batches * BATCH, BATCH):
            chosen = order[start : start + BATCH]
            step(tf.constant(images[chosen]), tf.constant(labels[chosen]))


def calibrate(network: Classifier, data: digits.Digits) -> None:
    """Collect amax of every activation on the float network."""
    images = data.train_images[:CALIBRATION_IMAGES].transpose(0, 2, 3, 1)
    for start in range(0, len(images), BATCH):
        network(tf.constant(images[start : start + BATCH]), models.Mode.CALIBRATE, training=False)


def export(network: Classifier, mode: Mode, path: Path) -> Path:
    """ONNX, opset 17, input `input` as (N, 1, 16, 16), output `logits`."""

    @tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 1), tf.float32, name="input")])
    def forward(x: tf.Tensor) -> tf.Tensor:
        return tf.identity(network(x, mode, training=False), name="logits")

    tf2onnx.convert.from_function(
        forward, forward.input_signature, opset=17, inputs_as_nchw=["input"], output_path=str(path)
    )
    return path


def run(name: str, smoke: bool, folder: Path) -> list[str]:
    """One network: a row of the table. Raises AssertionError on bad scores."""
    tf.keras.utils.set_random_seed(SEED)
    data = digits.load()
    network = models.NETWORKS[name]()

    def score(model: evaluate.Model) -> float:
        return evaluate.top1_of(evaluate.outputs(model, data.test_images)[0], data.test_labels)

    train(network, data, models.Mode.FLOAT, 6 if smoke else 25, 0.05)
    float_score = score(export(network, models.Mode.FLOAT, folder / f"{name}_float.onnx"))
    calibrate(network, data)
    train(network, data, models.Mode.QUANTIZE, 1 if smoke else 5, 0.005)
    model = export(network, models.Mode.QUANTIZE, folder / f"{name}_qat.onnx")
    qdq_score = score(model)
    choices = translation.with_data(data.train_images[:CALIBRATION_IMAGES], folder / f"{name}_calibration.npz")
    found = translation.outcomes(model, score, choices=choices)
    cells = [cell for outcome in found for cell in outcome.cells()]
    row = [name, "Top-1 %", f"{float_score:.2f}", f"{qdq_score:.2f}", *cells]
    print(" | ".join(row), flush=True)
    wanted, tolerated = (85.0, 5.0) if smoke else (97.0, 2.0)
    assert float_score >= wanted, f"{name}: float {float_score:.2f} is below {wanted}"
    assert qdq_score >= float_score - tolerated, f"{name}: Q/DQ {qdq_score:.2f}, float {float_score:.2f}"
    translation.hold(name, qdq_score, found, tolerated)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few epochs only; asserts on the scores")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    folder = FOLDER / ("tensorflow_qat_smoke" if arguments.smoke else "tensorflow_qat")
    folder.mkdir(parents=True, exist_ok=True)
    text = results.table(HEADER, [run(name, arguments.smoke, folder) for name in models.NETWORKS])
    print(text)
    if not arguments.smoke:
        results.write(Path(__file__).with_name("results.md"), COMMAND, text, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
