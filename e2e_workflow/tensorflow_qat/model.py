"""A residual CNN and a MobileNet in TensorFlow, with fake quantization where NVIDIA tensorflow-quantization puts it.

`QuantizeAndDequantize` in front of every input of a convolution, of the classifier and of average pooling, on the
residual branch of every Add (per tensor), and on every weight (per output channel). Images are (N, 16, 16, 1).
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import tensorflow as tf

CLASSES = 10
SMALLEST_AMAX = 1e-6


class Mode(enum.Enum):
    """What every quantizer of a network does at the moment."""

    FLOAT = "float"
    CALIBRATE = "calibrate"
    QUANTIZE = "quantize"


class Block(tf.Module):
    """A piece of the network; `training` is for BatchNormalization."""

    def __call__(self, x: tf.Tensor, mode: Mode, training: bool) -> tf.Tensor:
        raise NotImplementedError


class InputQuantizer(tf.Module):
    """Fake quantization of an activation, per tensor: `amax` is collected while calibrating and stays as it is then."""

    def __init__(self) -> None:
        super().__init__()
        self.amax = tf.Variable(0.0, trainable=False)

    def __call__(self, x: tf.Tensor, mode: Mode) -> tf.Tensor:
        if mode is Mode.CALIBRATE:
            self.amax.assign(tf.maximum(self.amax, tf.reduce_max(tf.abs(x))))
        if mode is not Mode.QUANTIZE:
            return x
        return tf.quantization.quantize_and_dequantize_v2(
            x, -self.amax, self.amax, range_given=True, round_mode="HALF_TO_EVEN", narrow_range=True
        )


def quantized_weight(weight: tf.Tensor, axis: int, mode: Mode) -> tf.Tensor:
    """Fake quantization per channel of `axis`; amax follows the weights."""
    if mode is not Mode.QUANTIZE:
        return weight
    others = [i for i in range(len(weight.shape)) if i != axis]
    amax = tf.stop_gradient(tf.maximum(tf.reduce_max(tf.abs(weight), others), SMALLEST_AMAX))

    def fake_quantize(values: tf.Tensor) -> tf.Tensor:
        # The kernel behind quantize_and_dequantize_v2 (V4) in TensorFlow 2.21 refuses ranges per channel on the CPU.
        return tf.raw_ops.QuantizeAndDequantizeV3(
            input=values, input_min=-amax, input_max=amax, num_bits=8, narrow_range=True, axis=axis
        )

    return tf.grad_pass_through(fake_quantize)(weight)


class Conv(Block):
    """Convolution without bias (depthwise if so said), BatchNormalization, activation; SAME padding."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        depthwise: bool = False,
        activation: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> None:
        super().__init__()
        shape = (size, size, inputs, 1 if depthwise else outputs)
        fan = size * size * (1 if depthwise else inputs)
        self.weight = tf.Variable(tf.random.normal(shape, stddev=(2.0 / fan) ** 0.5))
        self.stride, self.depthwise, self.activation = stride, depthwise, activation
        self.input_quantizer = InputQuantizer()
        self.gamma, self.beta = tf.Variable(tf.ones(outputs)), tf.Variable(tf.zeros(outputs))
        self.mean = tf.Variable(tf.zeros(outputs), trainable=False)
        self.variance = tf.Variable(tf.ones(outputs), trainable=False)

    def __call__(self, x: tf.Tensor, mode: Mode, training: bool) -> tf.Tensor:
        weight = quantized_weight(self.weight, 2 if self.depthwise else 3, mode)
        convolve = tf.nn.depthwise_conv2d if self.depthwise else tf.nn.conv2d
        x = convolve(self.input_quantizer(x, mode), weight, [1, self.stride, self.stride, 1], "SAME")
        return self.activation(self._normalize(x, training))

    def _normalize(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        if not training:
            given = {"mean": self.mean, "variance": self.variance}
            return tf.compat.v1.nn.fused_batch_norm(x, self.gamma, self.beta, **given, is_training=False)[0]
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, self.gamma, self.beta, is_training=True)
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        self.variance.assign(0.9 * self.variance + 0.1 * variance)
        return y


class ResidualBlock(Block):
    """ResNet's basic block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = Conv(inputs, outputs, stride=stride, activation=tf.nn.relu)
        self.second = Conv(outputs, outputs)
        self.downsample = None if inputs == outputs else Conv(inputs, outputs, 1, stride)
        self.residual_quantizer = InputQuantizer()

    def __call__(self, x: tf.Tensor, mode: Mode, training: bool) -> tf.Tensor:
        y = self.second(self.first(x, mode, training), mode, training)
        if self.downsample is not None:
            x = self.downsample(x, mode, training)
        return tf.nn.relu(y + self.residual_quantizer(x, mode))


class InvertedResidual(Block):
    """MobileNet-v2's block with SiLU."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = 3 * inputs
        self.expand = Conv(inputs, hidden, 1, activation=silu)
        self.depthwise = Conv(hidden, hidden, 3, stride, depthwise=True, activation=silu)
        self.project = Conv(hidden, outputs, 1)
        self.residual_quantizer = InputQuantizer() if inputs == outputs else None

    def __call__(self, x: tf.Tensor, mode: Mode, training: bool) -> tf.Tensor:
        y = self.depthwise(self.expand(x, mode, training), mode, training)
        y = self.project(y, mode, training)
        return y if self.residual_quantizer is None else y + self.residual_quantizer(x, mode)


class Classifier(Block):
    """Blocks in a row, average pooling of the last 4x4 pixels, classifier. Returns logits (N, 10)."""

    def __init__(self, blocks: list[Block], channels: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.pool_quantizer, self.input_quantizer = InputQuantizer(), InputQuantizer()
        self.weight = tf.Variable(tf.random.normal((channels, CLASSES), stddev=channels**-0.5))
        self.bias = tf.Variable(tf.zeros(CLASSES))

    def __call__(self, x: tf.Tensor, mode: Mode, training: bool) -> tf.Tensor:
        for block in self.blocks:
            x = block(x, mode, training)
        x = tf.nn.avg_pool2d(self.pool_quantizer(x, mode), 4, 4, "VALID")
        x = tf.reshape(x, (-1, self.weight.shape[0]))
        return tf.matmul(self.input_quantizer(x, mode), quantized_weight(self.weight, 1, mode)) + self.bias


def silu(x: tf.Tensor) -> tf.Tensor:
    """x * sigmoid(x), as two nodes."""
    return x * tf.sigmoid(x)


def resnet() -> Classifier:
    """Three residual blocks."""
    blocks = [ResidualBlock(16, 16, 1), ResidualBlock(16, 24, 2), ResidualBlock(24, 48, 2)]
    return Classifier([Conv(1, 16, activation=tf.nn.relu), *blocks], 48)


def mobilenet() -> Classifier:
    """Four inverted residual blocks."""
    shapes = [(16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2)]
    blocks = [InvertedResidual(*shape) for shape in shapes]
    return Classifier([Conv(1, 16, activation=silu), *blocks, Conv(32, 64, 1, activation=silu)], 64)


NETWORKS = {"resnet": resnet, "mobilenet": mobilenet}
