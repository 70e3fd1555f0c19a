"""Opens sessions with execution providers, and tries subnets out with them.

ONNX Runtime computes on the CPU if a provider cannot be opened, and says so only in its log. Here
that is an error.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.faulty_optimizers import faulty_optimizers
from nodes.executors.onnx.optimise import run_on_synthetic_inputs
from nodes.executors.onnx.providers.table import BY_WORD, COUNTED_BY_CUDA, Provider, arguments
from nodes.executors.onnx.sessions import engine_errors, import_onnxruntime, loading_options
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.host.heap import large_blocks_apart


def open_session(
    ort: Any,
    subnet: str,
    graph: Path,
    options: LoadOptions,
    providers: Sequence[Provider],
    device: str,
    cache: Path,
) -> Any:
    """Return a session of the ONNX file `graph`, which has been examined.

    The first of `providers` must be there; others may be. Raises ExecutorError if the session
    cannot be opened with it, or the subnet not loaded.
    """
    check_available(ort, providers[0])
    load_cuda_libraries(ort, providers[0])
    settings = loading_options(ort, options, optimised=False)
    if providers[0].optimises:
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with engine_errors(ort, subnet, "load"), large_blocks_apart():
        session = ort.InferenceSession(
            str(graph),
            settings,
            providers=arguments(available(ort, providers), device, options, cache),
            disabled_optimizers=faulty_optimizers(graph),
            enable_fallback=0,
        )
    if providers[0].full_name not in session.get_providers():
        raise ExecutorError(
            f"subnet {subnet}: ONNX Runtime {ort.__version__} could not open its provider "
            f"{providers[0].name} on {device} and would compute on the CPU instead; check the "
            "device's driver and libraries, or give the node another `device` or `engine`"
        )
    session.disable_fallback()
    return session


def available(ort: Any, providers: Sequence[Provider]) -> list[Provider]:
    """Return those of `providers` that the installed ONNX Runtime was built with."""
    names = ort.get_available_providers()
    return [provider for provider in providers if provider.full_name in names]


def check_available(ort: Any, provider: Provider) -> None:
    """Raise ExecutorError, saying what to install, if the wheel lacks a provider."""
    if not available(ort, [provider]):
        raise ExecutorError(
            f"ONNX Runtime {ort.__version__} as it is installed has no provider {provider.name}: "
            f"{provider.remedy}"
        )


def load_cuda_libraries(ort: Any, provider: Provider) -> None:
    """Load the CUDA libraries that pip has installed, if `provider` computes by CUDA.

    ONNX Runtime's extras `cuda` and `cudnn` put them into site-packages, where the dynamic linker
    does not look. Libraries of the system are found without this. ONNX Runtime prints the libraries
    that it does not find, and the providers' own error repeats that.
    """
    by_cuda = any(kind.files == COUNTED_BY_CUDA for kind in provider.kinds)
    if by_cuda and hasattr(ort, "preload_dlls"):  # ONNX Runtime 1.21 and later
        with contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls()


def target_of(providers: Sequence[Provider], device: str) -> str:
    """Return what `Job.target` says to `try_out`."""
    return f"{'+'.join(provider.word for provider in providers)} {device}"


def try_out(job: Job, options: LoadOptions, entries: PreparedFiles) -> None:
    """Run a subnet once on synthetic inputs, in the child process that prepares subnets.

    An empty entry says that it passed; a session cannot be kept. Raises ExecutorError otherwise.
    """
    words, _, device = job.target.partition(" ")
    providers = [BY_WORD[word] for word in words.split("+")]
    ort = import_onnxruntime()
    with entries.making(job.key):
        session = open_session(ort, job.subnet, job.graph, options, providers, device, entries.root)
        run_on_synthetic_inputs(ort, job.subnet, session)
