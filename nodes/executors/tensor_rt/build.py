"""Builds an engine from an ONNX subnet with TensorRT or TensorRT-RTX.

**What has been run**: with TensorRT-RTX 1.7 everything here, on machines without a GPU: its engines
are built, and nothing has ever been computed with one. **What has not**: the branches for TensorRT,
which builds only where a GPU is. They follow its documented API and the names in the wheels of its
bindings (10.16, 11.4).

The engine's tensors are named by their place (`input_name`, `output_name`) and not as in the model:
TensorRT renames an input that is also an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.cuda import Cuda
from nodes.executors.onnx.signature import (
    DeclaredTensor,
    layer_name,
    read_signature,
    unsigned_quantiser,
)
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.tensor_rt.layout import (
    ParserError,
    builder_failure,
    check_dtype,
    check_quantisers,
    input_name,
    output_name,
    parser_failure,
    tensor_spec,
    timing_key,
    wants_fp16_flag,
)
from nodes.executors.tensor_rt.library import (
    Capability,
    Library,
    import_tensorrt,
    import_tensorrt_rtx,
    logger,
)

ENGINE = "engine.plan"
"""The serialised engine's name in its entry of the cache."""

_TIMINGS = "timings"


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """A serialised engine, and the model's inputs and outputs by name, in the model's order."""

    content: memoryview
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    timings: memoryview
    """How long kernels took in this and earlier builds by TensorRT; empty with TensorRT-RTX."""


def build(job: Job, options: LoadOptions, cache: PreparedFiles) -> None:
    """Build an engine and store it in `cache` under the job's key.

    With a target, "MAJOR.MINOR", TensorRT-RTX builds it for GPUs of this compute capability;
    without one TensorRT builds it for this machine's GPU. Raises ExecutorError as `build_engine`
    does.
    """
    if job.target:
        major, minor = map(int, job.target.split("."))
        engine = build_engine(import_tensorrt_rtx(), job, options, (major, minor))
        _keep(cache, job.key, ENGINE, engine.content)
        return
    library = import_tensorrt()
    timings = timing_key(library.label, Cuda().gpu())
    engine = build_engine(library, job, options, None, _read_timings(cache, timings))
    _keep(cache, job.key, ENGINE, engine.content)
    cache.discard(timings)
    _keep(cache, timings, _TIMINGS, engine.timings)


def build_engine(
    library: Library,
    job: Job,
    options: LoadOptions,
    capability: Capability | None,
    timings: bytes = b"",
) -> BuiltEngine:
    """Build an engine: by TensorRT-RTX for a compute capability, by TensorRT for this GPU.

    It computes in float32 without TF32 unless `options.fp16`, so that results agree with the model
    to 1e-4. Raises ExecutorError if TensorRT cannot build it or has no such dtype as an input or
    output, and names the layer or tensor where TensorRT states it.
    """
    trt, log = library.api, logger(library.api)
    fp16 = wants_fp16_flag(job.subnet, library.label, options, has_flag=library.has_fp16_flag)
    builder = trt.Builder(log)
    network = builder.create_network(0)
    inputs, outputs = _parse(library, log, network, job)

    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    config.clear_flag(trt.BuilderFlag.TF32)
    if fp16:
        config.set_flag(trt.BuilderFlag.FP16)
    if capability is None:
        config.set_timing_cache(config.create_timing_cache(timings), False)
    else:
        config.num_compute_capabilities = 1
        config.set_compute_capability(library.compute_capability(capability), 0)

    log.text = ""
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise ExecutorError(builder_failure(job.subnet, library.label, log.text))
    measured = config.get_timing_cache().serialize() if capability is None else b""
    return BuiltEngine(memoryview(engine), inputs, outputs, memoryview(measured))


def _parse(
    library: Library, log: Any, network: Any, job: Job
) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """Fill the network from the job's file; returns its inputs and outputs."""
    signature = read_signature(job.graph)
    for tensor in (*signature.inputs, *signature.outputs):
        check_dtype(job.subnet, library.label, tensor)
    check_quantisers(job.subnet, library.label, unsigned_quantiser(job.graph))
    parser = library.api.OnnxParser(network, log)
    # Parsing the bytes instead would not find the weights next to the file.
    if not parser.parse_from_file(str(job.graph)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise ExecutorError(
            parser_failure(
                job.subnet,
                library.label,
                [_parser_error(error, job.graph) for error in errors],
            )
        )
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    specs = (
        _specs(library, job, signature.inputs, inputs),
        _specs(library, job, signature.outputs, outputs),
    )
    for index, tensor in enumerate(inputs):
        tensor.name = input_name(index)
    for index, tensor in enumerate(outputs):
        tensor.name = output_name(index)
    return specs


def _parser_error(error: Any, graph: Path) -> ParserError:
    node = error.node_name() or layer_name(graph, error.node())
    return ParserError(node, error.node_operator(), error.desc())


def _specs(
    library: Library, job: Job, declared: Sequence[DeclaredTensor], tensors: Sequence[Any]
) -> dict[str, TensorSpec]:
    found = [
        tensor_spec(job.subnet, tensor.name, tensor.dtype.name, tuple(tensor.shape))
        for tensor in tensors
    ]
    pairs = list(zip(declared, found, strict=True))
    if any(tensor.dtype not in ("", spec.dtype) for tensor, spec in pairs):
        raise ExecutorError(
            f"subnet {job.subnet}: {library.label} would take or return "
            f"{', '.join(spec.dtype for spec in found)} where the file declares "
            f"{', '.join(tensor.dtype for tensor in declared)}; use the executor `onnxruntime` on "
            "this node"
        )
    return {tensor.name: spec for tensor, spec in pairs}


def _read_timings(cache: PreparedFiles, key: str) -> bytes:
    entry: Path | None = cache.find(key)
    return (entry / _TIMINGS).read_bytes() if entry else b""


def _keep(cache: PreparedFiles, key: str, name: str, content: memoryview) -> None:
    with cache.making(key) as folder:
        (folder / name).write_bytes(content)
