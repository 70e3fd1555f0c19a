"""Measures this board in a separate process, whose memory is free again when it ends.

`python -m nodes.measuring.process` reads a JSON object from its standard input: `{"engine": …,
"device": …, "cache": directory, "threads": …, "loopback": address, "guarded": …}`. It writes
`{"figures": {…}}`, without a quota, or `{"reason": clause}`, and the most memory that it had.

All probes run in turn, repeatedly. Before each run, a buffer larger than the caches of small boards
is written, because in a stream a phase also finds its weights and its code outside of them.
Measured hot, whole networks took 1.17 times as long as predicted, and a run 0.01 ms; measured cold,
1.05 times and 0.025 ms (decision 072). The process measures processor time, and the time that an
accelerator takes. Under a quota of 0.04 core these differ by less than a tenth from those without.

A doubtful measurement (`nodes.measuring.derivation.doubt`) is repeated.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nodes.host.single_threaded_blas  # noqa: F401 - before NumPy

import numpy as np  # isort: skip

from nodes.cache.room import PARTIAL, delete_entry
from nodes.execution.encoding import encode
from nodes.execution.rehearsal import SMALL_BYTES, RunClock, fit
from nodes.executors.base import ExecutorError, LoadedSubnet, LoadOptions, LoadsUnprepared, binder
from nodes.executors.registry import open_chosen
from nodes.executors.synthetic_inputs import synthetic_input, synthetic_inputs
from nodes.host.private_files import make_folder
from nodes.host.process import be_killed_first
from nodes.host.time_slice import ask_for_usual_slices
from nodes.host.usage import usage
from nodes.measuring.derivation import Samples, derived, doubt
from nodes.measuring.probes import probes
from nodes.net.loopback import Loopback
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import EngineChoice
from nodes.protocol.payload import Array
from nodes.protocol.schema import FIGURES

EVICTED_BYTES = 8 << 20
"""More than the caches of small boards, and than the second level of others."""

LONG_VALUES = 1 << 18
"""The values of a long message: 1 MiB."""

WARM_UP = 4
"""Messages before each one that is timed."""

FEWEST_ROUNDS, MOST_ROUNDS = 4, 15

ENOUGH_CPU_S, LONGEST_S = 0.25, 1.0
"""No further round begins after this processor time, or this long after the first round."""

MOST_CPU_S = 60
"""The processor time after which the kernel ends this process."""


@dataclass
class _Measurement:
    """The measurements so far."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    small_s: list[float] = field(default_factory=list)
    messages: list[tuple[int, int, float]] = field(default_factory=list)
    encode_s: list[float] = field(default_factory=list)


def main() -> None:
    """Measure as standard input says, and print the result."""
    os.umask(0o077)
    be_killed_first()
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    ask_for_usual_slices()
    asked = json.load(sys.stdin)
    try:
        answer = _measured(**asked)
    except NodeError as error:
        answer = {"reason": str(error)}
    answer["peak_bytes"] = usage().rss_peak_bytes
    print(json.dumps(answer))  # noqa: T201


def _measured(
    engine: str, device: str, cache: str, threads: int, loopback: str, guarded: bool
) -> dict[str, object]:
    executor = open_chosen(EngineChoice(engine, device, "fp32"), Path(cache), None)
    try:
        if not isinstance(executor, LoadsUnprepared):
            name = executor.describe()
            raise ExecutorError(f"{name} compiles networks slowly, so its board is not measured")
        with (
            _loaded(executor, Path(cache), threads) as subnets,
            Loopback(loopback, guarded) as connection,
        ):
            samples = measure(subnets, connection, threads)
            if doubt(samples):
                samples = measure(subnets, connection, threads)
    finally:
        executor.close()
    if reason := doubt(samples):
        return {"reason": reason}
    return {"figures": FIGURES.pack(derived(samples, threads))}


@contextmanager
def _loaded(
    executor: LoadsUnprepared, cache: Path, threads: int
) -> Iterator[Mapping[str, LoadedSubnet]]:
    """Load all probes; their files are deleted at once, or by the next agent if this process is
    killed."""
    found: dict[str, LoadedSubnet] = {}
    try:
        folder = make_folder(cache, PARTIAL)
        try:
            for probe in probes():
                graph = folder.path / f"{probe.name}.onnx"
                graph.write_bytes(probe.content)
                found[probe.name] = executor.load_unprepared(graph, LoadOptions(threads=threads))
        finally:
            delete_entry(folder.path)
            folder.close()
        yield found
    except OSError as error:
        raise ExecutorError(
            f"nothing can be written under {cache}: {error.strerror}; make room there or choose "
            "another cache directory"
        ) from error
    finally:
        for subnet in found.values():
            subnet.close()


def measure(
    subnets: Mapping[str, LoadedSubnet],
    connection: Loopback,
    threads: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Samples:
    """Run all probes in rounds, and messages between the rounds."""
    found = _Measurement()
    inputs = {name: synthetic_inputs(subnet.inputs) for name, subnet in subnets.items()}
    buffer, runs = np.zeros(EVICTED_BYTES // 8), RunClock(threads, 1.0)
    before_s, began_s, began_cpu_s = _suspended_s(), clock(), time.process_time()
    for number in range(MOST_ROUNDS + 1):
        if number > FEWEST_ROUNDS and (
            time.process_time() - began_cpu_s > ENOUGH_CPU_S or clock() - began_s > LONGEST_S
        ):
            break
        for name, subnet in subnets.items():
            bound = binder(subnet)(inputs[name])
            buffer.fill(number)
            seconds = runs.timed(subnet, bound).seconds
            if number:  # in the first round, memory is mapped
                found.seconds.setdefault(name, []).append(seconds)
        _exchange(connection, found, is_long=bool(number % 2))
    runs.close()
    costs = fit(found.small_s, found.messages)
    encode_s = sorted(found.encode_s)[len(found.encode_s) // 4]
    suspended_s = _suspended_s() - before_s
    return Samples(found.seconds, costs.message_s, costs.byte_s, encode_s, suspended_s)


def _exchange(connection: Loopback, found: _Measurement, *, is_long: bool) -> None:
    """Measure a message, a small or a long one, and encoding the long one.

    `WARM_UP` messages come before it, because the first message after a pause takes up to eight
    times as long, and messages of a stream are more frequent.
    """
    small = np.zeros(SMALL_BYTES, np.uint8)
    for _ in range(WARM_UP):
        _spent_s(connection, [small])
    long_ = synthetic_input("float32", (LONG_VALUES,))
    if is_long:
        found.messages.append((1, long_.nbytes, _spent_s(connection, [long_])))
    else:
        found.small_s.append(_spent_s(connection, [small]))
    began_s = time.thread_time()
    encode(long_, "fp16")
    found.encode_s.append((time.thread_time() - began_s) / long_.nbytes)


def _spent_s(connection: Loopback, arrays: Sequence[Array]) -> float:
    began_s = time.process_time()
    connection.send(arrays)
    connection.receive(len(arrays))
    return time.process_time() - began_s


def _suspended_s() -> float:
    """Return for how long this machine was suspended since its start, in tenths of a second."""
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), 1)


if __name__ == "__main__":
    main()
