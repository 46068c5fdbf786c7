"""Target, platform and sizes of a translation, read back from its files, and contradictions to them."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.options import options_of
from qdq_translator.output.emit.trtexec.request import Network
from qdq_translator.targets.platforms import Platform, find_platform


@dataclasses.dataclass(frozen=True)
class Remembered:
    """target, platform: '' if not specified. shapes: input -> sizes, as in --shapes. open: inputs that have no fixed
    sizes in the stripped model."""

    target: str = ""
    platform: str = ""
    shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    open: frozenset[str] = frozenset()

    @classmethod
    def of(cls, files: TranslationFiles) -> Remembered:
        """Empty for NVIDIA's translator or a separate cache."""
        made = cls.of_options(files.read_config().get("options") or {} if files.config.exists() else {})
        inputs = Network.read(files.model).inputs if made.shapes else {}
        return dataclasses.replace(made, open=frozenset(name for name, sizes in inputs.items() if -1 in sizes))

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Remembered:
        """Read the options in the precision config."""
        made = options_of(options, ("platform", "shapes"))
        return cls(options.get("target") or "", made.platform or "", made.sizes)

    @property
    def on_dla(self) -> bool:
        return self.target not in ("", "gpu")

    def target_for(self, asked: Optional[str]) -> tuple[str, list[str]]:
        """The target to build for if --target is `asked`, and notes. Raises UsageError if it differs from that of a
        DLA's translation."""
        made = self.target or "gpu"
        target = asked or made
        if self.on_dla and target != self.target:
            raise UsageError(
                f"--target {target}, but the model was translated for {self.target}.",
                f"Leave --target out, or translate the model with --target {target}.",
            )
        if target == made:
            return target, []
        return target, [
            f"The model was translated for {made}: nothing was checked against the limits of {target}. Translate it with "
            f"--target {target} to see what runs there."
        ]

    def platform_for(self, asked: Optional[str]) -> Optional[Platform]:
        """The --platform platform, else that of the translation. Raises UsageError if their TensorRT versions differ."""
        own = find_platform(self.platform) if self.platform else None
        platform = find_platform(asked) if asked else own
        if own is not None and platform is not None and platform.tensorrt[:2] != own.tensorrt[:2]:
            raise UsageError(
                f"--platform {platform.name} has TensorRT {_dotted(platform)}, but the model was translated for {own.name} with "
                f"TensorRT {_dotted(own)}.",
                f"Leave --platform out, or translate the model with --platform {platform.name}.",
            )
        return platform

    def sizes_for(self, asked: Mapping[str, Sequence[int]], flag: str) -> Mapping[str, Sequence[int]]:
        """`asked`, else those of the translation. Raises UsageError for another size on a DLA, which has only one."""
        for name, sizes in asked.items() if self.on_dla else ():
            if list(sizes) != list(self.shapes.get(name, sizes)):
                here, there = ("x".join(map(str, dims)) for dims in (sizes, self.shapes[name]))
                raise UsageError(
                    f"{flag} {name}:{here}, but the model was translated with --shapes {name}:{there}.",
                    f"A DLA has one size: leave {flag} out, or translate the model with it.",
                )
        return asked or self.shapes

    def sizes_to_build(self, asked: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[int]]:
        """The same for --opt_shapes, which TensorRT accepts for open sizes."""
        if asked:
            return self.sizes_for(asked, "--opt_shapes")
        return {name: sizes for name, sizes in self.shapes.items() if name in self.open}


def _dotted(platform: Platform) -> str:
    return ".".join(map(str, platform.tensorrt))
