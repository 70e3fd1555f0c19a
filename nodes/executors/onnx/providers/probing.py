"""Finds out on which devices of this machine an execution provider computes.

That a wheel was built with a provider says nothing about the machine: a library or a driver may be
missing. ONNX Runtime then computes on the CPU without an error. So each device that the kernel
shows is tested by a child process (`nodes.executors.onnx.providers.probe`). What passed is kept in
the agent's cache for as long as ONNX Runtime's files stay the same; what failed is tested again by
the next agent, because the user may have installed what was missing.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nodes.executors.base import ExecutorError
from nodes.executors.cuda import cuda_devices
from nodes.executors.onnx.providers.table import COUNTED_BY_CUDA, DeviceKind, Provider
from nodes.executors.preparing.entries import PreparedFiles
from nodes.host.process import python_command
from nodes.host.processor import processor_kind
from nodes.protocol.messages import DeviceOffer, EngineMemory

_PROBE = "nodes.executors.onnx.providers.probe"

_FORMAT = 2
"""A number to increase whenever a test would test something else."""

_LONGEST_S = 120.0
"""How long a test may take: TensorRT builds an engine, and a Jetson loads CUDA for ten seconds."""

_KERNELS_BYTES = 180_000_000
"""The memory of the CUDA kernels that a network loads beyond those of the test's one layer. On an
NVIDIA H200 the test took 384 MB and agents 560 to 620 MB (decision 064).
"""

_MOST_DEVICES = 8
_NOTE = "test.json"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST_LOGGED = 200
"""Characters that are shown of an error that ONNX Runtime has logged; its end says what failed."""


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of the test of a device.

    `precisions` are those that passed, and `why` says why others did not. `memory_bytes` is the
    memory of the process that computed.
    """

    precisions: tuple[str, ...] = ()
    why: str = ""
    memory_bytes: int = 0


def is_in_wheel(provider: Provider) -> bool:
    """Return whether the installed files show that ONNX Runtime was built with a provider."""
    folder = _folder()
    if folder is None:
        return False
    library = folder / f"libonnxruntime_providers_{provider.word}.so"
    return library.exists() or _package(folder) == f"onnxruntime-{provider.word}"


def devices_of(
    provider: Provider, notes: PreparedFiles | None = None
) -> tuple[tuple[DeviceOffer, ...], str]:
    """Return the devices on which the provider computes, and why it does not on others.

    `notes` is where results are kept.
    """
    if _folder() is None or (provider.is_library and not is_in_wheel(provider)):
        return (), f"the installed ONNX Runtime does not have it: {provider.remedy}"
    offers: list[DeviceOffer] = []
    reasons = []
    for kind in provider.kinds:
        names = _devices(kind)
        if not names:
            reasons.append(f"this machine has no {kind.device.upper()} that it can use")
        for device in names:
            tested = _tested(provider, kind, device, notes)
            if tested.precisions:
                offers.append(DeviceOffer(device, tested.precisions))
            else:
                reasons.append(f"{device}: {tested.why}")
    return tuple(offers), "; ".join(reasons)


def memory_on(
    provider: Provider, device: str, notes: PreparedFiles | None = None
) -> EngineMemory | None:
    """Return the memory that an agent takes with a provider on a device; None without one.

    It is that of the test's process, or what ONNX Runtime declares if that is more.
    """
    for kind in provider.kinds:
        if device in _devices(kind):
            tested = _tested(provider, kind, device, notes)
            kernels_bytes = _KERNELS_BYTES if kind.files == COUNTED_BY_CUDA else 0
            usual = EngineMemory()
            idle_bytes = max(usual.idle_bytes, tested.memory_bytes + kernels_bytes)
            return replace(usual, idle_bytes=idle_bytes)
    return None


def _devices(kind: DeviceKind) -> list[str]:
    count = 1
    if kind.files == COUNTED_BY_CUDA:
        count = cuda_devices()
    elif kind.files:
        pattern = Path(kind.files)
        count = len(list(pattern.parent.glob(pattern.name)))
    return [
        f"{kind.device}:{number}" if number else kind.device
        for number in range(min(count, _MOST_DEVICES))
    ]


def _tested(
    provider: Provider, kind: DeviceKind, device: str, notes: PreparedFiles | None
) -> Tested:
    """Return the test's result, from the notes if they have it."""
    key = _key(provider, device)
    if notes is not None and (entry := notes.find(key)) is not None:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return _read(json.loads((entry / _NOTE).read_text("utf-8")))
    tested = _test(provider.word, device, kind.precisions)
    if tested.precisions and notes is not None:
        with contextlib.suppress(ExecutorError), notes.making(key) as folder:
            (folder / _NOTE).write_text(json.dumps(asdict(tested)), "utf-8")
    return tested


@cache
def _test(word: str, device: str, precisions: tuple[str, ...]) -> Tested:
    """Run the test in a child."""
    try:
        child = subprocess.run(
            python_command(_PROBE, word, device, *precisions),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Tested(why=f"a test network was not computed within {_LONGEST_S:.0f} s")
    except OSError as error:
        return Tested(why=f"it could not be tested: {error.strerror}")
    if child.returncode < 0:
        crash = signal.Signals(-child.returncode).name
        return Tested(why=f"it crashed ({crash}) in a test network")
    try:
        found = _read(json.loads(child.stdout.splitlines()[-1]))
    except (ValueError, LookupError):
        return Tested(why=f"its test ended unexpectedly (exit code {child.returncode})")
    return replace(found, why=found.why + _logged(child.stderr)) if found.why else found


def _read(answer: dict[str, Any]) -> Tested:
    return Tested(tuple(answer["precisions"]), answer["why"], int(answer["memory_bytes"]))


def _logged(stderr: bytes) -> str:
    """Return the first error that ONNX Runtime has logged, in brackets; "" if there is none."""
    for line in stderr.decode("utf-8", "replace").splitlines():
        _, is_error, rest = line.partition("[E:onnxruntime")
        if is_error:
            text = _COLOUR.sub("", rest.partition("] ")[2]).strip()
            return f" ({text[-_LONGEST_LOGGED:]})"
    return ""


def _key(provider: Provider, device: str) -> str:
    folder = _folder()
    files = sorted(folder.glob("*.so*")) if folder is not None else []
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    facts = (_FORMAT, str(folder), states, processor_kind())
    digest = sha256(repr(facts).encode()).hexdigest()
    return f"provider-{digest}-{provider.word}-{device.replace(':', '')}"


def _folder() -> Path | None:
    """Return the folder of ONNX Runtime's libraries, without importing it."""
    spec = find_spec("onnxruntime")
    return None if spec is None or spec.origin is None else Path(spec.origin).with_name("capi")


def _package(folder: Path) -> str:
    """Return the name under which the installed wheel was built, such as `onnxruntime-gpu`."""
    try:
        text = (folder / "build_and_package_info.py").read_text("utf-8")
    except (OSError, ValueError):
        return ""
    found = re.search(r"package_name = '([^']*)'", text)
    return found[1] if found else ""
