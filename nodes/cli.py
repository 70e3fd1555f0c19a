"""The command `node-agent`, the daemon of one device: its options, its start and its end.

Exit codes: 0 if it was stopped (SIGTERM, SIGINT, a launcher's `Shutdown`, its parent's end); 1 if
`--doctor` or `--trial` found an error; 2 if it could not start, because the address is in use, the
cache or the keys cannot be used, there is no engine, or other machines could reach it and there are
no keys; 130 for Ctrl-C before it was ready.
An agent whose engine does not return restarts in the same process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import nodes.host.single_threaded_blas  # noqa: F401 - before NumPy
from nodes.agent import Shell
from nodes.cache.blobs import BlobStore
from nodes.core.engines import AUTO, described
from nodes.core.session import LONGEST_LEASE_S
from nodes.core.slots import MOST_SLOTS
from nodes.doctor.setup import AgentSetup
from nodes.execution.encoding import AVAILABLE
from nodes.executors.engines import Engines
from nodes.executors.registry import offers
from nodes.host.control_groups import available_bytes
from nodes.host.energy.opening import OFF, open_meter
from nodes.host.folders import user_folder
from nodes.host.heap import give_back_free_memory
from nodes.host.listening import GivenSockets, given_sockets
from nodes.host.logs import begin_json_log
from nodes.host.process import (
    exit_at_once,
    own_command,
    python_command,
    restart_in_place,
    use_standard_files,
)
from nodes.host.sandbox import sandbox_agent
from nodes.host.systemd import ServiceManager
from nodes.host.time_slice import ask_for_short_slices
from nodes.host.usage import PeakMemory, machine, usage
from nodes.net.announcing import announced, check_can_announce, hosts_of
from nodes.net.curve import default_keys, keygen
from nodes.net.keys import SECRET, KeyFolder, KeysError
from nodes.net.listener import MAX_CONNECTIONS
from nodes.net.sockets import AddressError
from nodes.net.wire import Wire
from nodes.protocol.addresses import (
    MOST_PORT,
    host_of,
    is_exposed,
    is_loopback_host,
    slot_ports,
)
from nodes.protocol.announcements import Announcement
from nodes.protocol.errors import NodeError
from nodes.protocol.fields import printable
from nodes.protocol.messages import HOST, PROTOCOL, Welcome
from nodes.protocol.sizes import parse_bytes
from nodes.quotas import DEFAULT_CACHE_BYTES, DEFAULT_TENSOR_BYTES, Quotas, allow_descriptors
from nodes.slots.settings import DEFAULT_IDLE_S, Settings, become_parent

if TYPE_CHECKING:
    from nodes.net.metrics import MetricsServer

VERSION = "0.1.0"
"""The version of this package, as in its metadata; reading these would cost an agent 5 MB."""

log = logging.getLogger("node-agent")

EXIT_FINE = 0
EXIT_FAULT = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until it is stopped; return the exit code."""
    use_standard_files()
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["keygen"]:
        return keygen(given[1:])
    options = _parser().parse_args(given)
    if options.describe or options.doctor or options.trial:
        return _look(options)
    os.umask(0o077)  # engines write files into the cache, which other users must not read
    try:
        if options.cpus:
            _keep_to(options.cpus)
        ask_for_short_slices()
        keyring = _keyring(options)
        rereads = keyring is not None and not os.isatty(0)  # with a terminal, SIGHUP ends the agent
        sockets = _sockets(options, arguments, rereads=rereads)
        if rereads:  # until there is a shell to handle it
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        metrics = _metrics(options, keyring)
        identity, control, shell, unsandboxed = _build(options, keyring, sockets)
    except NodeError as error:
        _say(options, str(error), logging.ERROR)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        _say(options, "interrupted", logging.ERROR)
        return EXIT_INTERRUPTED
    _begin_log(options, shell, _log_name(options, sockets))
    announcing = _announced(options, identity, control, keyring is not None)
    with _answering(metrics, shell), shell, announcing:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stopping(shell))
        if rereads:
            signal.signal(signal.SIGHUP, lambda *_: shell.reread_keys())
        shell.watch_signals()
        ready = (
            f"{VERSION} {identity.name!r} ready: control {control}, "
            f"data {identity.data_address}, {identity.engine}, "
            + (f"metrics {metrics.address}, " if metrics is not None else "")
            + f"{identity.rss_bytes / 1e6:.1f} MB resident"
        )
        _say(options, ready, logging.INFO)
        if unsandboxed is not None:
            log.info("this agent can open every file of its user: %s", unsandboxed)
        report = shell.run()
    if shell.is_restarting:
        _restart(control, identity.data_address, sockets)
    if options.json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
    if shell.is_abandoned:
        exit_at_once(EXIT_FINE)
    return EXIT_FINE


def _begin_log(options: argparse.Namespace, shell: Shell, name: str) -> None:
    if options.log_format == "json":
        begin_json_log(_level(options), lambda: {"run": shell.run_name, "node": options.name})
        return
    logging.basicConfig(
        stream=sys.stderr,
        level=_level(options),
        format=f"{name} %(asctime)s %(levelname)s %(message)s",
    )


@contextmanager
def _answering(metrics: MetricsServer | None, shell: Shell) -> Iterator[None]:
    """Answer Prometheus while the context lasts, if that is wanted."""
    if metrics is not None:
        metrics.begin(shell.look)
    try:
        yield
    finally:
        if metrics is not None:
            metrics.close()


def _say(options: argparse.Namespace, text: str, level: int) -> None:
    """Write a line to standard error, whichever levels are logged; as JSON if that is wanted."""
    if options.log_format == "json":
        if not logging.getLogger().handlers:  # no shell exists yet
            begin_json_log(_level(options), lambda: {"node": options.name})
        log.handle(log.makeRecord(log.name, level, __file__, 0, text, (), None))
        return
    separator = " " if level == logging.INFO else ": "
    sys.stderr.write(f"node-agent{separator}{text}\n")
    sys.stderr.flush()


def _level(options: argparse.Namespace) -> int:
    """The least level that is logged: of a JSON log, which machines filter, `info`."""
    usual = "info" if options.log_format == "json" else "warning"
    return int(logging.getLevelName((options.log_level or usual).upper()))


def _metrics(options: argparse.Namespace, keyring: KeyFolder | None) -> MetricsServer | None:
    """Listen where Prometheus is to be answered, if anywhere.

    Raises `NodeError` if other machines can reach that address and nothing says that they may.
    """
    if options.metrics is None:
        return None
    host, port = options.metrics
    if not is_loopback_host(host) and keyring is None and not options.insecure:
        raise NodeError(
            f"--metrics {host}:{port} can be reached from other machines, and everybody who "
            "reaches it can read the metrics: use --keys DIR or --insecure, or 127.0.0.1"
        )
    from nodes.net.metrics import MetricsServer  # noqa: PLC0415 - only where it is wanted

    return MetricsServer(host, port)


def _restart(control: str, data: str, sockets: GivenSockets | None) -> NoReturn:
    if sockets is not None:
        restart_in_place(kept=sockets.count)
    # With the same addresses, also if the system had chosen the ports.
    restart_in_place(("--listen", control, "--data", data))


def _look(options: argparse.Namespace) -> int:
    """Look at this machine instead of running an agent."""
    if options.describe:
        return _describe(options)
    return _doctor(options) if options.doctor else _trial(options)


def _describe(options: argparse.Namespace) -> int:
    """Print what each engine offers; opens none."""
    try:
        found = offers(options.engine)
    except NodeError as error:
        _say(options, str(error), logging.ERROR)
        return EXIT_BAD_INPUT
    if options.json:
        text = json.dumps({"engines": [asdict(offer) for offer in found]}, indent=2)
    else:
        text = "\n".join(described(found))
    sys.stdout.write(f"{text}\n")
    return EXIT_FINE


def _doctor(options: argparse.Namespace) -> int:
    """Examine this machine for an agent with these options."""
    from nodes.doctor.examination import doctor  # noqa: PLC0415 - no agent needs it

    try:
        if options.cpus:
            _keep_to(options.cpus)
    except NodeError as error:
        sys.stderr.write(f"node-agent: {error}\n")
        return EXIT_BAD_INPUT
    return doctor(agent_setup(options), as_json=options.json)


def _trial(options: argparse.Namespace) -> int:
    """Have the engine of an agent with these options compute a tiny network."""
    from nodes.doctor.engine import check_engine  # noqa: PLC0415 - no agent needs it

    found = list(check_engine(agent_setup(options)))
    problem = "; ".join(f"{each.where}: {each.what} {each.remedy}" for each in found)
    if options.json:
        sys.stdout.write(json.dumps({"problem": problem}) + "\n")
    elif problem:
        sys.stderr.write(f"node-agent: {problem}\n")
    else:
        sys.stdout.write("the engine computes correctly\n")
    return EXIT_FAULT if found else EXIT_FINE


def agent_setup(options: argparse.Namespace) -> AgentSetup:
    """Return what the doctor's checks depend on of these options."""
    keys = options.keys
    if keys is None and not options.insecure and any(map(is_exposed, _addresses(options))):
        keys = default_keys()
    return AgentSetup(
        options.name,
        VERSION,
        options.listen,
        options.data,
        keys,
        options.cache,
        Quotas(options.cache_bytes, options.tensor_bytes, options.connections),
        options.engine,
        options.device,
    )


def _addresses(options: argparse.Namespace) -> list[str]:
    return [address for address in (options.listen, options.data) if address is not None]


def _stopping(shell: Shell) -> Callable[[int, FrameType | None], None]:
    def stop(number: int, _: FrameType | None) -> None:
        shell.stop(signal.Signals(number).name)

    return stop


def _keyring(options: argparse.Namespace) -> KeyFolder | None:
    """Return the keys to listen with, if any.

    Raises `KeysError` if other machines can reach the agent and there are no keys.
    """
    exposed = [address for address in _addresses(options) if is_exposed(address)]
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
        f"{exposed[0]} can be reached from other machines, and there are no keys in {usual}: use "
        "--keys DIR (`launch cluster.yaml --make-keys` makes the keys of a cluster, `node-agent "
        "keygen` one pair), or --insecure, with which everybody who reaches that port can run "
        "networks here"
    )


def _sockets(
    options: argparse.Namespace, arguments: Sequence[str] | None, *, rereads: bool
) -> GivenSockets | None:
    """Return the listening sockets that this agent was given, if any; with several slots, this
    process becomes the one that gives them."""
    if options.slots > 1:
        become_parent(_settings(options, arguments, rereads=rereads))
    return given_sockets()


def _settings(
    options: argparse.Namespace, arguments: Sequence[str] | None, *, rereads: bool
) -> Settings:
    """Return what the parent of the slots needs of these options.

    Raises `NodeError` if several slots cannot have them.
    """
    if options.data is not None:
        raise NodeError(
            "--slots and --data cannot be combined: each slot's data port follows its control port"
        )
    if options.metrics is not None or options.announce:
        raise NodeError(
            "--slots cannot be combined with --metrics or --announce: agents of slots start and "
            "end on demand"
        )
    if host_of(options.listen) is None:
        raise NodeError(f"--slots needs a TCP address, not {options.listen}")
    last = slot_ports(options.listen, options.slots).stop - 1
    if last > MOST_PORT:
        raise NodeError(
            f"{options.slots} slots at {options.listen} would need ports up to {last}; the "
            f"highest port is {MOST_PORT}"
        )
    # With arguments, it was called by a program and not by a command line.
    command = own_command() if arguments is None else python_command("nodes.cli", *arguments)
    return Settings(
        name=options.name,
        version=VERSION,
        slots=options.slots,
        address=options.listen,
        command=tuple(command),
        idle_s=DEFAULT_IDLE_S if options.exit_idle is None else options.exit_idle,
        rereads_keys=rereads,
        exits_with_parent=options.exit_with_parent,
        json=options.json,
        log_level=_level(options),
        logs_json=options.log_format == "json",
    )


def _log_name(options: argparse.Namespace, sockets: GivenSockets | None) -> str:
    """Return what log lines begin with: with the name of an agent that may be one of several."""
    return "node-agent" if sockets is None else f"node-agent {options.name}".replace("%", "%%")


def _build(
    options: argparse.Namespace, keyring: KeyFolder | None, sockets: GivenSockets | None
) -> tuple[Welcome, str, Shell, str | None]:
    """Open the cache, the engine and the ports.

    Returns the agent's identity, the address of its control port, its shell, and why the process
    could not be restricted to its own files, or None if it is.

    The engine is opened before the sockets, because it sets up the heap that all threads share. The
    meter opens what it will read, and the peak of memory what resets it. Then the process is
    restricted to its own files, while it has no other threads.
    """
    if options.announce:
        check_can_announce(options.listen)
    with ExitStack() as opened:
        quotas = Quotas(options.cache_bytes, options.tensor_bytes, options.connections)
        allow_descriptors(quotas.connections)
        store = BlobStore(options.cache, quotas.cache_bytes)
        opened.callback(store.release)
        engines = Engines(options.engine, options.device, store.derived, store.room)
        opened.callback(engines.close)
        meter, unmetered = open_meter(options.meter)
        if meter is not None:
            opened.callback(meter.close)
        memory = PeakMemory()
        opened.callback(memory.close)
        unsandboxed = _sandbox(options, keyring, engines)
        wire = Wire(
            keyring=keyring,
            tensor_bytes=quotas.tensor_bytes,
            max_connections=quotas.connections,
        )
        opened.callback(wire.close)
        control = wire.listen_control(options.listen, None if sockets is None else sockets.control)
        data = _listen_data(wire, options, control, sockets)
        give_back_free_memory()
        identity = Welcome(
            protocol=PROTOCOL,
            name=options.name,
            version=VERSION,
            data_address=data,
            engine=engines.executor.describe(),
            machine=machine(),
            cores=len(os.sched_getaffinity(0)),
            rss_bytes=usage().rss_bytes,
            encodings=AVAILABLE,
            engines=engines.offers,
            meter="" if meter is None else str(meter.description)[:200],
            unmetered=unmetered,
        )
        shell = Shell(
            identity,
            wire,
            store,
            engines.executor,
            quotas,
            engines=engines,
            obeys_shutdown=options.exit_with_parent,
            longest_lease_s=options.longest_lease,
            parent=sys.stdin.fileno() if options.exit_with_parent else None,
            manager=ServiceManager(reports=None if sockets is None else sockets.reports),
            meter=meter,
            idle_s=options.exit_idle,
            is_slot=sockets is not None,
            memory=memory,
        )
        opened.pop_all()  # from here on the shell closes them
    return identity, control, shell, unsandboxed


def _announced(
    options: argparse.Namespace, identity: Welcome, control: str, guarded: bool
) -> AbstractContextManager[None]:
    """Announce the agent within the context, if the user wants that."""
    if not options.announce:
        return nullcontext()
    return announced(
        Announcement(
            identity.name,
            hosts_of(control),
            int(control.rpartition(":")[2]),
            VERSION,
            PROTOCOL,
            identity.engine,
            identity.machine,
            identity.cores,
            available_bytes(),
            guarded,
        )
    )


def _sandbox(
    options: argparse.Namespace, keyring: KeyFolder | None, engines: Engines
) -> str | None:
    if engines.device != "cpu":
        return f"it computes on the {engines.device}, whose driver chooses the files that it opens"
    return sandbox_agent(options.cache, keyring.folder if keyring else None, _addresses(options))


def _listen_data(
    wire: Wire, options: argparse.Namespace, control: str, sockets: GivenSockets | None
) -> str:
    if sockets is not None:
        return wire.listen_data(options.data or control, sockets.data)
    if options.data is not None:
        return wire.listen_data(options.data)
    if control.startswith("ipc://"):
        return wire.listen_data(f"{control}.data")
    host, _, port = control.rpartition(":")
    if int(port) == MOST_PORT:
        raise AddressError(
            f"{control} is the last port, and the data port follows it: use a lower one, or name "
            "the data port with --data"
        )
    try:
        return wire.listen_data(f"{host}:{int(port) + 1}")
    except AddressError:
        if not (options.exit_with_parent or options.listen.endswith(":0")):
            raise
    return wire.listen_data(f"{host}:0")


class _Parser(argparse.ArgumentParser):
    """Writes a mistake as a line of JSON, if the log is to be JSON."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit."""
        joined = " ".join(sys.argv)
        if "--log-format json" in joined or "--log-format=json" in joined:
            begin_json_log(logging.INFO)
            log.error("%s", message)
            sys.exit(EXIT_BAD_INPUT)
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="node-agent",
        description="Run the daemon of one device: wait for a launcher, load this device's part of "
        "a network, and compute it frame by frame.",
        epilog="`node-agent keygen --out DIR` makes a key pair (`node-agent keygen --help`). "
        "Exit codes: 0 if it was stopped, 1 if --doctor or --trial found an error, 2 if it could "
        "not start.",
    )
    add = parser.add_argument
    add(
        "--listen",
        type=_address,
        default="tcp://127.0.0.1:5500",
        metavar="ADDRESS",
        help="address of the control port, tcp://HOST:PORT or ipc://PATH; with "
        "tcp://0.0.0.0:5500 other machines can reach it, which needs --keys or --insecure "
        "(default: %(default)s)",
    )
    add(
        "--data",
        type=_address,
        metavar="ADDRESS",
        help="address of the data port (default: that of --listen with the next port, or with "
        ".data appended to the path; if the port of --listen is 0, any free port)",
    )
    either = parser.add_mutually_exclusive_group().add_argument
    usual = str(default_keys()).replace("%", "%%")
    either(
        "--keys",
        type=Path,
        metavar="DIR",
        help="folder of this node's keys: connections are encrypted, and only owners of the "
        "public keys in it can connect; it is read again when it changes "
        f"(default: {usual} if other machines can reach this one)",
    )
    either(
        "--insecure",
        action="store_true",
        help="no keys and no encryption: everybody who reaches the ports can run networks here",
    )
    add(
        "--name",
        type=_name,
        default=os.uname().nodename,
        help="the agent's name in messages to the launcher (default: this machine's name)",
    )
    add(
        "--cache",
        type=Path,
        default=_default_cache(),
        metavar="DIR",
        help="folder in which subnets are kept (default: %(default)s)",
    )
    add(
        "--cache-bytes",
        type=_size,
        default=DEFAULT_CACHE_BYTES,
        metavar="N",
        help="maximum size of that folder: subnets, and what the engine compiles from them; such "
        "as 500MB or 4GiB (default: 4GiB)",
    )
    add(
        "--tensor-bytes",
        type=_size,
        default=DEFAULT_TENSOR_BYTES,
        metavar="N",
        help="size of the largest tensor that is accepted from the network (default: 256MiB)",
    )
    add(
        "--connections",
        type=_count,
        default=MAX_CONNECTIONS,
        metavar="N",
        help="maximum number of connections per port; connections whose owner is not yet "
        "identified have a separate limit (default: %(default)s)",
    )
    add(
        "--longest-lease",
        type=_seconds,
        default=LONGEST_LEASE_S,
        metavar="SECONDS",
        help="longest lease that a launcher may ask for: the seconds of silence after which this "
        "agent is free for others (default: %(default)g)",
    )
    add(
        "--engine",
        default=AUTO,
        metavar="NAME",
        help="the inference engine to compute with; a launcher may ask for others only if this is "
        "auto (default: auto, the first that can be used; --describe lists them)",
    )
    add(
        "--device",
        default=AUTO,
        metavar="NAME",
        help="the device to compute on, such as cpu, gpu, gpu:1 or npu; an agent on the cpu is "
        "restricted to its own files and offers no other device (default: auto, the first device "
        "of the engine)",
    )
    add(
        "--describe",
        action="store_true",
        help="print the engines that this machine offers, with devices and precisions, and exit; "
        "with --json as a JSON object",
    )
    add(
        "--announce",
        action="store_true",
        help="announce this agent by multicast DNS, so that `launch discover` finds it; everybody "
        "on the network can then see its name, addresses, engine and processor (default: it is "
        "silent)",
    )
    add(
        "--doctor",
        action="store_true",
        help="check this machine for an agent with these options, print each problem and its "
        "remedy, and exit with code 1 if one would stop the agent; with --json as a JSON "
        "object",
    )
    add(
        "--trial",
        action="store_true",
        help="compute a tiny network with the engine that these options select, compare the result "
        "with the expected numbers, and exit with code 1 if it differs; with --json as a JSON "
        "object",
    )
    add(
        "--meter",
        default=AUTO,
        metavar="NAME",
        help="how to measure the energy that this machine uses: auto (RAPL, INA3221 or INA219, "
        f"whichever can be read), {OFF}, or the name of a plugin (default: %(default)s)",
    )
    add(
        "--cpus",
        type=_cpus,
        default=(),
        metavar="LIST",
        help="CPUs to run on, such as 0,1 or 0-3 (default: all)",
    )
    add(
        "--slots",
        type=_slots,
        default=1,
        metavar="N",
        help="number of deployments that this node can hold at once, each in a separate process "
        "that starts when a launcher connects: slot k has the control port of --listen + 2(k "
        f"- 1), and the next port as data port; at most {MOST_SLOTS} (default: 1, one "
        "permanent process)",
    )
    add(
        "--exit-idle",
        type=_seconds,
        metavar="SECONDS",
        help="exit after this many seconds without a launcher; with --slots, the process of a slot "
        f"exits (default: never, with --slots {DEFAULT_IDLE_S:g})",
    )
    add(
        "--exit-with-parent",
        action="store_true",
        help="exit at the end of standard input, or when a launcher sends Shutdown",
    )
    add(
        "--metrics",
        type=_host_port,
        metavar="HOST:PORT",
        help="serve metrics for Prometheus at http://HOST:PORT/metrics, unencrypted; with a host "
        "that other machines can reach, such as 0.0.0.0:9550, it needs --keys or --insecure "
        "(default: off)",
    )
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="least severe level of messages to write to standard error (default: warning, and "
        "info with --log-format json)",
    )
    add(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: one JSON object per line on standard error, with time, level, message, run and "
        "node (default: text)",
    )
    add(
        "--json",
        action="store_true",
        help="on exit, print a JSON object with statistics; with --slots, also a line for each "
        "agent that ends",
    )
    add("--version", action="version", version=f"node-agent {VERSION}")
    return parser


def _address(text: str) -> str:
    tcp = re.fullmatch(r"tcp://(?:\[[^\]]+\]|[^:/]+):(\d{1,5})", text)
    if re.fullmatch(r"ipc://.+", text) or (tcp is not None and int(tcp[1]) <= 65535):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither tcp://HOST:PORT nor ipc://PATH")


def _host_port(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:/\[\]]+)):(\d{1,5})", text)
    if match is not None and int(match[3]) <= 65535:
        return match[1] or match[2], int(match[3])
    raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")


def _name(text: str) -> str:
    if text and text != HOST and len(text) <= 200 and text == printable(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} cannot be a node's name")


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if re.fullmatch(r"[1-9]\d{0,5}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999")
    return int(text)


def _slots(text: str) -> int:
    if re.fullmatch(r"\d{1,3}", text) is None or not 1 <= int(text) <= MOST_SLOTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_SLOTS}")
    return int(text)


def _seconds(text: str) -> float:
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text) is None or not float(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return float(text)


def _cpus(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of CPUs such as 0,1 or 0-3")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _keep_to(cpus: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        allowed = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
        raise NodeError(
            f"cannot run on the CPUs {','.join(map(str, cpus))}: this machine offers {allowed}"
        ) from error


def _default_cache() -> Path:
    return user_folder("XDG_CACHE_HOME", ".cache") / "csdf-edge"


if __name__ == "__main__":
    sys.exit(main())
