"""Runs subnets with ONNX Runtime on another device than the CPU, or by another provider.

A subnet is loaded as it is, because what `nodes.executors.onnx.optimise` writes is specific to
ONNX Runtime's own CPU kernels. Nothing is kept on disk but the note that a child process has tried
the subnet out.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import ExecutorError, LoadOptions, OnPrepared
from nodes.executors.onnx.binding import run_options
from nodes.executors.onnx.file import OnnxFile, inspect
from nodes.executors.onnx.providers.session import check_available, open_session, target_of
from nodes.executors.onnx.providers.table import Provider
from nodes.executors.onnx.runtime import OnnxRuntimeSubnet
from nodes.executors.onnx.sessions import allows_spinning, import_onnxruntime, shrink_arena
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess
from nodes.host.heap import give_back_free_memory
from nodes.host.processor import processor_kind

_FORMAT = 1
"""A number to increase whenever a trial would try something else for the same subnet."""


class ProviderExecutor:
    """Execution providers of ONNX Runtime on one device of this machine."""

    def __init__(
        self, cache: Path, device: str, providers: Sequence[Provider], room: Room | None = None
    ) -> None:
        """Compute with the first of `providers`, and with the others what it does not take.

        `room` bounds the cache if given. Files that ONNX Runtime itself keeps for TensorRT count
        towards it, but are not bounded while they are written. Raises ExecutorError if ONNX Runtime
        is not installed, or was built without the first provider.
        """
        self._ort = import_onnxruntime()
        check_available(self._ort, providers[0])
        self._providers, self._device = tuple(providers), device
        self._run_options = run_options(self._ort)
        self._cache = PreparedFiles(cache, room)
        self._child = PreparingProcess(
            "onnxruntime-provider", self._cache, uses_driver=device != "cpu"
        )
        self._loaded: set[OnnxRuntimeSubnet] = set()

    def describe(self) -> str:
        """Return the engine's name, its version and where it computes."""
        names = ", ".join(provider.name for provider in self._providers)
        return f"ONNX Runtime {self._ort.__version__} ({names} on {self._device})"

    def prepare(
        self, graphs: Sequence[Path], options: LoadOptions, on_done: OnPrepared | None = None
    ) -> None:
        """Try out those of `graphs` that the cache has no note of, in one child process."""
        done = on_done or (lambda _: None)
        allows_spinning(options)  # its value may be wrong
        jobs = [self._job(inspect(graph), options) for graph in graphs]
        self._child.prepare(jobs, options, lambda job: done(job.graph))

    def load(self, graph: Path, options: LoadOptions) -> OnnxRuntimeSubnet:
        """Load a subnet, after a child has tried it out."""
        allows_spinning(options)
        file = inspect(graph)
        self._child.prepare([self._job(file, options)], options, lambda _: None)
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
        subnet = OnnxRuntimeSubnet(self._ort, file, session, self._run_options, self._forget)
        self._loaded.add(subnet)
        return subnet

    def _job(self, file: OnnxFile, options: LoadOptions) -> Job:
        target = target_of(self._providers, self._device)
        facts = (_FORMAT, self._ort.__version__, processor_kind(), target, options.precision)
        key = f"provider-{file.digest}-{sha256(repr(facts).encode()).hexdigest()[:16]}"
        size = sum(path.stat().st_size for path in (file.path, *file.external))
        return Job(file.path, file.name, key, source_bytes=size, target=target)

    def interrupt(self) -> None:
        """End the child process and the run under way, and let none begin until `resume`.

        ONNX Runtime checks before each layer; a provider may have made one of many.
        """
        self._run_options.terminate = True
        self._child.interrupt()

    def resume(self) -> None:
        """Allow child processes and runs again."""
        self._run_options.terminate = False
        self._child.resume()

    def close(self) -> None:
        """End the child process if one runs."""
        self._child.close()

    def _forget(self, subnet: OnnxRuntimeSubnet) -> None:
        """Forget a closed subnet; after the last one, free the memory that all shared."""
        self._loaded.discard(subnet)
        if not self._loaded:
            shrink_arena(self._ort)
            give_back_free_memory()
