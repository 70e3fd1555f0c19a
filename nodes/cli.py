"""`node-agent`: the daemon of one device, and its arguments.

Exit codes: 0 when it was told to stop (SIGTERM, SIGINT, a launcher's `Shutdown`, its parent's end),
2 when it could not start: the address is taken, the cache or the keys cannot be used, there is no
engine, or other machines could reach it and there are no keys; 130 for Ctrl-C before it was ready.
An agent whose engine does not come back starts anew in the same process.

The version of this package, as its metadata has it; looking that up costs an agent 5 MB.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import get_args

import nodes.host.single_threaded_blas  # noqa: F401 - before NumPy
from nodes.agent import Shell
from nodes.cache.blobs import BlobStore
from nodes.core.agent import Identity
from nodes.core.session import LONGEST_LEASE_S
from nodes.executors.base import Executor
from nodes.executors.registry import EngineName, open_executor
from nodes.host.heap import give_back_free_memory
from nodes.host.process import ServiceManager, exit_at_once, restart_in_place
from nodes.host.sandbox import shut_agent_in
from nodes.host.time_slice import ask_for_short_slices
from nodes.host.usage import machine, usage
from nodes.net.curve import default_keys, keygen
from nodes.net.keys import SECRET, KeyFolder, KeysError
from nodes.net.listener import MAX_CONNECTIONS
from nodes.net.sockets import AddressError
from nodes.net.wire import Wire
from nodes.protocol.addresses import is_exposed
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import HOST
from nodes.protocol.sizes import parse_bytes
from nodes.quotas import DEFAULT_CACHE_BYTES, DEFAULT_TENSOR_BYTES, Quotas, allow_descriptors

VERSION = "0.1.0"


log = logging.getLogger("node-agent")

EXIT_FINE = 0
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until it is told to stop; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["keygen"]:
        return keygen(given[1:])
    options = _parser().parse_args(given)
    os.umask(0o077)  # what an engine itself writes into the cache is nobody else's either
    try:
        if options.cpus:
            _keep_to(options.cpus)
        ask_for_short_slices()
        keyring = _keyring(options)
        rereads = keyring is not None and not os.isatty(0)  # a terminal that closes ends it
        if rereads:  # until there is something to tell it to
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        identity, control, shell, is_open = _build(options, keyring)
    except NodeError as error:
        sys.stderr.write(f"node-agent: {error}\n")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("node-agent: interrupted\n")
        return EXIT_INTERRUPTED
    logging.basicConfig(
        stream=sys.stderr,
        level=options.log_level.upper(),
        format="node-agent %(asctime)s %(levelname)s %(message)s",
    )
    with shell:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stopping(shell))
        if rereads:
            signal.signal(signal.SIGHUP, lambda *_: shell.reread_keys())
        shell.watch_signals()
        sys.stderr.write(
            f"node-agent {VERSION} {identity.name!r} ready: control {control}, "
            f"data {identity.data_address}, {identity.engine}, "
            f"{identity.rss_bytes / 1e6:.1f} MB resident\n"
        )
        sys.stderr.flush()
        if is_open is not None:
            log.info("this agent can open every file of its user: %s", is_open)
        report = shell.run()
    if shell.is_restarting:  # at the same addresses, also where the system had chosen the ports
        restart_in_place(("--listen", control, "--data", identity.data_address))
    if options.json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
    if shell.is_abandoned:
        exit_at_once(EXIT_FINE)
    return EXIT_FINE


def _stopping(shell: Shell) -> Callable[[int, FrameType | None], None]:
    def stop(number: int, _: FrameType | None) -> None:
        shell.stop(signal.Signals(number).name)

    return stop


def _keyring(options: argparse.Namespace) -> KeyFolder | None:
    """The keys to listen with, if any; refuses to be reached from other machines without."""
    addresses = [address for address in (options.listen, options.data) if address is not None]
    exposed = [address for address in addresses if is_exposed(address)]
    if options.insecure:
        return None
    if options.keys is not None:
        return KeyFolder(options.keys)
    if not exposed:
        return None
    usual = default_keys()
    if (usual / SECRET).exists():
        return KeyFolder(usual)
    raise KeysError(
        f"{exposed[0]} can be reached from other machines, and there are no keys in {usual}: give "
        "--keys DIR (`launch cluster.yaml --make-keys` makes those of a cluster, `node-agent "
        "keygen` one pair), or --insecure, and whoever reaches that port can run networks here"
    )


def _build(
    options: argparse.Namespace, keyring: KeyFolder | None
) -> tuple[Identity, str, Shell, str | None]:
    """Open everything that can fail; also returns the address of the control port, and why the
    process was not shut in, if so.

    The engine comes before the sockets, because it sets up the heap that all threads share. Then,
    while there are no threads, the process gives up all files but its own.
    """
    with ExitStack() as opened:
        quotas = Quotas(options.cache_bytes, options.tensor_bytes, options.connections)
        allow_descriptors(quotas.connections)
        store = BlobStore(options.cache, quotas.cache_bytes)
        opened.callback(store.release)
        executor = open_executor(options.engine, store.derived, room=store.room)
        opened.callback(executor.close)
        is_open = _shut_in(options, keyring, executor)
        wire = Wire(
            keyring=keyring,
            tensor_bytes=quotas.tensor_bytes,
            max_connections=quotas.connections,
        )
        opened.callback(wire.close)
        control = wire.listen_control(options.listen)
        data = _listen_data(wire, options, control)
        give_back_free_memory()
        identity = Identity(
            name=options.name,
            version=VERSION,
            data_address=data,
            engine=executor.describe(),
            machine=machine(),
            cores=len(os.sched_getaffinity(0)),
            rss_bytes=usage().rss_bytes,
        )
        shell = Shell(
            identity,
            wire,
            store,
            executor,
            quotas,
            obeys_shutdown=options.exit_with_parent,
            longest_lease_s=options.longest_lease,
            parent=sys.stdin.fileno() if options.exit_with_parent else None,
            manager=ServiceManager(),
        )
        opened.pop_all()  # from here on the shell closes them
    return identity, control, shell, is_open


def _shut_in(
    options: argparse.Namespace, keyring: KeyFolder | None, executor: Executor
) -> str | None:
    if getattr(executor, "is_bound_to_thread", False):
        return "it computes on a GPU, whose driver opens files of its own choosing"
    addresses = [address for address in (options.listen, options.data) if address is not None]
    return shut_agent_in(options.cache, keyring.folder if keyring else None, addresses)


def _listen_data(wire: Wire, options: argparse.Namespace, control: str) -> str:
    if options.data is not None:
        return wire.listen_data(options.data)
    if control.startswith("ipc://"):
        return wire.listen_data(f"{control}.data")
    host, _, port = control.rpartition(":")
    try:
        return wire.listen_data(f"{host}:{int(port) + 1}")
    except AddressError:
        if not (options.exit_with_parent or options.listen.endswith(":0")):
            raise
    return wire.listen_data(f"{host}:0")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-agent",
        description="The daemon of one device: waits for a launcher, loads its share of a network, "
        "and computes it frame by frame.",
        epilog="`node-agent keygen --out DIR` makes a key pair (`node-agent keygen --help`). "
        "Exit codes: 0 told to stop, 2 could not start.",
    )
    add = parser.add_argument
    add(
        "--listen",
        type=_address,
        default="tcp://127.0.0.1:5500",
        metavar="ADDRESS",
        help="control address, tcp://HOST:PORT or ipc://PATH; tcp://0.0.0.0:5500 to be reached "
        "from other machines, which needs --keys or --insecure (default: %(default)s)",
    )
    add(
        "--data",
        type=_address,
        metavar="ADDRESS",
        help="data address (default: the next port, or, where --listen leaves the port open with "
        "0, perhaps another one; the path with .data appended)",
    )
    either = parser.add_mutually_exclusive_group().add_argument
    usual = str(default_keys()).replace("%", "%%")
    either(
        "--keys",
        type=Path,
        metavar="DIR",
        help="this node's keys: only those whose public keys are there can connect, and all is "
        "encrypted; read again when they change "
        f"(default: {usual} if other machines can reach this one)",
    )
    either(
        "--insecure",
        action="store_true",
        help="no keys, no encryption: whoever reaches the ports can run networks here",
    )
    add("--name", type=_name, default=os.uname().nodename, help="default: this machine's name")
    add(
        "--cache",
        type=Path,
        default=_default_cache(),
        metavar="DIR",
        help="where subnets are kept (default: %(default)s)",
    )
    add(
        "--cache-bytes",
        type=_size,
        default=DEFAULT_CACHE_BYTES,
        metavar="N",
        help="how much of them at most, with what the engine makes of them, such as 500MB or "
        "4GiB (default: 4GiB)",
    )
    add(
        "--tensor-bytes",
        type=_size,
        default=DEFAULT_TENSOR_BYTES,
        metavar="N",
        help="longest tensor taken from the network (default: 256MiB)",
    )
    add(
        "--connections",
        type=_count,
        default=MAX_CONNECTIONS,
        metavar="N",
        help="connections of each port at most; those of whom nothing is known yet have room of "
        "their own (default: %(default)s)",
    )
    add(
        "--longest-lease",
        type=_seconds,
        default=LONGEST_LEASE_S,
        metavar="SECONDS",
        help="for how long a silent launcher keeps this agent at most (default: %(default)g)",
    )
    add("--engine", choices=get_args(EngineName), default="auto", help="default: auto")
    add(
        "--cpus",
        type=_cpus,
        default=(),
        metavar="LIST",
        help="run on these CPUs only, such as 0,1 or 0-3",
    )
    add(
        "--exit-with-parent",
        action="store_true",
        help="exit at the end of standard input, or when a launcher says Shutdown",
    )
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="default: warning",
    )
    add("--json", action="store_true", help="print one JSON object when it has stopped")
    add("--version", action="version", version=f"node-agent {VERSION}")
    return parser


def _address(text: str) -> str:
    tcp = re.fullmatch(r"tcp://(?:\[[^\]]+\]|[^:/]+):(\d{1,5})", text)
    if re.fullmatch(r"ipc://.+", text) or (tcp is not None and int(tcp[1]) <= 65535):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither tcp://HOST:PORT nor ipc://PATH")


def _name(text: str) -> str:
    if text and text != HOST and len(text) <= 200:
        return text
    raise argparse.ArgumentTypeError(f"{text!r} cannot be a node's name")


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if re.fullmatch(r"[1-9]\d{0,5}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text) is None or not float(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return float(text)


def _cpus(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} is no list of CPUs, such as 0,1 or 0-3")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _keep_to(cpus: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        allowed = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
        raise NodeError(
            f"cannot keep to the CPUs {','.join(map(str, cpus))}: this machine offers {allowed}"
        ) from error


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "csdf-edge"


if __name__ == "__main__":
    sys.exit(main())
