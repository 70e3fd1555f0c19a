"""ONNX Runtime as several engines: itself, and one for each of its execution providers.

`onnxruntime` is ONNX Runtime on the CPU, and on NVIDIA GPUs by its provider CUDA. Each other
provider is an engine `onnxruntime-WORD` (`nodes.executors.onnx.providers.table`), because each has
its own devices, precisions and packages. `device: gpu` finds whichever of them has one.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import Executor
from nodes.executors.onnx.providers.probing import devices_of, is_in_wheel, memory_on
from nodes.executors.onnx.providers.table import BY_WORD, CUDA, PROVIDERS, TENSORRT, Provider
from nodes.executors.onnx.sessions import SPINNING
from nodes.executors.preparing.entries import PreparedFiles
from nodes.host.processor import channels_per_block
from nodes.protocol.messages import DeviceOffer, EngineMemory, OptionOffer

log = logging.getLogger("node-agent")

PREFIX = "onnxruntime-"
"""How the names of engines begin that are execution providers."""


class OnnxRuntimeEngine:
    """ONNX Runtime on the CPU, and on GPUs where its provider CUDA computes."""

    options: tuple[OptionOffer, ...] = (SPINNING,)

    def __init__(self, notes: PreparedFiles | None = None) -> None:
        """Keep the results of tests of devices in `notes`."""
        self._notes = notes

    def missing(self) -> str | None:
        """Return what to install, or None."""
        if find_spec("onnxruntime") is None:
            return (
                "it is not installed: `pip install onnxruntime`, on a GPU `pip install "
                "onnxruntime-gpu`, on a Jetson the onnxruntime-gpu wheel of its JetPack"
            )
        return None

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the GPUs on which CUDA computes, then the CPU; log why it does not on others."""
        cpu = DeviceOffer("cpu", block=channels_per_block())
        if not is_in_wheel(CUDA):
            return (cpu,)
        gpus, why = devices_of(CUDA, self._notes)
        if why:
            log.warning("ONNX Runtime's provider CUDA is not offered: %s", why)
        return (*gpus, cpu)

    def memory_on(self, device: str) -> EngineMemory:
        """Return the memory that an agent takes which computes on `device`."""
        return memory_on(CUDA, device, self._notes) or EngineMemory()

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:
        """Open ONNX Runtime on a device."""
        if device != "cpu":
            return _open_provider(cache, device, (CUDA,), room)
        from nodes.executors.onnx.runtime import OnnxRuntimeExecutor  # noqa: PLC0415 - it is large

        return OnnxRuntimeExecutor(cache, room=room)


class ProviderEngine:
    """One of ONNX Runtime's execution providers, on the devices where it computes."""

    options: tuple[OptionOffer, ...] = (SPINNING,)

    def __init__(self, provider: Provider, notes: PreparedFiles | None = None) -> None:
        """Keep the results of tests of devices in `notes`."""
        self._provider = provider
        self._notes = notes

    def missing(self) -> str | None:
        """Return why it cannot be used and what to install, or None."""
        if self._provider.refused:
            return f"csdf-edge does not use it: {self._provider.refused}"
        offers, why = devices_of(self._provider, self._notes)
        return None if offers else why

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the devices on which it has computed a test network."""
        return devices_of(self._provider, self._notes)[0]

    def memory_on(self, device: str) -> EngineMemory:
        """Return the memory that an agent takes which computes on `device`."""
        return memory_on(self._provider, device, self._notes) or EngineMemory()

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:
        """Open ONNX Runtime with the provider on a device."""
        return _open_provider(cache, device, (self._provider,), room)


def provider_names() -> tuple[str, ...]:
    """Return the names of the engines whose providers show in the installed wheel's files."""
    return tuple(
        PREFIX + provider.word
        for provider in PROVIDERS
        if provider not in (CUDA, TENSORRT) and provider.kinds and is_in_wheel(provider)
    )


def provider_called(engine: str) -> Provider | None:
    """Return the provider that an engine's name stands for, installed or not; None without one."""
    provider = BY_WORD.get(engine.removeprefix(PREFIX)) if engine.startswith(PREFIX) else None
    return None if provider in (CUDA, TENSORRT) else provider


def open_tensorrt(cache: Path, device: str, room: Room | None) -> Executor:
    """Open ONNX Runtime's provider TensorRT, with CUDA for what it does not take."""
    return _open_provider(cache, device, (TENSORRT, CUDA), room)


def _open_provider(
    cache: Path, device: str, providers: tuple[Provider, ...], room: Room | None
) -> Executor:
    from nodes.executors.onnx.providers.executor import ProviderExecutor  # noqa: PLC0415

    return ProviderExecutor(cache, device, providers, room)
