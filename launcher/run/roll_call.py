"""Greets agents over connections, all at the same time, until each has answered or is absent.

`launcher.core.roll` decides. Before a plan is made, the sessions are ended at once. The run that
follows uses the same name of a session, so an agent admits it even if that run's greeting arrives
before the end of the first session (`nodes.core.session`).
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from types import MappingProxyType

from launcher.core import sentences
from launcher.core.events import Action, Redial, Send
from launcher.core.roll import MEASURES_STILL, Question, Roll, RollCall
from launcher.core.sentences import AGENT_COULD_NOT_START, could_not_start
from launcher.core.session import Contact, Session
from launcher.errors import BadInputError, LauncherError, reason
from launcher.run.connections import Connections
from launcher.run.processes import LocalAgent
from launcher.run.runtime import REMOTE_S
from launcher.threads import in_thread
from nodes.core.events import DataReceived
from nodes.host.owner import process_id
from nodes.net.sockets import AddressError
from nodes.net.waiter import Readable
from nodes.protocol.addresses import host_of, is_ip_address
from nodes.protocol.messages import PROTOCOL, Hello

ASLEEP_S = 20.0
"""How long agents of slots may take to answer: they may have to be started first."""

LOOK_EVERY_S = 0.2
"""How often to check for agents that have ended."""

MEASURING_S = 60.0
"""How long boards that have answered may measure themselves. A board with one core takes two
seconds, once. The figures of a board that takes longer are used by the next launch, but planning
such a board by estimates costs more: the run begins with a bad plan and has to be changed."""

SHOWN_AFTER_S = 3.0
"""The time after which it is shown that boards measure themselves."""

MOST_OWNER = 200
"""The longest name of a launcher, in characters, that the protocol allows."""


def greeting(lease_s: float, session: str | None = None) -> Hello:
    """Return the first message to every agent, with a random name if no `session` is given.

    It names this launcher, for the error of other launchers that the agent refuses meanwhile.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = f"user {os.getuid()}"
    owner = f"{user}@{socket.gethostname()}, process {os.getpid()}"
    return Hello(
        PROTOCOL, session or secrets.token_hex(16), lease_s, owner[:MOST_OWNER], process_id()
    )


def call_roll(
    connections: Connections,
    contacts: Iterable[Contact],
    hello: Hello,
    timeout_s: float,
    remote_s: float = REMOTE_S,
    agents: Mapping[str, LocalAgent] = MappingProxyType({}),
    *,
    keeps: bool = False,
    wanted: Mapping[str, Question] = MappingProxyType({}),
    show: Callable[[int, int], None] = lambda *_: None,
) -> Roll:
    """Greet the agents of `contacts`, and return their answers.

    `agents` may still be starting: they have `timeout_s` to answer. Other agents have at most
    `remote_s`, or `ASLEEP_S` if their node has slots. Agents in `wanted` have `MEASURING_S` more to
    report their boards' figures; if that takes long, `show` is called with the number of boards
    that have, and of all. The sessions are ended at once, unless the caller `keeps` them.
    Raises `BadInputError` if one of `agents` could not start.
    """
    began_s = time.monotonic()
    call = RollCall(contacts, hello, keeps=keeps, wanted=wanted)
    since_s: dict[str, float] = {}
    looked_up: dict[str, Future[str]] = {}
    for node, session in tuple(call.waiting.items()):
        try:
            connections.open_control(node, session.address)
        except AddressError as error:
            call.give_up(node, BadInputError(f"node {node!r}: {error}"), stays=True)
            continue
        host = host_of(session.address)
        if host is not None and not is_ip_address(host):  # ZeroMQ tries again and says nothing
            looked_up[node] = in_thread(partial(_look_up, host), "look-up")
    _perform(connections, call, call.begin())
    while call.waiting:
        for arrival in connections.wait(LOOK_EVERY_S):
            if not isinstance(arrival, DataReceived | Readable):
                _perform(connections, call, call.handle(arrival))
        now_s = time.monotonic()
        passed_s = now_s - began_s
        measuring = tuple(call.measuring)
        if measuring and passed_s > SHOWN_AFTER_S:
            show(len(wanted) - len(measuring), len(wanted))
        late = [n for n in measuring if now_s > since_s.setdefault(n, now_s) + MEASURING_S]
        for node in late:
            _perform(connections, call, call.settle(node, MEASURES_STILL))
        silent = [(n, each) for n, each in call.waiting.items() if n not in call.measuring]
        for node, session in silent:
            if node in agents and agents[node].exit_code() == AGENT_COULD_NOT_START:
                raise could_not_start(node, agents[node].stderr_tail())
            patience_s = min(ASLEEP_S if session.slots > 1 else remote_s, timeout_s)
            if node in agents:
                patience_s = timeout_s if agents[node].exit_code() is None else 0.0
            if passed_s > patience_s and not connections.is_searching(node):
                call.give_up(node, _unreachable(session, patience_s, looked_up.get(node)))
    return call.roll


def _perform(connections: Connections, call: RollCall, actions: Iterable[Action]) -> None:
    for action in actions:
        match action:
            case Send(node, message):
                connections.send(node, message)
            case Redial(node):
                connections.redial_control(node, call.waiting[node].address)
            case _:
                raise TypeError(f"a greeting needs no {type(action).__name__}")


def _look_up(host: str) -> str:
    """Return why the name of a host cannot be resolved; empty if it can."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        return f"its host name {host!r} cannot be resolved ({reason(error)})"
    return ""


def _unreachable(session: Session, waited_s: float, looked_up: Future[str] | None) -> LauncherError:
    """Return the error of a node that has not answered, whose host's name is `looked_up`."""
    why = looked_up.result() if looked_up is not None and looked_up.done() else ""
    if not why:
        return sentences.unreachable([session], waited_s)
    return BadInputError(
        f"{sentences.where(session)}: {why}: check its spelling, or write the IP address"
    )
