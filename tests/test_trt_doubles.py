"""The recording doubles refuse what the real class does not have (shown on a small class written as pybind11 does)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.trt_bindings.doubles import Double, Recorder


def _set_core(self: Any, value: Any) -> None:
    """(arg0: tensorrt.Config, arg1: int) -> None"""


class Config:
    core = property(lambda self: None, _set_core)
    fixed = property(lambda self: None)

    def set_limit(self, pool: str, size: int = 0) -> None:
        """set_limit(self: tensorrt.Config, pool: str, size: int = 0) -> None"""


@pytest.fixture
def config() -> Double:
    return Double(Recorder(SimpleNamespace(Config=Config)), "Config", "config")


def test_what_is_there_is_recorded(config: Double) -> None:
    config.core = 1
    config.set_limit("a", size=2)
    assert config._recorder.calls == [["config.core =", 1], ["config.set_limit", "a", 2]]
    assert config.core == 1


@pytest.mark.parametrize(
    ("error", "act"),
    [
        (AttributeError, lambda c: c.set_limits("a")),
        (AttributeError, lambda c: setattr(c, "cores", 1)),
        (AttributeError, lambda c: setattr(c, "fixed", 1)),
        (AttributeError, lambda c: setattr(c, "set_limit", 1)),
        (TypeError, lambda c: setattr(c, "core", "1")),
        (TypeError, lambda c: c.set_limit()),
        (TypeError, lambda c: c.set_limit(3)),
        (TypeError, lambda c: c.set_limit("a", 1, 2)),
        (TypeError, lambda c: c.set_limit("a", bytes=1)),
        (TypeError, lambda c: c.set_limit("a", 1.5)),
    ],
)
def test_what_is_not_there_is_refused(config: Double, error: type[Exception], act: Any) -> None:
    with pytest.raises(error):
        act(config)
    assert config._recorder.calls == []


def test_a_double_is_not_made_with_more_than_the_class_has() -> None:
    with pytest.raises(AttributeError):
        Double(Recorder(SimpleNamespace(Config=Config)), "Config", values={"unknown": 1})
