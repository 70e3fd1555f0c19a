"""Runs subnets with ONNX Runtime on another device than the CPU, or by another provider.

A subnet is loaded as it is, because what `nodes.executors.onnx.optimise` writes is specific to
ONNX Runtime's own CPU kernels. Nothing is kept on disk but the note that a child process has tried
the subnet out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.file import inspect
from nodes.executors.onnx.providers.session import check_available, open_session, target_of
from nodes.executors.onnx.providers.table import Provider
from nodes.executors.onnx.runtime import OnnxRuntimeSubnet, OrtExecutor
from nodes.executors.onnx.sessions import allows_spinning
from nodes.executors.preparing.entries import Job, PreparedFiles, entry_key
from nodes.host.processor import processor_kind

_FORMAT = 2
"""A number to increase whenever a trial would try something else for the same subnet."""


class ProviderExecutor(OrtExecutor):
    """Execution providers of ONNX Runtime on one device of this machine."""

    def __init__(
        self, cache: Path, device: str, providers: Sequence[Provider], room: Room | None = None
    ) -> None:
        """Compute with the first of `providers`, and with the others what it does not take.

        `room` bounds the cache if given. Files that ONNX Runtime itself keeps for TensorRT count
        towards it, but are not bounded while they are written. Raises ExecutorError if ONNX Runtime
        is not installed, or was built without the first provider.
        """
        super().__init__(
            "onnxruntime-provider",
            "nodes.executors.onnx.providers.session:try_out",
            PreparedFiles(cache, room),
            uses_driver=device != "cpu",
        )
        check_available(self._ort, providers[0])
        self._providers, self._device = tuple(providers), device

    def describe(self) -> str:
        """Return the engine's name, its version and where it computes."""
        names = ", ".join(provider.name for provider in self._providers)
        return f"ONNX Runtime {self._ort.__version__} ({names} on {self._device})"

    def load(self, graph: Path, options: LoadOptions) -> OnnxRuntimeSubnet:
        """Load a subnet, after a child has tried it out."""
        file = inspect(graph)
        self._child.prepare([self.job(graph, options)], options, lambda _: None)
        if self._run_options.terminate:
            raise ExecutorError(f"subnet {file.name}: loading it was stopped")
        session = open_session(
            self._ort,
            file.name,
            graph,
            options,
            self._providers,
            self._device,
            self._cache.root,
        )
        return self._subnet(file, session)

    def job(self, graph: Path, options: LoadOptions) -> Job:
        """See `PreparingExecutor.job`."""
        allows_spinning(options)  # its value may be wrong
        file = inspect(graph)
        target = target_of(self._providers, self._device)
        facts = (_FORMAT, self._ort.__version__, processor_kind(), target, options.precision)
        key = entry_key("provider", file.digest, *facts)
        return Job(file.path, file.name, key, source_bytes=file.size_bytes, target=target)
