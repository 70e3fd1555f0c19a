"""Builds engines for one GPU in a child process, and keeps them in the cache.

With TensorRT-RTX this needs no GPU, so tests and `nodes.executors.tensor_rt.check` run all of it.
"""

from __future__ import annotations

from pathlib import Path

from nodes.executors.base import LoadOptions
from nodes.executors.cuda import Gpu
from nodes.executors.onnx.file import inspect
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.executor import PreparingExecutor
from nodes.executors.tensor_rt.build import ENGINE
from nodes.executors.tensor_rt.layout import check_operators, engine_key, wants_fp16_flag
from nodes.executors.tensor_rt.library import Library


class EngineCache(PreparingExecutor):
    """The engines of subnets for the GPU `gpu`, under the cache's folder."""

    def __init__(self, library: Library, gpu: Gpu, cache: PreparedFiles) -> None:
        """Raise ExecutorError if TensorRT-RTX does not support the GPU."""
        self._library = library
        self._gpu = gpu
        # TensorRT-RTX builds for the GPU that it is given, and needs no driver for that.
        super().__init__(
            "tensorrt",
            "nodes.executors.tensor_rt.build:build",
            cache,
            uses_driver=not library.builds_for_any_gpu,
        )
        self._target = ""
        if library.builds_for_any_gpu:
            library.compute_capability(gpu.capability)
            self._target = ".".join(map(str, gpu.capability))

    def job(self, graph: Path, options: LoadOptions) -> Job:
        """See `PreparingExecutor.job`."""
        file = inspect(graph)
        label, has_flag = self._library.label, self._library.has_fp16_flag
        check_operators(file.name, label, file.contrib_layer)
        wants_fp16_flag(file.name, label, options, has_flag=has_flag)
        key = engine_key(file.digest, label, self._gpu, options)
        return Job(file.path, file.name, key, source_bytes=file.size_bytes, target=self._target)

    def find(self, job: Job) -> Path | None:
        """Return the file of an engine in the cache; None without one."""
        entry = self._cache.find(job.key)
        return entry / ENGINE if entry else None
