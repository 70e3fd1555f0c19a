"""Finds TensorRT: the module `tensorrt`, or TensorRT for RTX, the module `tensorrt_rtx`.

Both have the same classes. They differ in what this package has to know:

- **TensorRT** builds engines on the GPU that will run them, and for no other.
- **TensorRT-RTX** builds for any GPU of a compute capability that it supports, also on a machine
  without a GPU; kernels are compiled on the GPU when the engine is loaded. It supports neither
  Jetsons (8.7) nor data-centre GPUs such as the H100 (9.0), its networks are strongly typed, and
  its timing caches do nothing and warn.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from nodes.executors.base import ExecutorError

_RTX = "TensorRT-RTX"

Capability: TypeAlias = tuple[int, int]
"""A compute capability: major and minor version."""


@dataclass(frozen=True, slots=True)
class Library:
    """An installed TensorRT: its Python module and the name of the product."""

    api: Any
    name: str

    @property
    def label(self) -> str:
        """Return name and version, for example `TensorRT-RTX 1.7.1.116`."""
        return f"{self.name} {self.api.__version__}"

    @property
    def builds_for_any_gpu(self) -> bool:
        """Return whether this is TensorRT-RTX; see the module's docstring."""
        return self.name == _RTX

    @property
    def has_fp16_flag(self) -> bool:
        """Return whether the builder chooses precisions.

        TensorRT does up to version 10. From 11 on, and in TensorRT-RTX, networks are strongly
        typed: the model's own types decide.
        """
        return hasattr(self.api.BuilderFlag, "FP16")

    def compute_capability(self, capability: Capability) -> Any:
        """Return TensorRT-RTX's name of a compute capability; raises ExecutorError without one."""
        known = self.api.ComputeCapability
        major, minor = capability
        member = getattr(known, f"SM{major}{minor}", None)
        if member is None:
            names = sorted((name for name in dir(known) if name.startswith("SM")), key=_number)
            shown = ", ".join(f"{number // 10}.{number % 10}" for number in map(_number, names))
            raise ExecutorError(
                f"{self.label} cannot build engines for compute capability {major}.{minor}, only "
                f"for {shown}; install TensorRT (`pip install tensorrt`, on a Jetson with JetPack) "
                "or use the executor `onnxruntime` on this node"
            )
        return member


def import_tensorrt() -> Library:
    """Return TensorRT where it is installed, else TensorRT-RTX.

    Raises ExecutorError naming the wheels if neither can be imported.
    """
    try:
        import tensorrt  # noqa: PLC0415
    except (ImportError, OSError) as error:  # OSError: its libraries are missing
        try:
            return import_tensorrt_rtx()
        except ExecutorError:
            raise ExecutorError(
                "TensorRT is not installed: `pip install tensorrt cuda-python`, or on a PC with an "
                "RTX GPU `pip install tensorrt-rtx-cu12 cuda-python`; on a Jetson it comes with "
                f"JetPack ({error})"
            ) from error
    return Library(tensorrt, "TensorRT")


def import_tensorrt_rtx() -> Library:
    """Return TensorRT-RTX; raises ExecutorError naming the wheel to install."""
    try:
        import tensorrt_rtx  # noqa: PLC0415
    except (ImportError, OSError) as error:
        raise ExecutorError(
            f"TensorRT-RTX is not installed: `pip install tensorrt-rtx-cu12` ({error})"
        ) from error
    return Library(tensorrt_rtx, _RTX)


@cache
def logger(api: Any) -> Any:
    """Return the process's logger, which prints nothing.

    Its `text` is the first error after it was last emptied; those that follow are consequences.
    There is one logger, since TensorRT ignores others while anything uses the first.
    """

    class FirstError(api.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            api.ILogger.__init__(self)
            self.text = ""

        def log(self, severity: Any, msg: str) -> None:
            levels = api.ILogger.Severity
            if severity in (levels.INTERNAL_ERROR, levels.ERROR) and not self.text:
                self.text = " ".join(msg.split())

    return FirstError()


def _number(name: str) -> int:
    return int(name.removeprefix("SM"))


def main() -> None:
    """Print why TensorRT-RTX cannot build for the compute capability MAJOR MINOR, if it cannot."""
    major, minor = map(int, sys.argv[1:])
    try:
        import_tensorrt_rtx().compute_capability((major, minor))
    except ExecutorError as error:
        print(error)  # noqa: T201


if __name__ == "__main__":
    main()
