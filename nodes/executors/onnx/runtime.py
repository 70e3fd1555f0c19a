"""Runs subnets with ONNX Runtime, with file-backed weights and outputs that are not copied.

On the CPU a subnet is optimised once (`nodes.executors.onnx.optimise`) and cached
(`nodes.executors.preparing.entries`). The result is loaded with optimisation off, so its weights
are pages of a file and not of the heap. Other execution providers are in
`nodes.executors.onnx.providers`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path
from typing import Any, Literal

from nodes.cache.room import Room
from nodes.executors.base import BasicSubnet, ExecutorError, LoadOptions
from nodes.executors.onnx.binding import SessionBindings, run_options
from nodes.executors.onnx.file import OnnxFile, check_optimised, inspect
from nodes.executors.onnx.optimise import MODEL, needed_bytes, open_prepared
from nodes.executors.onnx.packing import UNPACKED
from nodes.executors.onnx.sessions import (
    allows_spinning,
    engine_errors,
    import_onnxruntime,
    loading_options,
    newest_opset,
    raise_engine_error,
    shrink_arena,
    tensor_specs,
)
from nodes.executors.onnx.signature import read_signature
from nodes.executors.preparing.entries import Job, PreparedFiles, entry_key
from nodes.executors.preparing.executor import PreparingExecutor
from nodes.host.control_groups import room_bytes
from nodes.host.heap import give_back_free_memory, large_blocks_apart
from nodes.host.processor import channels_per_block, processor_kind
from nodes.protocol.payload import Array

log = logging.getLogger("node-agent")

_FORMAT = 8
"""A number to increase whenever `optimise` would write something else for the same subnet."""


class OrtExecutor(PreparingExecutor):
    """The part that ONNX Runtime's execution providers share."""

    def __init__(
        self, engine: str, maker: str, cache: PreparedFiles, *, uses_driver: bool = False
    ) -> None:
        """Open ONNX Runtime; raises ExecutorError if it is not installed."""
        self._ort = import_onnxruntime()
        self._run_options = run_options(self._ort)
        self._loaded: set[OnnxRuntimeSubnet] = set()
        super().__init__(engine, maker, cache, uses_driver=uses_driver)

    def _subnet(self, file: OnnxFile, session: Any) -> OnnxRuntimeSubnet:
        subnet = OnnxRuntimeSubnet(self._ort, file, session, self._run_options, self._forget)
        self._loaded.add(subnet)
        return subnet

    def interrupt(self) -> None:
        """End the child process and the present run, and let none begin until `resume`.

        ONNX Runtime checks before each layer, and before each iteration of a loop; a provider may
        have made one layer of many.
        """
        self._run_options.terminate = True
        super().interrupt()

    def resume(self) -> None:
        """Allow child processes and runs again."""
        self._run_options.terminate = False
        super().resume()

    def _forget(self, subnet: OnnxRuntimeSubnet) -> None:
        """Forget a closed subnet; after the last one, free the memory that all shared."""
        self._loaded.discard(subnet)
        if not self._loaded:
            shrink_arena(self._ort)
            give_back_free_memory()


class OnnxRuntimeExecutor(OrtExecutor):
    """ONNX Runtime on this machine's CPU, keeping optimised subnets under `cache`."""

    loads_beside_runs: Literal[True] = True

    def __init__(self, cache: Path, *, room: Room | None = None) -> None:
        """Open ONNX Runtime; `room` bounds the cache if given.

        Raises ExecutorError if it is not installed.
        """
        maker = "nodes.executors.onnx.optimise:prepare"
        super().__init__("onnxruntime", maker, PreparedFiles(cache, room))

    @property
    def block(self) -> int:
        """Return the channels of a block in which convolutions are computed here."""
        return channels_per_block()

    @property
    def newest_opset(self) -> int:
        """Return the newest operator set that this ONNX Runtime takes."""
        return newest_opset(self._ort)

    def describe(self) -> str:
        """Return the engine's name, its version and where it computes."""
        return f"ONNX Runtime {self._ort.__version__} (CPU)"

    def job(self, graph: Path, options: LoadOptions) -> Job:
        """See `PreparingExecutor.job`; the job for which there is memory, unless one is cached."""
        allows_spinning(options)  # its value may be wrong
        return self._affordable(inspect(graph), options)

    def load(self, graph: Path, options: LoadOptions) -> OnnxRuntimeSubnet:
        """Load a subnet, preparing it first if the cache lacks it."""
        file = inspect(graph)
        session = self._optimised_session(file, options)
        return self._subnet(file, session)

    def load_unprepared(self, graph: Path, options: LoadOptions) -> OnnxRuntimeSubnet:
        """Load a small subnet, and optimise it in this process."""
        file = inspect(graph)
        settings = loading_options(self._ort, options, optimised=False)
        with engine_errors(self._ort, file.name, "load"):
            session = self._ort.InferenceSession(
                graph.read_bytes(), settings, providers=["CPUExecutionProvider"]
            )
        return self._subnet(file, session)

    def _optimised_session(self, file: OnnxFile, options: LoadOptions) -> Any:
        job = self._affordable(file, options)
        if (found := self._prepared(job)) is not None:
            # An entry that is intact yet unusable was made by another build: make it again.
            with contextlib.suppress(ExecutorError):
                return self._session(file, found, options)
            self._cache.discard(found.parent.name)
        self._child.make([job], options, lambda _: None)
        found = self._prepared(job)
        if found is None:
            raise ExecutorError(
                f"subnet {file.name}: what was just written under {self._cache.root} cannot be "
                "read back; check that disk"
            )
        return self._session(file, found, options)

    def _affordable(self, file: OnnxFile, options: LoadOptions) -> Job:
        """Return the job whose result is cached, else the one for which there is memory now."""
        job = self._job(file, options)
        for variant in job.variants:
            if self._cache.find(variant.key) is not None:
                return variant
        room, needed = room_bytes(), needed_bytes(file)
        if needed <= room:
            return job
        log.warning(
            "subnet %s: optimising it fully takes %.0f MB and there is room for %.0f MB; optimised "
            "with less memory, which computes more slowly",
            file.name, needed / 1e6, room / 1e6,
        )  # fmt: skip
        return job.lighter or job

    def _prepared(self, job: Job) -> Path | None:
        """Return the cached model of `job`, or else of one that is optimised less."""
        for one in job.variants:
            entry = self._cache.find(one.key)
            if entry is not None:
                return entry / MODEL
        return None

    def _session(self, file: OnnxFile, path: Path, options: LoadOptions) -> Any:
        entry = path.parent
        is_unpacked = Job.is_light_key(entry.name) or (entry / UNPACKED).exists()
        weights_in = file.path.parent if Job.is_off_key(entry.name) else None
        check_optimised(path, weights_in)
        with engine_errors(self._ort, file.name, "load"), large_blocks_apart():
            session = open_prepared(
                self._ort, path, options, packs=not is_unpacked, weights_in=weights_in
            )
        session.disable_fallback()
        return session

    def _job(self, file: OnnxFile, options: LoadOptions) -> Job:
        in_blocks = sorted(options.in_blocks.get(str(file.path), ()))
        blocks = (options.block, *in_blocks) if in_blocks else ()
        facts = (_FORMAT, self._ort.__version__, processor_kind(), *blocks)
        key = entry_key("onnxruntime", file.digest, *facts)
        return Job(file.path, file.name, key, source_bytes=file.size_bytes, in_blocks=in_blocks)


class OnnxRuntimeSubnet(BasicSubnet):
    """A session whose inputs and outputs are bound by address, so that nothing is copied."""

    def __init__(
        self,
        ort: Any,
        file: OnnxFile,
        session: Any,
        run_options: Any,
        on_close: Callable[[OnnxRuntimeSubnet], None],
    ) -> None:
        self._ort = ort
        self._on_close = on_close
        declared = read_signature(file.path).outputs
        inputs = tensor_specs(file.name, session.get_inputs())
        outputs = tensor_specs(
            file.name,
            session.get_outputs(),
            may_vary=True,
            without_shape={output.name for output in declared if not output.has_shape},
        )
        super().__init__(file.name, inputs, outputs)
        self._varying = tuple(name for name, spec in self._outputs.items() if spec.varies)
        self._run_options = run_options
        self._bindings: SessionBindings | None = SessionBindings(ort, session)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs; see `LoadedSubnet.run`."""
        return self.bind(inputs).run({})

    def bind(self, inputs: Mapping[str, Array]) -> OnnxRuntimeRun:
        """Bind inputs of a run; see `BindsAhead.bind`."""
        return OnnxRuntimeRun(self, self._open_bindings().take(), inputs)

    def bind_to(self, binding: Any, inputs: Mapping[str, Array]) -> list[Array]:
        """Bind inputs to one of the session's bindings; return the arrays that the run needs."""
        bound = []
        for name, given in inputs.items():
            array = self._check.array(name, given)
            binding._iobinding.bind_input(name, array)
            bound.append(array)
        return bound

    def run_bound(self, binding: Any, bound: Collection[str]) -> dict[str, Array]:
        """Compute all outputs from the inputs `bound` to `binding`, which must be all."""
        bindings = self._open_bindings()
        self._check.check_complete(bound)
        outputs = self._allocator.allocate()
        try:
            varying = bindings.run(binding, outputs, self._varying, self._run_options)
        except Exception as error:  # noqa: BLE001 - what is not the engine's is raised again
            raise_engine_error(error, self._ort, self._name, "run")
        return {name: (outputs | varying)[name] for name in self._outputs} if varying else outputs

    def _open_bindings(self) -> SessionBindings:
        if self._bindings is None:
            raise self._closed()
        return self._bindings

    def close(self) -> None:
        """Free the session and its memory."""
        if self._bindings is not None:
            self._bindings = None
            self._on_close(self)


class OnnxRuntimeRun:
    """A run of a subnet, with the inputs that are bound so far."""

    __slots__ = ("_binding", "_bound", "_names", "_subnet")

    def __init__(
        self, subnet: OnnxRuntimeSubnet, binding: Any, inputs: Mapping[str, Array]
    ) -> None:
        self._subnet = subnet
        self._binding = binding
        self._names: Set[str] = inputs.keys()
        self._bound = subnet.bind_to(binding, inputs)

    def run(self, rest: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs; see `BoundRun.run`."""
        if rest:
            self._bound += self._subnet.bind_to(self._binding, rest)
            self._names = self._names | rest.keys()
        return self._subnet.run_bound(self._binding, self._names)
