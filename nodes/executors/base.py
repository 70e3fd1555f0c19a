"""Defines the interface between an agent and an engine that runs ONNX models.

An `Engine` says whether it is installed and what it offers, and opens executors. An `Executor` is
one engine on one device of this machine. It prepares subnets (costly, at most once per subnet and
machine), loads them, and a `LoadedSubnet` runs one. Subnets are ONNX files whose weights may lie in
other files next to them; all their input shapes are static.

An implementation needs these three classes, a name for the engine (`nodes.executors.registry`), and
a subclass of the contract tests (`csdf_edge.testing.executor_contract`). `InputCheck` and
`OutputAllocator` do the parts that are the same for every engine.

**Threads.** An agent opens the executor before it starts any thread. It calls `prepare` in a thread
made for that call, and waits for it; then it calls `load`, `LoadedSubnet.run`, `LoadedSubnet.close`
and `resume` in one other thread, the same one for as long as the agent lives. It calls `interrupt`
and `close` in a third thread, at any time. So `interrupt` and `close` must be safe while any other
method runs, and two subnets may run at once. Nothing else happens concurrently, unless the executor
allows it (`LoadsBesideRuns`).

**Errors.** A method raises ExecutorError for whatever makes an engine or a subnet unusable: a
missing library, a broken file, an unsupported operator, a wrong input, a failure in the engine. Its
text is one sentence that names the subnet, says what is wrong, and says what the user can do; it is
shown as it is. The agent also survives any other exception, but reports it with its type. An engine
that crashes ends the agent, so whatever may crash on a file should happen in a child process first.

**Files.** A launcher sends the files, so they are not trusted. An implementation must examine each
one (`nodes.executors.onnx.file.inspect`) before its engine opens it, and write only under the cache
directory that it was given. Once the executor is open, the agent's process loses access to other
files where the kernel supports that (`nodes.host.sandbox`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from nodes.cache.room import Room
from nodes.core.engines import refused_value
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import DeviceOffer, OptionOffer
from nodes.protocol.payload import Array


class ExecutorError(NodeError):
    """An engine is not available, or cannot prepare, load or run a subnet.

    The text is one sentence: which subnet or engine, what is wrong, what to do.
    """


class EngineFailedError(ExecutorError):
    """The engine itself failed to prepare, load or run a subnet, or crashed."""


WORKSPACE = OptionOffer("workspace_bytes", least=1, most=1 << 40, is_whole=True)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to prepare and load a subnet."""

    threads: int = 1
    """CPU threads that compute one run, at least 1; ExecutorError otherwise. An engine may use
    fewer."""
    precision: str = "fp32"
    """One of the precisions that the engine offers for its device (`DeviceOffer`). `fp32` computes
    as the model says, and outputs agree with it to about 1e-4 of their largest magnitude. In a
    lower precision the engine may compute whatever it can; dtypes stay the same."""
    engine_options: Mapping[str, str] = field(default_factory=dict)
    """Settings that only this engine has, by name (`Engine.options`), as the user wrote them.
    `prepare` and `load` raise ExecutorError for a value that the setting cannot have, although an
    agent has compared it with `Engine.options` before."""

    in_blocks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By the path of a graph, those of its inputs and outputs that are in blocks of channels
    (`ChannelSpec.block`). Only for an executor that `ComputesInBlocks`."""
    block: int = 1
    """The channels of these blocks."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ExecutorError(f"an executor needs at least one thread, not {self.threads}")

    @property
    def fp16(self) -> bool:
        """Whether the engine may compute in half precision."""
        return self.precision == "fp16"

    @property
    def workspace_bytes(self) -> int:
        """The most scratch memory of TensorRT, by its engine option `workspace_bytes`."""
        return int(self.option(WORKSPACE, str(256 << 20)))

    def option(self, offer: OptionOffer, default: str) -> str:
        """Return the value of one of the engine's settings, or `default` if the user gave none.

        Raises ExecutorError if the setting cannot have that value.
        """
        value = self.engine_options.get(offer.name, default)
        if (why := refused_value(offer, value)) is not None:
            raise ExecutorError(f"the engine option {offer.name} {why}")
        return value


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The dtype and shape of a subnet's input or output."""

    dtype: str
    """NumPy's name in native byte order: float16/32/64, int8 to int64, uint8 to uint64 or bool."""
    shape: tuple[int, ...]
    """All dimensions; () for a scalar, and for an output that varies."""
    varies: bool = False
    """Whether an output may have another shape in every run. Inputs never do."""

    @property
    def size_bytes(self) -> int:
        """Bytes of one such tensor; 0 for one that varies."""
        if self.varies:
            return 0
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class LoadedSubnet(Protocol):
    """A subnet that is ready to run.

    One thread at a time may call a subnet's methods, but runs of two subnets may overlap.
    """

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The model's inputs by name, in the model's order. Constant; available after `close`."""
        ...

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """The model's outputs by name, in the model's order. Constant; available after `close`."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs from one frame's inputs. Blocks until they are computed.

        `inputs` must map exactly the names of `self.inputs` to arrays of exactly those dtypes and
        shapes. They may be read-only, not contiguous (contiguous ones are not copied) and not
        aligned. An implementation must neither change them nor refer to them after it has returned.

        Returns one array for each of `self.outputs`, in that order: C-contiguous, of the dtype and,
        unless the output varies, the shape stated there. The arrays belong to the caller, who may
        keep, change or send them: neither a later run nor `close` may touch their memory, and they
        may share memory neither with one another nor with the inputs.

        The values must agree with ONNX's definition of the operators to about 1e-4 of the output's
        largest magnitude. Runs are independent of each other.

        Raises ExecutorError, naming the subnet and the tensor, if an input is missing, unknown or
        of another dtype or shape; and naming the subnet if it is closed, if it was interrupted, or
        if the engine fails. The subnet must stay usable after an error about its inputs.
        """
        ...

    def close(self) -> None:
        """Free everything that the subnet holds. A second call does nothing.

        `run` raises ExecutorError afterwards.
        """
        ...


class BoundRun(Protocol):
    """A run of a subnet, some or all of whose inputs are bound."""

    def run(self, rest: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs, as `LoadedSubnet.run` does; `rest` are the inputs not bound yet.

        Call it once.
        """
        ...


@runtime_checkable
class BindsAhead(Protocol):
    """A subnet whose inputs can be bound before its run begins, while another run takes place.

    So the processor can do that for the next run while an accelerator computes.
    """

    def bind(self, inputs: Mapping[str, Array]) -> BoundRun:
        """Bind some or all inputs of a run; any thread may call this, while others run.

        Raises ExecutorError as `LoadedSubnet.run` does for an input that is unknown or of another
        dtype or shape.
        """
        ...


@dataclass(frozen=True, slots=True)
class _RunOfAll:
    """A run of a subnet that binds nothing ahead."""

    subnet: LoadedSubnet
    inputs: Mapping[str, Array]

    def run(self, rest: Mapping[str, Array]) -> dict[str, Array]:
        return self.subnet.run({**self.inputs, **rest})


def binder(subnet: LoadedSubnet) -> Callable[[Mapping[str, Array]], BoundRun]:
    """Return a function that binds a subnet's inputs: `bind`, or one that keeps them for `run`."""
    return subnet.bind if isinstance(subnet, BindsAhead) else partial(_RunOfAll, subnet)


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Processor seconds of a thread, and the seconds for which it waited for a CPU (None: unknown),
    since it began."""

    computed_s: float
    waited_s: float | None

    def plus(self, computed_s: float, waited_s: float) -> ThreadTimes:
        """Return the times with these seconds added."""
        waits_s = None if self.waited_s is None else self.waited_s + waited_s
        return ThreadTimes(self.computed_s + computed_s, waits_s)


@runtime_checkable
class LoadsBesideRuns(Protocol):
    """An executor that may load and rehearse subnets in one more thread while others run.

    That thread also closes them if they are not wanted. Otherwise the thread that runs the others
    takes them over when that one is done with them.
    """

    loads_beside_runs: Literal[True]


@runtime_checkable
class StatesOpset(Protocol):
    """An executor that knows the newest operator set of ONNX that it takes."""

    @property
    def newest_opset(self) -> int:
        """Return the number of that operator set, 0 if the engine does not say."""
        ...


@runtime_checkable
class LoadsUnprepared(Protocol):
    """An executor that loads a small subnet within milliseconds, for a process that ends soon."""

    def describe(self) -> str:
        """See `Executor.describe`."""
        ...

    def load_unprepared(self, graph: Path, options: LoadOptions) -> LoadedSubnet:
        """Load the ONNX file `graph`, whose weights are in it, without a child and without the
        cache. The file may be deleted afterwards. Raises ExecutorError as `Executor.load` does."""
        ...


@runtime_checkable
class ComputesInBlocks(Protocol):
    """An executor whose subnets can take and make tensors in blocks of several channels
    (`LoadOptions.in_blocks`); 1 where this processor has no such blocks.
    """

    @property
    def block(self) -> int:
        """Return the channels of a block."""
        ...


@runtime_checkable
class ComputesElsewhere(Protocol):
    """A subnet whose runs may be computed in a thread of the engine's own.

    The caller's thread only waits for such a run, so its clock tells neither what the run computed
    nor for how long other processes held it up.
    """

    def engine_times(self) -> ThreadTimes:
        """Return the times of the engine's thread at the end of the last run that it computed, or
        zeros; of several threads, their mean."""
        ...


OnPrepared: TypeAlias = Callable[[Path], None]
"""Takes the path of a graph that is prepared. An executor calls it in the thread that called
`prepare`, once for each graph passed, in their order, as soon as this and all earlier ones are
prepared. An exception that it raises ends `prepare`.
"""


class Executor(Protocol):
    """An engine on one device of this machine."""

    def describe(self) -> str:
        """Return the engine's name, its version, and where it computes.

        For example `ONNX Runtime 1.31.0 (CPU)`. Users read it; plans and profiles record it.
        """
        ...

    def prepare(
        self, graphs: Sequence[Path], options: LoadOptions, on_done: OnPrepared | None = None
    ) -> None:
        """Do the costly part of `load` for several graphs, and keep the results in the cache.

        Blocks until all are done, which may take minutes. Work that takes much memory or may crash
        should happen in a child process, whose death must end in an ExecutorError. A graph may
        occur several times, and may be prepared already. `load` must also work without this.

        Raises ExecutorError for the first graph that cannot be prepared, naming its file and, where
        the engine states it, the operator; or if it was interrupted. Graphs before that one stay
        prepared.
        """
        ...

    def load(self, graph: Path, options: LoadOptions) -> LoadedSubnet:
        """Load the ONNX file `graph`, whose external weights lie next to it.

        Prepares the graph first if the cache lacks its result, or the result is damaged or from
        another version of the engine. The files must stay unchanged until the subnet is closed:
        an engine may map its weights instead of copying them.

        Raises ExecutorError, naming the file or the subnet and, where the engine states it, the
        operator, if a file is missing, broken, refused or holds what the engine cannot compute, if
        an input's shape is dynamic, or if it was interrupted.
        """
        ...

    def interrupt(self) -> None:
        """End calls of `prepare`, `load` and `run` soon, and child processes at once.

        Applies to running calls and to those that begin before `resume`. They raise ExecutorError,
        unless their result takes no longer. May be called from any thread, several times, and must
        return at once. An engine that cannot end a run at any point ends it as soon as it can; if
        that takes too long, the agent ends its whole process.
        """
        ...

    def resume(self) -> None:
        """Allow `prepare`, `load` and `run` again after `interrupt`."""
        ...

    def close(self) -> None:
        """End child processes permanently. Loaded subnets stay usable.

        May be called from any thread, several times. A running call that needs a child raises
        ExecutorError, and so does every later one.
        """
        ...


class Engine(Protocol):
    """A kind of executor: what a name in `nodes.executors.registry` stands for.

    Agents ask every engine what it offers when they start. So a module with such a class must be
    cheap to import, and every method but `open` must neither import the engine nor take memory.

    An engine that takes more or less memory than ONNX Runtime, tensors excluded, says so by an
    attribute `memory` (`nodes.protocol.messages.EngineMemory`), on which planners count. If that
    depends on the device, as with the driver of a GPU, a method `memory_on(device)` returns it.
    """

    options: tuple[OptionOffer, ...]
    """The options that `LoadOptions.engine_options` may have: names, and their values as far as
    they can be stated. The launcher refuses others before it deploys anything.
    """

    def missing(self) -> str | None:
        """Return why the engine cannot be used here and what to install; None if it can.

        The text is a clause that follows the engine's name, such as `it is not installed: …`.
        """
        ...

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the devices that the engine can compute on, the one to prefer first.

        Called only if nothing is `missing`. `open` finds out facts that only the engine itself
        knows.
        """
        ...

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:
        """Open the engine on a device, keeping prepared subnets under `cache`.

        `device` is the name of one of `devices()`. `room` bounds the cache if given. Raises
        ExecutorError if the engine or the device cannot be used after all.
        """
        ...


class InputCheck:
    """Checks the inputs of `LoadedSubnet.run`, and arranges them so that pointers can be passed."""

    def __init__(self, subnet: str, specs: Mapping[str, TensorSpec]) -> None:
        self._subnet = subnet
        self._expected = {name: (np.dtype(spec.dtype), spec.shape) for name, spec in specs.items()}

    def arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the inputs in the model's order, C-contiguous and aligned to their elements.

        Copies only arrays that are not so already. Raises ExecutorError naming the subnet and the
        input if one is missing, unknown, or of another dtype or shape.
        """
        self.check_complete(inputs)
        return [self.array(name, inputs[name]) for name in self._expected]

    def array(self, name: str, array: Array) -> Array:
        """Return one input, as `arrays` does."""
        expected = self._expected.get(name)
        if expected is None:
            raise ExecutorError(
                f'subnet {self._subnet} has no input "{name}"; it takes '
                + ", ".join(f'"{known}"' for known in self._expected)
            )
        dtype, shape = expected
        if array.dtype != dtype or array.shape != shape:
            raise ExecutorError(
                f'subnet {self._subnet}: its input "{name}" must be {dtype}{list(shape)}, '
                f"not {array.dtype}{list(array.shape)}"
            )
        flags = array.flags
        if flags.c_contiguous and flags.aligned:
            return array
        return np.array(array, order="C")

    def check_complete(self, inputs: Collection[str]) -> None:
        """Raise ExecutorError if `inputs` are not the names of all inputs."""
        if len(inputs) == len(self._expected) and all(name in inputs for name in self._expected):
            return
        for name in self._expected:
            if name not in inputs:
                raise ExecutorError(f'subnet {self._subnet}: its input "{name}" is missing')
        unknown = ", ".join(f'"{name}"' for name in inputs if name not in self._expected)
        raise ExecutorError(
            f"subnet {self._subnet} has no input {unknown}; it takes "
            + ", ".join(f'"{name}"' for name in self._expected)
        )


class OutputAllocator:
    """Makes new output arrays for each run, except for outputs that vary.

    Only the engine can say how large those are.
    """

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self._specs = tuple(
            (name, np.dtype(spec.dtype), spec.shape)
            for name, spec in specs.items()
            if not spec.varies
        )

    def allocate(self) -> dict[str, Array]:
        """Return an uninitialised C-contiguous array for each output, in the model's order."""
        return {name: np.empty(shape, dtype) for name, dtype, shape in self._specs}


class BasicSubnet:
    """The part of a loaded subnet that is the same for every engine: its name and its tensors."""

    def __init__(
        self, name: str, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
    ) -> None:
        self._name = name
        self._inputs = inputs
        self._outputs = outputs
        self._check = InputCheck(name, inputs)
        self._allocator = OutputAllocator(outputs)

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """Return the model's inputs."""
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """Return the model's outputs."""
        return self._outputs

    def _closed(self) -> ExecutorError:
        return ExecutorError(f"subnet {self._name} is closed; load it again")


def address(array: Array) -> int:
    """Return the address of the array's first element."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer
