"""Optimises a subnet with ONNX Runtime for this CPU, and writes its weights to a separate file.

An agent loads the result with optimisation off (`nodes.executors.onnx.sessions`), so that its
weights stay pages of the file.

`optimise` rearranges the weights of convolutions and packs those of matrices. That takes their
bytes again, and a copy of the largest one when it is written. `optimise_lightly` leaves weights as
they are, and then ONNX Runtime copies only one at a time; ResNet50 computes 21 % more slowly that
way (91 instead of 75 ms).

Measured with ONNX Runtime 1.31, bytes that no file backs, above a process that has imported it:
ResNet50 (102 MB of weights, the largest 9 MB) 113 MB, lightly 13 MB; ResNet152 (240 MB) 250 MB;
VGG16 (553 MB, the largest 411 MB) 944 MB, lightly 403 MB.

An engine that crashes takes its process with it. Both functions therefore load the result as an
agent will load it and run it once on synthetic inputs, in the child process that prepares subnets
and before the result can be found in the cache. A crash then ends only this child.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.blocking import with_pools, without_pools
from nodes.executors.onnx.borders import check_block, with_blocked_borders
from nodes.executors.onnx.file import OnnxFile
from nodes.executors.onnx.packing import UNPACKED, multiplies_single_rows, packs_others, realign
from nodes.executors.onnx.schema import TENSOR, external_entries, walk
from nodes.executors.onnx.sessions import (
    can_find_weights,
    cpu_session,
    engine_errors,
    import_onnxruntime,
    keep_packing_off,
    light_optimising_options,
    loading_options,
    optimising_options,
    shrink_arena,
    tensor_specs,
)
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.synthetic_inputs import synthetic_inputs, trial_on

MODEL = "model.onnx"
"""The optimised model's name in its entry of the cache."""

_WEIGHTS = "model.weights"

OWN_BYTES = 40 << 20
"""Memory of the process that optimises, without weights: the interpreter and ONNX Runtime 24 MB,
optimising 16 MB.
"""

_LARGEST_EXAMINED_BYTES = 64 << 20
"""The largest model file that is read into memory; subnets keep their weights in other files."""


def needed_bytes(file: OnnxFile) -> int:
    """Return about how much memory `optimise` takes; weights inside the model file do not count."""
    weights = sum(path.stat().st_size for path in file.external)
    return OWN_BYTES + weights + weights // 20 + max(_weight_sizes(file.path), default=0)


def _weight_sizes(path: Path) -> Iterator[int]:
    """Yield the bytes of each weight that lies in another file and states its length."""
    for kind, message, _ in walk(memoryview(path.read_bytes())):
        if kind == TENSOR:
            length = dict(external_entries(message) or ()).get("length")
            yield int(length or 0)


def prepare(job: Job, options: LoadOptions, cache: PreparedFiles) -> None:
    """Optimise one subnet as its job says. Raises ExecutorError if ONNX Runtime cannot."""
    if job.optimisation == "full":
        optimise(job, options, cache)
    else:
        optimise_lightly(job, options, cache)


def optimise(job: Job, options: LoadOptions, cache: PreparedFiles) -> None:
    """Optimise one subnet fully in this process, and run it once as `options` say.

    Raises ExecutorError if ONNX Runtime cannot.
    """
    ort = import_onnxruntime()
    with cache.making(job.key) as folder, engine_errors(ort, job.subnet, "load"):
        model, weights = folder / MODEL, folder / _WEIGHTS

        is_small = job.graph.stat().st_size <= _LARGEST_EXAMINED_BYTES
        subnet = job.graph.read_bytes() if is_small else None
        pooled = with_pools(subnet) if subnet is not None and can_find_weights(ort) else None

        def write(*, packs: bool) -> None:
            settings = optimising_options(ort, model, _WEIGHTS)
            _write(ort, job, settings, packs=packs, content=pooled)
            if pooled is not None:
                model.write_bytes(without_pools(model.read_bytes()))
            _take_in_blocks(ort, job, model, options)

        packs = subnet is None or not multiplies_single_rows(subnet)
        write(packs=packs)
        if not packs and packs_others(model.read_bytes()):
            packs = True
            write(packs=packs)
        if packs and weights.exists() and not realign(model, weights):
            packs = False
            write(packs=packs)
        if not packs:
            (folder / UNPACKED).touch()
        try_out(ort, job.subnet, model, options, packs=packs)


def optimise_lightly(job: Job, options: LoadOptions, cache: PreparedFiles) -> None:
    """Optimise one subnet with little memory, or not at all, and run it once as `options` say.

    Raises ExecutorError if ONNX Runtime cannot.
    """
    ort = import_onnxruntime()
    with cache.making(job.key) as folder, engine_errors(ort, job.subnet, "load"):
        model = folder / MODEL
        is_off = job.optimisation == "off"
        if is_off:  # even without optimising, the engine writes what it cannot always read
            model.write_bytes(job.graph.read_bytes())
        else:
            _write(ort, job, light_optimising_options(ort, model, _WEIGHTS), packs=False)
        _take_in_blocks(ort, job, model, options)
        weights_in = job.graph.parent if is_off else None
        try_out(ort, job.subnet, model, options, packs=False, weights_in=weights_in)


def _take_in_blocks(ort: Any, job: Job, model: Path, options: LoadOptions) -> None:
    """Let those inputs and outputs of the optimised `model` be in blocks for which the job asks."""
    if not job.in_blocks:
        return
    try:
        check_block(ort, loading_options(ort, options, optimised=True), options.block)
        model.write_bytes(with_blocked_borders(model.read_bytes(), job.in_blocks))
    except ExecutorError as error:
        raise ExecutorError(
            f"subnet {job.subnet}: its tensors cannot be in blocks of {options.block} channels: "
            f"{error}"
        ) from error


def _write(
    ort: Any, job: Job, session_options: Any, *, packs: bool, content: bytes | None = None
) -> None:
    """Make a session of a subnet, which writes the optimised model as its options say.

    `content` replaces the subnet's file, but not its files of weights.
    """
    if not packs:
        keep_packing_off(session_options)
    cpu_session(ort, job.graph, session_options, content)


def open_prepared(
    ort: Any, model: Path, options: LoadOptions, *, packs: bool, weights_in: Path | None = None
) -> Any:
    """Return a session of a model that is loaded as it is.

    Its weights lie next to it, or in the folder `weights_in`.
    """
    settings = loading_options(ort, options, optimised=True)
    if not packs:
        keep_packing_off(settings)
    content = None if weights_in is None else model.read_bytes()
    return cpu_session(ort, model, settings, content, weights_in)


def try_out(
    ort: Any,
    subnet: str,
    model: Path,
    options: LoadOptions,
    *,
    packs: bool,
    weights_in: Path | None = None,
) -> None:
    """Load the optimised `model` and run it once; raises ExecutorError if ONNX Runtime cannot."""
    with engine_errors(ort, subnet, "load"):
        session = open_prepared(ort, model, options, packs=packs, weights_in=weights_in)
    run_on_synthetic_inputs(ort, subnet, session)
    del session
    shrink_arena(ort)


def run_on_synthetic_inputs(ort: Any, subnet: str, session: Any) -> None:
    """Run a session once; raises ExecutorError if ONNX Runtime cannot."""
    inputs = synthetic_inputs(tensor_specs(subnet, session.get_inputs()))
    tensor_specs(subnet, session.get_outputs(), may_vary=True)
    with trial_on(inputs), engine_errors(ort, subnet, "run"):
        session.run(None, inputs)
