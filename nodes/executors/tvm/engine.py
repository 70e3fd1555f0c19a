"""TVM as an engine: whether it is installed, and the processor, its only device here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import Executor
from nodes.protocol.messages import DeviceOffer


class TvmEngine:
    """TVM on the CPU."""

    options: tuple[str, ...] = ("tuning_s",)

    def missing(self) -> str | None:
        """Return what to install, or None."""
        return tvm_missing()

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the CPU."""
        return (DeviceOffer("cpu"),)

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:  # noqa: ARG002
        """Open TVM on the CPU, its only device."""
        from nodes.executors.tvm.executor import TvmExecutor  # noqa: PLC0415

        return TvmExecutor(cache, room)


def tvm_missing() -> str | None:
    """Return why TVM cannot be used here and what to do about it; None if it can."""
    missing = [
        package
        for module, package in (("tvm", "apache-tvm"), ("tvm_ffi", "apache-tvm"), ("onnx", "onnx"))
        if find_spec(module) is None
    ]
    if not missing:
        return None
    return f"it is not installed: `pip install {' '.join(dict.fromkeys(missing))}`"
