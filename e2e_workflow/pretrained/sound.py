"""Synthesized speech and tones with known words, notes and pitches, for the networks that listen."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np
import onnx

from . import infer, packages
from .task import Outputs, Size, Task, inputs_of, split

RATE = 16000
SENTENCES = (
    "turn on the light in the kitchen",
    "what is the weather going to be tomorrow",
    "the train leaves from platform nine at noon",
    "please remind me to call my sister",
    "seven green bottles were hanging on the wall",
    "i would like a cup of coffee with milk",
    "open the window it is much too warm in here",
    "how far is it from here to the station",
)
VOICES = (
    "en-us",
    "en-gb",
    "en-gb-scotland",
    "en-029",
    "en-us+m3",
    "en-us+m5",
    "en-us+f2",
    "en-us+f4",
    "en-gb+f3",
    "en-gb+m7",
)


@functools.lru_cache(maxsize=None)
def _engine() -> tuple[Any, list[np.ndarray]]:
    """eSpeak NG, and the list into which it puts its samples of 22,050 Hz."""
    folder = packages.unpacked("espeakng-loader") / "espeakng_loader"
    library = ctypes.CDLL(str(folder / "libespeak-ng.so"))
    synchronous, milliseconds = 2, 200
    if library.espeak_Initialize(synchronous, milliseconds, str(folder / "espeak-ng-data").encode(), 0) != 22050:
        raise packages.Unavailable("eSpeak NG does not start on this machine")
    heard: list[np.ndarray] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def listen(wave: Any, count: int, _: Any) -> int:
        if count:
            heard.append(np.ctypeslib.as_array(wave, (count,)).copy())
        return 0

    library.espeak_SetSynthCallback(listen)
    library.listen = listen  # keeps the callback alive
    return library, heard


def speech(text: str, voice: str, rate: int = 160, pitch: int = 50) -> np.ndarray:
    """The spoken text at 16 kHz, -1 to 1. Raises Unavailable where the library does not load."""
    from scipy.signal import resample_poly

    try:
        library, heard = _engine()
    except OSError as error:
        raise packages.Unavailable(f"eSpeak NG does not load on this machine: {error}") from error
    heard.clear()
    library.espeak_SetVoiceByName(voice.encode())
    library.espeak_SetParameter(1, rate, 0)
    library.espeak_SetParameter(3, pitch, 0)
    words = text.encode()
    library.espeak_Synth(words, len(words) + 1, 0, 1, 0, 1, None, None)
    library.espeak_Synchronize()
    return resample_poly(np.concatenate(heard).astype(np.float32) / 32768, 320, 441).astype(np.float32)


def anyone(rng: np.random.Generator, text: str) -> np.ndarray:
    """The text by a random voice, rate and pitch."""
    return speech(text, str(rng.choice(VOICES)), int(rng.integers(120, 220)), int(rng.integers(25, 80)))


def noise(rng: np.random.Generator, count: int) -> np.ndarray:
    """White, pink or brown noise, or a hum with harmonics, of deviation 1."""
    frequencies = np.maximum(np.fft.rfftfreq(count, 1 / RATE), 20)
    power = float(rng.choice([0, 0.5, 1]))
    spectrum = (rng.normal(size=len(frequencies)) + 1j * rng.normal(size=len(frequencies))) / frequencies**power
    values = np.fft.irfft(spectrum, count)
    if rng.random() < 0.3:
        values = values / values.std() + sum(
            np.sin(2 * np.pi * k * rng.uniform(90, 130) * np.arange(count) / RATE) for k in (1, 2, 3)
        )
    return (values / values.std()).astype(np.float32)


FRAME, CONTEXT, FRAMES = 512, 64, 31


def activity(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """One second in which speech starts or stops in noise: the share of frames of 32 ms that are called right.

    A frame is speech if its clean signal is less than 30 dB below the loudest frame; frames within 15 dB of that limit do not
    count. Each frame is preceded by the last 64 samples of the one before.
    """
    samples, truth = [], []
    for _ in range(size.all):
        spoken = anyone(rng, str(rng.choice(SENTENCES)))
        clean = np.zeros(FRAME * FRAMES + CONTEXT, np.float32)
        gap = int(rng.integers(RATE // 8, len(clean)))
        if rng.random() < 0.5:
            clean[gap:] = spoken[: len(clean) - gap]
        else:
            part = spoken[-(len(clean) - gap) :]
            clean[: len(part)] = part
        level = np.array([np.square(clean[CONTEXT + i * FRAME :][:FRAME]).mean() for i in range(FRAMES)])
        loudness = 10 * np.log10(level / max(level.max(), 1e-9) + 1e-9)
        loud = np.sqrt(np.square(spoken).mean())
        mixed = clean + noise(rng, len(clean)) * loud * 10 ** (-rng.uniform(3, 30) / 20)
        frames = np.stack([mixed[i * FRAME :][: FRAME + CONTEXT] for i in range(FRAMES)])
        samples.append((frames.astype(np.float32), *(np.zeros((1, 128), np.float32),) * 2))
        truth.append((loudness > -30, (loudness > -20) | (loudness < -45)))

    def score(outputs: Outputs, answer: tuple[np.ndarray, np.ndarray]) -> float:
        spoken, counts = answer
        return 100.0 * float(np.mean(((outputs[0].reshape(-1) > 0.5) == spoken)[counts]))

    return Task(*split(size, samples, model), truth[size.calibration :], score)


def _tone(rng: np.random.Generator, frequency: float, seconds: float, rate: int, partials: int) -> np.ndarray:
    """A plucked or held tone with falling partials."""
    times = np.arange(int(seconds * rate)) / rate
    fall = rng.uniform(0.5, 2.0)
    values = sum(
        np.sin(2 * np.pi * k * frequency * times + rng.uniform(0, 6)) / k**fall
        for k in range(1, partials + 1)
        if k * frequency < rate / 2
    )
    envelope = (
        np.minimum(times / 0.01, 1) * np.exp(-times * rng.uniform(0, 3)) * np.minimum((seconds - times) / 0.02, 1)
    )
    return (values * envelope).astype(np.float32)


MUSIC_RATE, MUSIC_SAMPLES, MUSIC_FRAMES, LOWEST_NOTE = 22050, 43844, 172, 21


def notes(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """Two seconds of up to three voices: F1 of the pairs (frame, note) in which a note sounds, frames at its ends left out."""
    samples, truth = [], []
    for _ in range(size.all):
        mixed, roll = np.zeros(MUSIC_SAMPLES, np.float32), np.zeros((MUSIC_FRAMES, 88), np.int8)
        for _ in range(rng.integers(1, 4)):
            start = 0.0
            while start < 1.7:
                length, pitch = rng.uniform(0.3, 0.9), int(rng.integers(40, 84))
                values = _tone(rng, 440 * 2 ** ((pitch - 69) / 12), length, MUSIC_RATE, 8)
                first = int(start * MUSIC_RATE)
                part = values[: MUSIC_SAMPLES - first]
                mixed[first : first + len(part)] += part * rng.uniform(0.3, 1)
                edges = np.array([start, start + length]) * MUSIC_RATE / 256
                rows = roll[max(int(edges[0]) - 2, 0) : int(edges[1]) + 4, pitch - LOWEST_NOTE]
                rows[rows == 0] = -1
                roll[int(edges[0]) + 2 : int(edges[1] - 8), pitch - LOWEST_NOTE] = 1
                start += length + rng.uniform(0, 0.3)
        mixed += rng.normal(0, 10 ** -rng.uniform(2, 4), MUSIC_SAMPLES).astype(np.float32)
        samples.append((mixed / np.abs(mixed).max() * rng.uniform(0.2, 0.9)).astype(np.float32)[:, None])
        truth.append(roll)

    def score(outputs: Outputs, answer: np.ndarray) -> float:
        found = outputs[1][0] > 0.3
        hits = float((found & (answer == 1)).sum())
        return 200.0 * hits / max(float((found & (answer >= 0)).sum() + (answer == 1).sum()), 1.0)

    return Task(*split(size, samples, model), truth[size.calibration :], score)


def pitch(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """Frames of 1024 samples of a harmonic tone in noise: right if the best of 360 bins of 20 cents is within 50 cents."""
    samples, truth = [], []
    for _ in range(size.all):
        frequency = 2 ** rng.uniform(np.log2(60), np.log2(1200))
        values = _tone(rng, frequency, 0.3, RATE, int(rng.integers(2, 20)))[1500 : 1500 + 1024]
        values = values / values.std() + noise(rng, 1024) * 10 ** (-rng.uniform(-3, 25) / 20)
        values = values - values.mean()
        samples.append((values / values.std()).astype(np.float32))
        truth.append(1200 * np.log2(frequency / 10))

    def score(outputs: Outputs, answer: float) -> float:
        return 100.0 * (abs(20 * int(outputs[0].reshape(-1).argmax()) + 1997.3794084376191 - answer) < 50)

    return Task(*split(size, samples, model), truth[size.calibration :], score)


WAKE = {"alexa": "alexa", "hey_jarvis": "hey jarvis", "hey_mycroft": "hey mycroft", "okay_nabu": "okay nabu"}


def _frontend(values: np.ndarray) -> np.ndarray:
    """Features (frames of 10 ms, 40) of the microcontroller front end that the wake word networks were trained with."""
    folder = str(packages.unpacked("pymicro-features"))
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        from micro_features_cpp import create_frontend, process_samples
    except ImportError as error:
        raise packages.Unavailable(f"pymicro-features does not load on this machine: {error}") from error
    state, found = create_frontend(), []
    audio = np.clip(values * 32767, -32768, 32767).astype(np.int16)
    for start in range(0, len(audio) - 159, 160):
        features, _ = process_samples(state, audio[start : start + 160].tobytes())
        found += [features] if features else []
    return np.array(found, np.float32)


def wake_word(word: str):
    """A task for a streaming network in INT8: the word, or another one or a sentence, in noise.

    A sample is the step at which the shipped network is most certain, with its states; right if it is above one half as it should.
    """

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        running, names = infer.session(model), inputs_of(model)
        shapes = {value.name: value.shape for value in running.get_inputs()}
        outputs = [value.name for value in running.get_outputs()]
        samples, truth = [], []
        for _ in range(size.all):
            said = bool(rng.random() < 0.5)
            others = [*(w for w in WAKE.values() if w != WAKE[word]), *SENTENCES]
            spoken = anyone(rng, WAKE[word] if said else str(rng.choice(others)))[: 2 * RATE]
            clip = np.concatenate([np.zeros(RATE), 0.5 * spoken / np.abs(spoken).max(), np.zeros(RATE // 3)])
            clip = clip + noise(rng, len(clip)) * 10 ** (-rng.uniform(25, 45) / 20)
            features = _frontend(clip)
            feed = {name: np.zeros(shapes[name], np.float32) for name in names}
            best = (-1.0, ())
            for step in range(len(features) // 3):
                feed[names[0]] = features[3 * step : 3 * step + 3][None]
                found = dict(zip(outputs, running.run(None, feed)))
                certain = found[outputs[0]].item()
                if step > 25 and certain > best[0]:  # by then the states come from the clip alone
                    best = (certain, tuple(feed[name][0] for name in names))
                feed.update({name: found[f"next_{name}"] for name in names[1:]})
            samples.append(best[1])
            truth.append(said)

        def score(found: Outputs, answer: bool) -> float:
            return 100.0 * ((found[0].item() > 0.5) == answer)

        return Task(*split(size, samples, model), truth[size.calibration :], score)

    return task


def _mel_filters(bins: int = 201, count: int = 80) -> np.ndarray:
    """Triangles on Slaney's mel scale, each of area 1: (bins of the spectrum, filters)."""
    to_mel = lambda hz: np.where(hz < 1000, 3 * hz / 200, 15 + np.log(np.maximum(hz, 1) / 1000) * 27 / np.log(6.4))  # noqa: E731
    mels = np.linspace(0, to_mel(np.array(RATE / 2)), count + 2)
    edges = np.where(mels < 15, 200 * mels / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))
    slopes = edges[None] - np.linspace(0, RATE / 2, bins)[:, None]
    widths = np.diff(edges)
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])


def log_mel(values: np.ndarray) -> np.ndarray:
    """Whisper's features (80, 800) of the last 8 seconds."""
    values = np.pad(values[-8 * RATE :], (max(0, 8 * RATE - len(values)), 0))
    values = (values - values.mean()) / np.sqrt(values.var() + 1e-7)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(values, 200, mode="reflect"), 400)[::160]
    power = np.abs(np.fft.rfft(frames * np.hanning(401)[:-1])) ** 2
    found = np.log10(np.maximum(1e-10, _mel_filters().T @ power.T))[:, :-1]
    return ((np.maximum(found, found.max() - 8) + 4) / 4).astype(np.float32)


def turn_end(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """A sentence, whole or cut: whether the decision is the shipped network's. For synthetic speech it is no measure of being right."""
    samples = []
    for _ in range(size.all):
        spoken = anyone(rng, str(rng.choice(SENTENCES)))
        spoken = spoken[: int(len(spoken) * rng.uniform(0.4, 0.8))] if rng.random() < 0.5 else spoken
        spoken = np.concatenate([spoken, np.zeros(int(rng.uniform(0, 0.6) * RATE), np.float32)])
        samples.append(log_mel(spoken + noise(rng, len(spoken)) * 10 ** (-rng.uniform(40, 60) / 20)))

    def score(outputs: Outputs, answer: Outputs) -> float:
        return 100.0 * ((outputs[0].item() > 0.5) == (answer[0].item() > 0.5))

    return Task(*split(size, samples, model), None, score)
