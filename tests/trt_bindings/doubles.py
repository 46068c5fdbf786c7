"""Recording doubles of TensorRT's objects: each stands for a REAL class of the loaded version and refuses the rest.

An attribute, method, keyword, number of arguments or type of argument that the real class does not have is an
AttributeError or TypeError here, as it would be there; what the code under test did is recorded in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*)\) -> ")


class Recorder:
    """`calls`: [what, argument, ...] in plain values, in the order of the calls."""

    def __init__(self, trt: Any) -> None:
        self.trt = trt
        self.calls: list[list[Any]] = []

    def record(self, what: str, *arguments: Any) -> None:
        self.calls.append([what, *map(plain, arguments)])


def plain(value: Any) -> Any:
    """What a record shows of an argument: names of enum members and doubles, text of bytes."""
    if isinstance(value, Double):
        return object.__getattribute__(value, "_label")
    if hasattr(type(value), "__members__"):
        return value.name
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else type(value).__name__


class Double:
    """Stands for an object of the real class `kind`. `values`: its properties; `methods`: what its methods do."""

    def __init__(
        self,
        recorder: Recorder,
        kind: str,
        label: str = "",
        values: Mapping[str, Any] | None = None,
        methods: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        set_own = object.__setattr__
        set_own(self, "_recorder", recorder)
        set_own(self, "_kind", kind)
        set_own(self, "_real", getattr(recorder.trt, kind))
        set_own(self, "_label", label or kind)
        set_own(self, "_values", dict(values or {}))
        set_own(self, "_methods", dict(methods or {}))
        for name in (*self._values, *self._methods):
            getattr(self._real, name)  # a double must not know more than the real class either

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._real, name)
        if isinstance(member, property):
            if name not in self._values:
                raise AssertionError(f"the double of {self._kind} was given no value for {name}")
            return self._values[name]
        return lambda *args, **kwargs: self._call(name, member, args, kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        member = getattr(self._real, name)
        if not isinstance(member, property) or member.fset is None:
            raise AttributeError(f"{self._kind}.{name} cannot be set")
        annotation = re.search(r"arg1: (.*)\) ->", member.fset.__doc__)
        if annotation:
            check_type(self._recorder.trt, f"{self._kind}.{name}", annotation[1], value)
        self._recorder.record(f"{self._label}.{name} =", value)
        self._values[name] = value

    def _call(self, name: str, member: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments = bind(self._recorder.trt, f"{self._kind}.{name}", member.__doc__, (self, *args), kwargs)[1:]
        if not name.startswith("get_") and name not in ("desc", "node", "node_name", "node_operator", "can_run_on_DLA"):
            self._recorder.record(f"{self._label}.{name}", *arguments)
        return self._methods[name](*arguments) if name in self._methods else None


class Memory(Double):
    """IHostMemory offers its bytes through the buffer protocol; `bytes(memory)` is all we use of it."""

    def __bytes__(self) -> bytes:
        return self._values_bytes()

    def _values_bytes(self) -> bytes:
        return object.__getattribute__(self, "content")


def memory(recorder: Recorder, content: bytes) -> Memory:
    made = Memory(recorder, "IHostMemory", "memory")
    object.__setattr__(made, "content", content)
    return made


def bind(trt: Any, what: str, doc: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments in order, defaults filled in, by the signatures in the docstring. Raises TypeError as pybind11."""
    errors = []
    for line in (doc or "").splitlines():
        match = SIGNATURE.match(line.strip())
        if not match or match[2] == "*args, **kwargs":
            continue
        try:
            return _bind_one(trt, what, match[2], args, kwargs)
        except TypeError as error:
            errors.append(str(error))
    raise TypeError("; ".join(errors) or f"{what} has no signature that could be checked")


def _bind_one(trt: Any, what: str, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    parameters = []
    for part in re.split(r", (?=\w+: )", text):
        name, annotation = part.split(": ", 1)
        annotation, has_default, default = annotation.partition(" = ")
        parameters.append((name, annotation, bool(has_default), default))
    if len(args) > len(parameters):
        raise TypeError(f"{what} takes {len(parameters)} arguments, not {len(args)}")
    left = dict(kwargs)
    bound = []
    for index, (name, annotation, has_default, default) in enumerate(parameters):
        if index < len(args):
            value = args[index]
        elif name in left:
            value = left.pop(name)
        elif has_default:
            bound.append({"None": None, "True": True, "False": False}.get(default, default))
            continue
        else:
            raise TypeError(f"{what} lacks its argument {name}")
        if name != "self":
            check_type(trt, f"{what} {name}", annotation, value)
        bound.append(value)
    if left:
        raise TypeError(f"{what} has no argument {', '.join(left)}")
    return bound


def check_type(trt: Any, what: str, annotation: str, value: Any) -> None:
    """Raises TypeError where the real binding would not take `value`."""
    name = re.split(r"\.|::", annotation)[-1]
    if name == "object":
        return
    if annotation.startswith(("List[", "list[", "collections.abc.Sequence[")) or name == "Dims":
        fits = isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) for v in value)
    elif name in ("int", "SupportsInt"):
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif name in ("float", "SupportsFloat"):
        fits = isinstance(value, (int, float))
    elif name in ("bool", "str", "tuple"):
        fits = isinstance(value, {"bool": bool, "str": str, "tuple": tuple}[name])
    elif name in ("buffer", "Buffer"):
        fits = isinstance(value, (bytes, bytearray, memoryview, Memory))
    else:
        real = getattr(trt, {"IParserError": "ParserError"}.get(name, name))
        fits = isinstance(value, real) or (isinstance(value, Double) and issubclass(value._real, real))
    if not fits:
        raise TypeError(f"{what}: {value!r} is no {annotation}")
