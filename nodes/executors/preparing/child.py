"""Runs in a separate process and prepares subnets, one after the other, within bounds.

The process is started as `python -m nodes.executors.preparing.child`. It first reads a JSON line
from its standard input, `{"cache": directory, "folders": [directories of subnets], "uses_driver":
…}`, and from then on can open only these folders (`nodes.host.sandbox`), unless its engine uses the
driver of a GPU or NPU. For each subnet it then reads a line `{"maker": "module:name", "cache":
directory, "options": {…}, "job": {…}, "limit_bytes": …}` and replies with a line `{"done": key}` or
`{"failed": key, "reason": sentence, "lacks": "room", "memory", "engine" or ""}`. It exits when its
input is closed, so it never outlives the agent that started it.

No file that it writes becomes longer than `limit_bytes` (`RLIMIT_FSIZE`), and an entry that takes
more as a whole is not kept; its two files may take twice that while they are written. The process
cannot have more memory than the node has free (`RLIMIT_DATA`), again unless it uses a driver. ONNX
Runtime then does not compute a constant that does not fit, or reports that memory has run out, and
the kernel kills no process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import nodes.host.single_threaded_blas  # noqa: F401 - before NumPy
from nodes.executors.base import EngineFailedError, ExecutorError, LoadOptions
from nodes.executors.preparing.entries import Job, NoRoomError, PreparedFiles
from nodes.host.control_groups import room_bytes
from nodes.host.heap import give_back_at_once, give_back_free_memory
from nodes.host.kernel_files import table_of
from nodes.host.process import be_killed_first
from nodes.host.sandbox import sandbox_optimiser
from nodes.host.time_slice import ask_for_usual_slices

_LEAST_MEMORY_BYTES = 64 << 20
"""The child is always allowed this much, since the kernel may find more memory than it reports."""

_FILE, _DATA = resource.RLIMIT_FSIZE, resource.RLIMIT_DATA

_OUT_OF_MEMORY = ("bad_alloc", "Failed to allocate memory")
"""Parts of ONNX Runtime's messages for this."""


def _maker(place: str) -> Callable[[Job, LoadOptions, PreparedFiles], Any]:
    """Import the function at `module:name`, outside the bounds of a job."""
    module, _, name = place.partition(":")
    made: Callable[[Job, LoadOptions, PreparedFiles], Any] = getattr(import_module(module), name)
    return made


def work(input_: TextIO, output: TextIO) -> None:
    """Read requests from `input_` and write replies to `output`, until `input_` is closed."""
    os.umask(0o077)
    be_killed_first()
    ask_for_usual_slices()
    give_back_at_once()
    first = input_.readline()
    if not first:
        return
    places = json.loads(first)
    uses_driver: bool = places["uses_driver"]
    if not uses_driver:  # before there is another thread
        sandbox_optimiser(Path(places["cache"]), map(Path, places["folders"]))
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(input_, lines), daemon=True).start()
    while True:
        answer = _answer(json.loads(lines.get()), uses_driver=uses_driver)
        print(json.dumps(answer), flush=True, file=output)
        give_back_free_memory()


def _answer(request: dict[str, Any], *, uses_driver: bool) -> dict[str, str]:
    job = Job(**{**request["job"], "graph": Path(request["job"]["graph"])})
    limit_bytes = request["limit_bytes"]
    lacks = ""
    try:
        cache = PreparedFiles(
            Path(request["cache"]), limit_bytes=math.inf if limit_bytes is None else limit_bytes
        )
        make = _maker(request["maker"])
        with _bounds(job, limit_bytes, uses_driver=uses_driver):
            make(job, LoadOptions(**request["options"]), cache)
    except NoRoomError as error:
        lacks, reason = "room", f"subnet {job.subnet}: {error}"
    except MemoryError:
        lacks, reason = "memory", _no_memory(job)
    except ExecutorError as error:
        reason = str(error)
        lacks = "engine" if isinstance(error, EngineFailedError) else ""
        if any(sign in reason for sign in _OUT_OF_MEMORY):
            lacks, reason = "memory", _no_memory(job)
    else:
        return {"done": job.key}
    return {"failed": job.key, "reason": reason, "lacks": lacks}


def _no_memory(job: Job) -> str:
    return (
        f"subnet {job.subnet}: preparing it takes more than the {room_bytes() / 1e6:.0f} MB of "
        "memory that are free on this node; give the node a smaller subnet"
    )


@contextmanager
def _bounds(job: Job, limit_bytes: int | None, *, uses_driver: bool) -> Iterator[None]:
    """Within the block, allow no file longer than `limit_bytes`, and no more memory than is free.

    The memory is not bounded for an engine that `uses_driver`, since drivers map far more than they
    use.
    Mapped weights count towards the kernel's bound although they are pages of a file, so the bound
    is higher by twice their size.
    """
    former = {kind: resource.getrlimit(kind) for kind in (_FILE, _DATA)}
    try:
        if limit_bytes is not None:
            _limit(_FILE, limit_bytes)
        room = room_bytes()
        if not uses_driver and math.isfinite(room):
            free = max(int(room), _LEAST_MEMORY_BYTES)
            _limit(_DATA, _data_bytes() + free + 2 * job.source_bytes)
        yield
    finally:
        for kind, limits in former.items():
            resource.setrlimit(kind, limits)


def _limit(kind: int, limit_bytes: int) -> None:
    hard = resource.getrlimit(kind)[1]
    soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    with contextlib.suppress(ValueError, OSError):  # this system has no such bound
        resource.setrlimit(kind, (soft, hard))


def _data_bytes() -> int:
    """Return the bytes of this process that count towards RLIMIT_DATA."""
    return table_of(Path("/proc/self/status")).get("VmData:", 0) * 1024


def _read(input_: TextIO, lines: SimpleQueue[str]) -> None:
    """Pass on the agent's requests; end this process when the agent closes its pipe or ends."""
    try:
        for line in input_:
            lines.put(line)
    finally:
        os._exit(0)


if __name__ == "__main__":
    work(sys.stdin, sys.stdout)
