"""OpenVINO as an engine, with about the memory that is predicted for ONNX Runtime.

OpenVINO compiles a subnet in a fifth of a second, or a few seconds for the largest, but cannot keep
the result: the blob that it exports holds the weights as they are in the model, takes as long to
import, and then the same memory (ResNet50: 0.2 s either way, 115 and 116 MB). So nothing is kept on
disk but the note that the subnet was tried out (`try_out` in `subnet`), and an agent
compiles the subnet itself.

OpenVINO's memory on the CPU, and how this module limits it:

- Most weights are copied into another layout, and these copies are anonymous memory. The mapped
  weights that they were made from are not read again, so their pages are dropped while the subnet
  loads.
- Blocks that only loading needs would leave holes in the heap. They are mapped apart while a subnet
  loads (`nodes.host.heap`), and the first run takes place then as well.
- Each compiled model has memory for its own activations. It is freed after each run where several
  subnets are loaded, so that they hold the largest need of any of them and not the sum of all.
"""

from __future__ import annotations

from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.file import inspect
from nodes.executors.openvino.compiler import Compiler
from nodes.executors.openvino.pages import pages_dropped
from nodes.executors.openvino.subnet import OpenVinoSubnet, Siblings
from nodes.executors.preparing.entries import Job, PreparedFiles, entry_key
from nodes.executors.preparing.executor import PreparingExecutor
from nodes.host.heap import give_back_free_memory, large_blocks_apart
from nodes.host.processor import processor_kind

_FORMAT = 1
"""A number to increase whenever a trial would try something else for the same subnet."""


class OpenVinoExecutor(PreparingExecutor):
    """OpenVINO on this machine's processor, keeping notes of its trials under `cache`."""

    def __init__(self, cache: Path, room: Room | None = None) -> None:
        """Open OpenVINO; `room` bounds the cache if given.

        Raises ExecutorError if OpenVINO is not installed.
        """
        self._compiler = Compiler()
        super().__init__(
            "openvino", "nodes.executors.openvino.subnet:try_out", PreparedFiles(cache, room)
        )
        self._siblings = Siblings()

    def describe(self) -> str:
        """Return the engine's name, its version and where it computes."""
        return f"OpenVINO {self._compiler.version} (CPU)"

    def load(self, graph: Path, options: LoadOptions) -> OpenVinoSubnet:
        """Compile a subnet and run it once, after a child has tried that out."""
        file = inspect(graph)
        self._child.prepare([self.job(graph, options)], options, lambda _: None)
        if self._siblings.is_interrupted:
            raise ExecutorError(f"subnet {file.name}: loading it was stopped")
        with large_blocks_apart(), pages_dropped((graph, *file.external)):
            subnet = OpenVinoSubnet(self._compiler, file.name, graph, options, self._siblings)
            try:
                subnet.try_out()
            except ExecutorError:
                subnet.close()
                raise
        give_back_free_memory()
        return subnet

    def job(self, graph: Path, options: LoadOptions) -> Job:
        """See `PreparingExecutor.job`."""
        file = inspect(graph)
        facts = (_FORMAT, self._compiler.version, processor_kind(), options.fp16)
        key = entry_key("openvino", file.digest, *facts)
        return Job(file.path, file.name, key, source_bytes=file.size_bytes)

    def interrupt(self) -> None:
        """End the child process, cancel the present runs, and let none begin until `resume`.

        A run ends before its next layer. Compiling a subnet that a child has tried out, and a loop
        within a network, are not interrupted.
        """
        self._siblings.interrupt()
        super().interrupt()

    def resume(self) -> None:
        """Allow child processes and runs again."""
        self._siblings.resume()
        super().resume()
