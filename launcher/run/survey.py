"""Asks the agents how much memory they have, before a plan is deployed on them.

A launcher greets every agent (`Hello`), takes its `Welcome` and ends the session (`Bye`). The run
that follows greets the agents by the same name of a session, so an agent admits it whichever of the
two connections it hears first (`nodes.core.session`).

An agent that does not answer is left out; the run says what is wrong with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from launcher.core.events import MessageMalformed, MessageReceived
from launcher.core.sentences import AGENT_COULD_NOT_START, could_not_start
from launcher.run.connections import Barred, Connections
from launcher.run.processes import LocalAgents
from nodes.core.session import older_hello
from nodes.net.sockets import AddressError
from nodes.protocol.messages import Bye, Hello, Refused, Welcome

REMOTE_S = 3.0
"""How long agents that run already may take to answer."""

LOOK_EVERY_S = 0.2
"""How often to look for agents that have ended."""


def survey(
    connections: Connections,
    addresses: Mapping[str, str],
    agents: LocalAgents,
    hello: Hello,
    timeout_s: float,
) -> dict[str, Welcome]:
    """Return what the agents at `addresses` (by node) say of themselves within `timeout_s`.

    Only those among `agents`, which may be starting still, have more than `REMOTE_S`. Raises
    `BadInputError` if one of these could not start.
    """
    began_s = time.monotonic()
    found: dict[str, Welcome] = {}
    waiting = set()
    for node, address in addresses.items():
        try:
            connections.open_control(node, address)
        except AddressError:
            continue
        connections.send(node, hello)
        waiting.add(node)
    while waiting:
        for arrival in connections.wait(LOOK_EVERY_S):
            match arrival:
                case MessageReceived(node, message):
                    if isinstance(message, Refused) and (again := older_hello(hello, message)):
                        connections.send(node, again)
                        continue
                    waiting.discard(node)
                    if isinstance(message, Welcome):
                        found[node] = message
                        connections.send(node, Bye())
                case MessageMalformed(node) | Barred(node):
                    waiting.discard(node)
                case _:
                    pass
        passed_s = time.monotonic() - began_s
        for node in waiting & agents.keys():
            if agents[node].exit_code() == AGENT_COULD_NOT_START:
                raise could_not_start(node, agents[node].stderr_tail())
        waiting -= {node for node in waiting if passed_s > _patience_s(node, agents, timeout_s)}
    return found


def _patience_s(node: str, agents: LocalAgents, timeout_s: float) -> float:
    if node not in agents:
        return min(REMOTE_S, timeout_s)
    return timeout_s if agents[node].exit_code() is None else 0.0
