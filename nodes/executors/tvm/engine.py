"""TVM as an engine: whether it is installed, and the processor, its only device here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import Executor
from nodes.executors.tvm.compiled import TUNING
from nodes.protocol.messages import DeviceOffer, OptionOffer


class TvmEngine:
    """TVM on the CPU."""

    options: tuple[OptionOffer, ...] = (TUNING,)

    def missing(self) -> str | None:
        """Return what to install, or None."""
        if any(find_spec(module) is None for module in ("tvm", "tvm_ffi", "onnx")):
            return "it is not installed: `pip install 'csdf-edge[tvm]'`"
        return None

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the CPU."""
        return (DeviceOffer("cpu"),)

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:  # noqa: ARG002
        """Open TVM on the CPU, its only device."""
        from nodes.executors.tvm.executor import TvmExecutor  # noqa: PLC0415

        return TvmExecutor(cache, room)
