"""Checks one board from the launching machine, all of its parts in turn.

A later part needs an earlier one: an unreachable agent cannot be queried. A part that could not be
read is None in the reading, and makes no finding.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.config.access import DEFAULT_FOLDER, Access
from launcher.config.node import NodeConfig
from launcher.core.events import MessageMalformed, MessageReceived, NotAdmitted
from launcher.doctor.conversation import ANSWER_S, ConversationReading, converse
from launcher.doctor.path import PathReading, PortReach, Reach, reach, read_path
from launcher.quantities import megabytes
from launcher.run.doors import candidates
from launcher.run.roll_call import greeting
from launcher.upgrade.boards import bracketed
from nodes.core.engines import AUTO, EngineLackingError, resolve
from nodes.doctor.findings import Finding, Severity
from nodes.protocol.addresses import host_of
from nodes.protocol.messages import PROTOCOL, Refused, Welcome, is_understood
from partition.pricing.memory_budget import START_UP_BYTES

if TYPE_CHECKING:
    from nodes.net.keys import KeyFolder

LEASE_S = 10.0
"""How long an agent keeps the doctor's session if the doctor vanishes."""

SLOW_BYTES_PER_S = 1e6
"""A slower link is always a finding."""

SLOW_SHARE = 0.5
"""The share of the rate in cluster.yaml below which a link is a finding."""

FAST_BYTES_PER_S = 40e6
"""A link at least this fast is not a finding: the agent, which hashes and writes what it is sent,
may be slower than the link.
"""

CLOCK_TOLERANCE = 0.02
"""How much faster or slower an agent's steady clock may be."""


@dataclass(frozen=True)
class Board:
    """A node at an address, what is needed to talk with it, and what its share of a plan needs.

    `file` is the cluster.yaml, and `version` this package's here. `ring` has the launcher's keys if
    they could be read; `needed_bytes` is None if no plan is known. The agent has `greeting_s` to
    answer the greeting.
    """

    node: NodeConfig
    address: str
    access: Access
    file: Path
    version: str
    ring: KeyFolder | None = None
    needed_bytes: int | None = None
    greeting_s: float = ANSWER_S

    @property
    def host(self) -> str:
        """The host of its address."""
        return str(host_of(self.address))


@dataclass(frozen=True, slots=True)
class BoardReading:
    """The readings of a board; a part is None if it could not be tried."""

    control: PortReach
    path: PathReading | None = None
    talk: ConversationReading | None = None
    data: PortReach | None = None


def read_board(board: Board) -> BoardReading:
    """Connect to a board, measure the path, talk with its agent, and try its data port."""
    control = reach(board.address)
    if control.reach is not Reach.CONNECTED:
        return BoardReading(control)
    reading = BoardReading(control, read_path(board.address))
    guarded = board.access.guards(board.address)
    if guarded and (board.ring is None or board.node.name not in board.ring.nodes):
        return reading  # the check of keys says so
    talk = converse(
        board.node.name,
        board.address,
        greeting(LEASE_S),
        board.ring if guarded else None,
        lambda _: guarded,
        board.greeting_s,
    )
    reading = replace(reading, talk=talk)
    greeted = talk.greeted
    if greeted.welcome is None:
        return reading
    given, offered = board.node.data_address, greeted.welcome.data_address
    tried = map(reach, candidates(given, offered, board.address, greeted.host))
    first = next(tried)
    found = (each for each in (first, *tried) if each.reach is Reach.CONNECTED)
    return replace(reading, data=next(found, first))


def judge_board(board: Board, reading: BoardReading) -> list[Finding]:
    """Return what is wrong with a board."""
    if reading.control.reach is not Reach.CONNECTED:
        return [_unreached(board, reading.control)]
    found = [] if reading.path is None else _judge_path(board, reading.path, reading.talk)
    if reading.talk is None:
        return found
    found += _judge_talk(board, reading.talk, is_explained=bool(found))
    if reading.data is not None and reading.data.reach is not Reach.CONNECTED:
        port = reading.data.address.rpartition(":")[2]
        found.append(
            Finding(
                Severity.ERROR,
                reading.data.address,
                "The agent's control port can be reached, but its data port cannot "
                f"({reading.data.reach.value}), so no frame would arrive: a firewall lets only "
                "one of the two through, or only one is forwarded. If it has another number here, "
                "write that into cluster.yaml (`data:` of the node).",
                _there(board, f"sudo ufw allow {port}/tcp"),
            )
        )
    return found


def _there(board: Board, command: str) -> str:
    """Return the command that runs `command` on the board."""
    return f"ssh {board.host} {shlex.quote(command)}"


def _unreached(board: Board, port: PortReach) -> Finding:
    number = port.address.rpartition(":")[2]
    if port.reach is Reach.UNKNOWN_HOST:
        return Finding(
            Severity.ERROR,
            board.address,
            f"The host name {board.host!r} is unknown here ({port.words}). Write its IP address "
            "into cluster.yaml, or make the name known.",
            f"getent hosts {shlex.quote(board.host)}",
        )
    if port.reach is Reach.REFUSED:
        keys = " --keys csdf-keys" if board.access.guards(board.address) else ""
        listen = f"tcp://{'0.0.0.0' if keys else board.host}:{number}"  # noqa: S104 - a hint
        return Finding(
            Severity.ERROR,
            board.address,
            "The machine answers, but nothing listens on that port: its agent does not run, or "
            "listens on another port or only on loopback.",
            _there(board, f"node-agent --listen {listen}{keys}"),
        )
    return Finding(
        Severity.ERROR,
        board.address,
        f"There is no answer ({port.words or 'no packet came back'}): the machine is off, the "
        "network between is down, or a firewall drops what goes to that port.",
        f"ping -c 3 {shlex.quote(board.host)}; ip route get {shlex.quote(board.host)}",
    )


def _judge_path(board: Board, path: PathReading, talk: ConversationReading | None) -> list[Finding]:
    if path.is_black_hole:
        return [
            Finding(
                Severity.ERROR,
                f"the path from {path.interface} to {board.host}",
                f"Packets longer than {path.largest} bytes vanish, though the MTU here is "
                f"{path.interface_mtu}: a hop on the way has a smaller MTU, and the message that "
                "says so is dropped. Long tensors would hang. Set the smaller MTU here, and on "
                "every board that uses this path.",
                f"sudo ip link set dev {path.interface} mtu {path.largest}",
            )
        ]
    stuck = talk is not None and talk.long_passed is False
    if stuck and path.largest is None:
        return [
            Finding(
                Severity.ERROR,
                f"the path from {path.interface} to {board.host}",
                "Short messages pass, but one of 17 KB does not: long packets are lost on the "
                "way. 1280 bytes pass nearly everywhere.",
                f"sudo ip link set dev {path.interface} mtu 1280",
            )
        ]
    return []


def _judge_talk(board: Board, talk: ConversationReading, *, is_explained: bool) -> list[Finding]:
    """Judge a conversation; `is_explained` says that the path may explain a missing answer."""
    match talk.greeted.cause:
        case MessageReceived(_, Welcome() as welcome) if talk.greeted.welcome is not None:
            return [
                *_judge_welcome(board, welcome),
                *_judge_link(board, talk),
                *_judge_clock(board, talk),
            ]
        case MessageReceived(_, Welcome(protocol) | Refused(_, protocol)) if not is_understood(
            protocol
        ):
            return [_other_protocol(board, f"protocol {protocol}")]
        case MessageReceived(_, Refused(why)):
            text = f"The agent is in use, so neither it nor its link was examined: {why}."
            return [Finding(Severity.NOTE, board.address, text, "")]
        case NotAdmitted(_, error):
            text = _sentence(str(error))
            return [Finding(Severity.ERROR, board.address, text, _send_keys(board))]
        case MessageMalformed(_, why):
            what = f"something that this launcher cannot read ({why})"
            return [_other_protocol(board, what)]
        case _:
            pass
    if is_explained:
        return []
    return [
        Finding(
            Severity.ERROR,
            board.address,
            "Something listens there but does not answer as an agent does: another program, an "
            "agent that hangs, or a path that loses long packets.",
            _there(board, f"sudo ss -ltnp 'sport = :{board.address.rpartition(':')[2]}'"),
        )
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _send_keys(board: Board) -> str:
    """Return the command that makes the missing keys and copies the board's to it."""
    if not board.access.guards(board.address) and not board.access.insecure:
        return f"echo 'keys: {DEFAULT_FOLDER}' >> {shlex.quote(str(board.file))}"
    folder = shlex.quote(str(board.access.keys / board.node.name))
    make = f"launch {shlex.quote(str(board.file))} --make-keys"
    return f"{make} && rsync -a --delete {folder}/ {bracketed(board.host)}:csdf-keys/"


def _other_protocol(board: Board, theirs: str) -> Finding:
    return Finding(
        Severity.ERROR,
        board.address,
        f"The agent speaks {theirs}, and this launcher protocol {PROTOCOL}: install the same "
        "version on both, and start the agent again (deploy/README.md).",
        f"scp {_wheel(board)} {bracketed(board.host)}: && "
        + _there(
            board,
            f"sudo /opt/csdf-edge/current/bin/pip install ./{_wheel(board).name} && "
            "sudo systemctl restart node-agent",
        ),
    )


def _wheel(board: Board) -> Path:
    """Return the wheel of this version, which no package index has: docs/install.md builds it."""
    return Path("dist") / f"csdf_edge-{board.version}-py3-none-any.whl"


def _judge_welcome(board: Board, welcome: Welcome) -> list[Finding]:
    found = []
    if welcome.version != board.version:
        found.append(
            Finding(
                Severity.WARNING,
                board.address,
                f"The agent is of version {welcome.version}, and this launcher of "
                f"{board.version}. They understand each other, but were not tested together.",
                f"launch upgrade {shlex.quote(str(board.file))} --wheel {_wheel(board)} "
                f"--node {shlex.quote(board.node.name)}",
            )
        )
    try:
        resolve(board.node.choice, welcome.engines)
    except EngineLackingError as error:
        found.append(
            Finding(
                Severity.ERROR,
                f"{board.address}, {error.key}",
                f"The agent {error}.",
                _there(board, _engine_command(board)),
            )
        )
    return found + _judge_memory(board, welcome)


def _engine_command(board: Board) -> str:
    """Return the command that installs the engine which a board lacks, or shows what it has."""
    engine = board.node.engine
    if engine in ("openvino", "tensorrt", "tvm"):
        return f"pip install 'csdf-edge[{engine}]'"
    if engine in (AUTO, "onnxruntime"):
        return "pip install 'csdf-edge[cpu]'"
    return "node-agent --describe"


def _judge_memory(board: Board, welcome: Welcome) -> list[Finding]:
    if welcome.available_bytes is None:
        return []
    free = welcome.available_bytes + welcome.rss_bytes
    wanted, why = board.node.memory, "cluster.yaml lets it use"
    if board.needed_bytes is not None:
        wanted, why = board.needed_bytes, "its part of the plan needs"
    if wanted is None:
        wanted, why = START_UP_BYTES, "an agent with a small network needs"
    if wanted <= free:
        return []
    return [
        Finding(
            Severity.ERROR if board.needed_bytes is not None else Severity.WARNING,
            f"{board.address}, memory",
            f"{megabytes(free)} are available there, but {why} {megabytes(wanted)}. End other "
            f"programs on it, or write `memory: {free * 9 // 10**7}MB` for it into cluster.yaml.",
            _there(board, "ps -eo rss,pid,args --sort -rss | head -n 10"),
        )
    ]


def _judge_link(board: Board, talk: ConversationReading) -> list[Finding]:
    if talk.failure:
        return [
            Finding(
                Severity.ERROR,
                f"{board.address}, a transfer of some MB",
                f"It failed: {talk.failure}.",
                _there(board, "node-agent --doctor"),
            )
        ]
    if talk.bytes_per_s is None:
        return []
    expected = board.node.link
    least = min(FAST_BYTES_PER_S, max(SLOW_BYTES_PER_S, SLOW_SHARE * (expected or 0.0)))
    if talk.bytes_per_s >= least:
        return []
    said = f", and cluster.yaml says {megabytes(expected)}/s" if expected else ""
    return [
        Finding(
            Severity.WARNING,
            f"the link to {board.host}",
            f"It carries {megabytes(talk.bytes_per_s)}/s{said}: a WLAN, a bad cable, another "
            "transfer, or a slow card in the board. Make a profile, so that plans use the "
            "measured rate.",
            f"csdf-edge partition profile --cluster {shlex.quote(str(board.file))}",
        )
    ]


def _judge_clock(board: Board, talk: ConversationReading) -> list[Finding]:
    if talk.clock_rate is None:
        return []
    off = abs(talk.clock_rate - 1)
    if off <= CLOCK_TOLERANCE + talk.clock_error:
        return []
    return [
        Finding(
            Severity.WARNING,
            f"{board.address}, its steady clock",
            f"It advances {talk.clock_rate:.3f} s per second of this machine's: a virtual machine "
            "with a bad clock source. Measured times and time limits are wrong by this factor.",
            _there(board, "cat /sys/devices/system/clocksource/clocksource0/*_clocksource"),
        )
    ]


def facts_of(reading: BoardReading) -> dict[str, str]:
    """Return facts about a board and its link, for people."""
    talk = reading.talk
    if talk is None or (welcome := talk.greeted.welcome) is None:
        return {}
    facts = {
        "machine": welcome.machine,
        "csdf-edge": welcome.version,
        "protocol": str(welcome.protocol),
        "engine": welcome.engine,
        "cores": str(welcome.cores),
    }
    if welcome.available_bytes is not None:
        facts["available"] = megabytes(welcome.available_bytes)
    if talk.round_trip_s is not None:
        facts["round trip"] = f"{talk.round_trip_s * 1e3:.2f} ms"
    if talk.bytes_per_s is not None:
        facts["link"] = f"{megabytes(talk.bytes_per_s)}/s"
    if reading.path is not None and reading.path.largest is not None:
        facts["path MTU"] = str(reading.path.largest)
    return facts
