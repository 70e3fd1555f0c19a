"""Builds a TensorRT engine from an ONNX subnet, for the GPU of this machine.

It is written against the documented Python API of TensorRT 10 and 11 and the names in the wheels of
their bindings (10.16, 11.4). `nodes.executors.tensor_rt.executor` says which parts have been run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.cuda import Cuda
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.tensor_rt.layout import (
    ParserError,
    parser_failure,
    tensor_spec,
    timing_key,
    wants_fp16_flag,
)

ENGINE = "engine.plan"
"""The serialised engine's name in its entry of the cache."""

_TIMINGS = "timings"


def import_tensorrt() -> Any:
    """Return the `tensorrt` module; raises ExecutorError naming the wheel to install."""
    try:
        import tensorrt  # noqa: PLC0415
    except (ImportError, OSError) as error:  # OSError: its libraries are missing
        raise ExecutorError(
            "TensorRT is not installed: `pip install tensorrt cuda-python`; on a Jetson it "
            f"comes with JetPack ({error})"
        ) from error
    return tensorrt


def make_logger(trt: Any) -> Any:
    """Return a logger that prints nothing and keeps the last error in its `text`."""

    class LastError(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.text = ""

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.text = " ".join(msg.split())

    return LastError()


def build(job: Job, options: LoadOptions, cache: PreparedFiles) -> None:
    """Build an engine and store it in `cache` under the job's key.

    It computes in float32 without TF32 unless `options.fp16`, so that results agree with the model
    to 1e-4. Raises ExecutorError naming the operator if TensorRT cannot build it.
    """
    trt = import_tensorrt()
    version = str(trt.__version__)
    fp16 = wants_fp16_flag(job.subnet, version, options)
    logger = make_logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    _parse(trt, logger, network, job)

    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    config.clear_flag(trt.BuilderFlag.TF32)
    if fp16:
        config.set_flag(trt.BuilderFlag.FP16)
    timings = timing_key(version, Cuda().gpu())
    config.set_timing_cache(config.create_timing_cache(_read_timings(cache, timings)), False)

    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise ExecutorError(
            f"subnet {job.subnet}: TensorRT {version} cannot build an engine from it: "
            f"{logger.text or 'it does not say why'}; raise the workspace limit or use the "
            "executor `onnxruntime` on this node"
        )
    with cache.making(job.key) as folder:
        (folder / ENGINE).write_bytes(memoryview(engine))
    cache.discard(timings)
    with cache.making(timings) as folder:
        (folder / _TIMINGS).write_bytes(memoryview(config.get_timing_cache().serialize()))


def _parse(trt: Any, logger: Any, network: Any, job: Job) -> None:
    parser = trt.OnnxParser(network, logger)
    # Parsing the bytes instead would not find the weights beside the file.
    if not parser.parse_from_file(str(job.graph)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise ExecutorError(
            parser_failure(
                job.subnet,
                str(trt.__version__),
                [ParserError(e.node_name(), e.node_operator(), e.desc()) for e in errors],
            )
        )
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        tensor_spec(job.subnet, tensor.name, tensor.dtype.name, tuple(tensor.shape))


def _read_timings(cache: PreparedFiles, key: str) -> bytes:
    entry: Path | None = cache.find(key)
    return (entry / _TIMINGS).read_bytes() if entry else b""
