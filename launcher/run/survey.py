"""Asks the agents about themselves before a plan is deployed on them.

A launcher greets every agent (`Hello`), takes its `Welcome` and ends the session (`Bye`). The run
that follows greets the agents by the same name of a session, so an agent admits it whichever of the
two connections it hears first (`nodes.core.session`).

Of a node with several slots, the first one that is free answers. An agent that does not answer, or
refuses, is absent, and so is one whose data port cannot be reached. A run may begin without it, and
says why.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from launcher.core import sentences
from launcher.core.events import ClosedEarly, MessageMalformed, MessageReceived
from launcher.core.sentences import AGENT_COULD_NOT_START, could_not_start
from launcher.core.session import Contact, Session
from launcher.errors import BadInputError, LauncherError, reason
from launcher.run.access import barred
from launcher.run.connections import Arrival, Barred, Connections, DoorShut
from launcher.run.processes import LocalAgents
from launcher.run.runtime import REMOTE_S, Surveyed
from nodes.core.events import LinkChange
from nodes.core.session import older_hello, takeover_hello
from nodes.host.owner import has_ended
from nodes.net.sockets import AddressError
from nodes.protocol.addresses import host_of, is_ip_address
from nodes.protocol.messages import Bye, Control, Hello, Refused, Welcome, is_understood

ASLEEP_S = 20.0
"""How long agents of slots may take to answer: they may have to be started first."""

LOOK_EVERY_S = 0.2
"""How often to look for agents that have ended."""


def survey(
    connections: Connections,
    contacts: Iterable[Contact],
    agents: LocalAgents,
    hello: Hello,
    timeout_s: float,
    remote_s: float = REMOTE_S,
    keys: Path | None = None,
) -> Surveyed:
    """Return what the agents of `contacts` say of themselves within `timeout_s`.

    Only those among `agents`, which may be starting still, have more than `remote_s`, and those of
    slots more than `ASLEEP_S`. `keys` is the
    launching machine's folder of keys, if it uses any. Raises `BadInputError` if one of `agents`
    could not start.
    """
    began_s = time.monotonic()
    call = _RollCall(connections, hello, keys)
    for contact in contacts:
        call.greet(contact)
    while call.waiting:
        for arrival in connections.wait(LOOK_EVERY_S):
            call.receive(arrival)
        passed_s = time.monotonic() - began_s
        for node in call.waiting.keys() & agents.keys():
            if agents[node].exit_code() == AGENT_COULD_NOT_START:
                raise could_not_start(node, agents[node].stderr_tail())
        for node in list(call.waiting):
            sleeps = call.waiting[node].slots > 1
            patience_s = _patience_s(node, agents, timeout_s, ASLEEP_S if sleeps else remote_s)
            if passed_s > patience_s and not connections.is_searching(node):
                call.miss(node, call.unreachable(node, patience_s))
    return call.found


class _RollCall:
    """The nodes that have answered, and the sessions of those whose answer is awaited."""

    def __init__(self, connections: Connections, hello: Hello, keys: Path | None) -> None:
        self.found = Surveyed()
        self.waiting: dict[str, Session] = {}
        self._connections = connections
        self._hello = hello
        self._hellos: dict[str, Hello] = {}
        self._keys = keys
        self._unknown: dict[str, str] = {}

    def greet(self, contact: Contact) -> None:
        """Greet an agent."""
        try:
            self._connections.open_control(contact.name, contact.address)
        except AddressError as error:
            self.found.absent[contact.name] = f"node {contact.name!r}: {error}"
            self.found.hopeless.add(contact.name)
            return
        self._greet(contact.name, self._hello)
        host = host_of(contact.address)
        if host is not None and not is_ip_address(host):  # ZeroMQ tries again and says nothing
            threading.Thread(target=self._look_up, args=(contact.name, host), daemon=True).start()
        session = Session(
            contact.name,
            contact.address,
            contact.started_by_us,
            other_slots=deque(contact.others),
        )
        self.waiting[contact.name] = session

    def _look_up(self, node: str, host: str) -> None:
        try:
            socket.getaddrinfo(host, None)
        except Exception as error:  # noqa: BLE001 - OSError and UnicodeError; none may be lost
            self._unknown[node] = f"the name {host!r} of its host is not known ({reason(error)})"

    def unreachable(self, node: str, waited_s: float) -> LauncherError:
        """Return why a node has not answered."""
        session = self.waiting[node]
        if node in self._unknown:
            return BadInputError(
                f"{sentences.where(session)}: {self._unknown[node]}: check its spelling, or write "
                "the IP address"
            )
        return sentences.unreachable([session], waited_s)

    def _greet(self, node: str, hello: Hello) -> None:
        self._hellos[node] = hello
        self._connections.send(node, hello)

    def receive(self, arrival: Arrival) -> None:
        """Take in what arrives; an answer of an agent that has answered already is ignored."""
        match arrival:
            case MessageReceived(node, message) if node in self.waiting:
                self._answered(node, message)
            case MessageMalformed(node, reason) if node in self.waiting:
                self.miss(node, sentences.unintelligible(self.waiting[node], reason))
            case DoorShut(node, tried) if node in self.waiting:
                self._connections.send(node, Bye())
                self.miss(node, sentences.data_port_shut(self.waiting[node], tried))
            case ClosedEarly(node) if node in self.waiting:
                self.waiting[node].closes_early = True
            case Barred(node, why) if node in self.waiting:
                if self._keys is None and why is LinkChange.HANDSHAKES_FAIL:
                    self.waiting[node].closes_early = True
                else:
                    error = barred(node, self.waiting[node].address, self._keys, why)
                    self.miss(node, error, stays=why is not LinkChange.HANDSHAKES_FAIL)
            case _:
                pass

    def _answered(self, node: str, answer: Control) -> None:
        session = self.waiting[node]
        if isinstance(answer, Refused):
            hello = self._hellos[node]
            # It speaks an older version, or the launcher that holds it is known to have ended.
            again = older_hello(hello, answer)
            again = again or takeover_hello(hello, answer, has_ended(answer.holder))
            if again is not None:
                self._greet(node, again)
            elif session.try_next_slot():
                self._connections.redial_control(node, session.address)
                self._greet(node, self._hello)
            else:
                error = sentences.refused(session, answer, self._hello.process)
                self.miss(node, error, stays=not is_understood(answer.protocol))
            return
        if not isinstance(answer, Welcome):
            what = f"it answered {type(answer).__name__}"
            self.miss(node, sentences.unintelligible(session, what))
            return
        self._connections.send(node, Bye())
        if not is_understood(answer.protocol):
            self.miss(node, sentences.other_protocol(session, answer.protocol), stays=True)
            return
        self.found.welcomes[node] = answer
        self.found.addresses[node] = session.address
        del self.waiting[node]

    def miss(self, node: str, why: LauncherError, *, stays: bool = False) -> None:
        """Note why a node is absent, and whether it stays so until a user changes something."""
        self.found.absent[node] = str(why)
        if stays:
            self.found.hopeless.add(node)
        del self.waiting[node]


def _patience_s(node: str, agents: LocalAgents, timeout_s: float, remote_s: float) -> float:
    if node not in agents:
        return min(remote_s, timeout_s)
    return timeout_s if agents[node].exit_code() is None else 0.0
