"""Asks the agents how much memory they have, before a plan is deployed on them.

A launcher greets every agent (`Hello`), takes its `Welcome` and ends the session (`Bye`). The run
that follows greets the agents by the same name of a session, so an agent admits it whichever of the
two connections it hears first (`nodes.core.session`).

Of a node with several slots, the first one that is free answers. An agent that does not answer is
left out; the run says what is wrong with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from launcher.core.events import MessageMalformed, MessageReceived
from launcher.core.sentences import AGENT_COULD_NOT_START, could_not_start
from launcher.core.session import Contact
from launcher.run.connections import Barred, Connections
from launcher.run.processes import LocalAgents
from nodes.net.sockets import AddressError
from nodes.protocol.messages import Bye, Hello, Refused, Welcome

REMOTE_S, ASLEEP_S = 3.0, 20.0
"""How long agents that run already may take to answer, and those of slots, which may have to be
started first."""

LOOK_EVERY_S = 0.2
"""How often to look for agents that have ended."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What an agent says of itself, and at which address."""

    welcome: Welcome
    address: str


def survey(
    connections: Connections,
    contacts: Iterable[Contact],
    agents: LocalAgents,
    hello: Hello,
    timeout_s: float,
) -> dict[str, Surveyed]:
    """Return what the agents of nodes say of themselves within `timeout_s`, by node.

    Only those among `agents`, which may be starting still, have more than `ASLEEP_S`. Raises
    `BadInputError` if one of these could not start.
    """
    began_s = time.monotonic()
    found: dict[str, Surveyed] = {}
    slots = {contact.name: [contact.address, *contact.others] for contact in contacts}
    sleepers = {node for node, addresses in slots.items() if len(addresses) > 1}
    waiting = set()
    for node, addresses in slots.items():
        try:
            connections.open_control(node, addresses[0])
        except AddressError:
            continue
        connections.send(node, hello)
        waiting.add(node)
    while waiting:
        for arrival in connections.wait(LOOK_EVERY_S):
            match arrival:
                case MessageReceived(node, Refused()) if len(slots[node]) > 1:
                    slots[node].pop(0)
                    connections.reopen_control(node, slots[node][0])
                    connections.send(node, hello)
                case MessageReceived(node, message):
                    waiting.discard(node)
                    if isinstance(message, Welcome):
                        found[node] = Surveyed(message, slots[node][0])
                        connections.send(node, Bye())
                case MessageMalformed(node) | Barred(node):
                    waiting.discard(node)
                case _:
                    pass
        passed_s = time.monotonic() - began_s
        for node in waiting & agents.keys():
            if agents[node].exit_code() == AGENT_COULD_NOT_START:
                raise could_not_start(node, agents[node].stderr_tail())
        waiting -= {
            node
            for node in waiting
            if passed_s > _patience_s(node, agents, timeout_s, has_slots=node in sleepers)
        }
    return found


def _patience_s(node: str, agents: LocalAgents, timeout_s: float, *, has_slots: bool) -> float:
    if node not in agents:
        return min(ASLEEP_S if has_slots else REMOTE_S, timeout_s)
    return timeout_s if agents[node].exit_code() is None else 0.0
