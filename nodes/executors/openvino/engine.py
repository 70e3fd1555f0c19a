"""OpenVINO as an engine: whether it is installed, and the processor, its only device here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.core.engines import BUILT_IN_MEMORY
from nodes.executors.base import Executor
from nodes.host.processor import processor_kind
from nodes.protocol.messages import DeviceOffer, OptionOffer

_HALF_PRECISION = frozenset({"avx512_fp16", "asimdhp"})
"""The instructions, as Linux calls them, with which OpenVINO computes in half precision."""


class OpenVinoEngine:
    """OpenVINO on the CPU."""

    options: tuple[OptionOffer, ...] = ()
    memory = BUILT_IN_MEMORY["openvino"]

    def missing(self) -> str | None:
        """Return what to install, or None."""
        if find_spec("openvino") is None:
            return "it is not installed: `pip install 'csdf-edge[openvino]'`"
        return None

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the CPU, in half precision only where the processor computes in it."""
        has_half = not _HALF_PRECISION.isdisjoint(processor_kind().split())
        return (DeviceOffer("cpu", ("fp32", "fp16") if has_half else ("fp32",)),)

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:  # noqa: ARG002
        """Open OpenVINO on the CPU, its only device."""
        from nodes.executors.openvino.executor import OpenVinoExecutor  # noqa: PLC0415

        return OpenVinoExecutor(cache, room)
