"""Asks whether an agent works: whether it answers a greeting, and with which version.

An agent that a run has refuses the greeting, which also shows that it works.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from launcher.config.access import Access
from launcher.core.events import MessageReceived
from launcher.core.session import Contact
from launcher.run.connections import Connections
from launcher.run.roll_call import call_roll, greeting
from nodes.protocol.messages import Refused, is_understood

LEASE_S = 5.0
"""How long an agent keeps our session if we vanish."""

ANSWER_S = 3.0
"""How long an agent may take to answer before it is dialled again."""

AGAIN_S = 1.0
"""How long to leave an agent alone that a run is to take again, before it is asked once more."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of an agent: in use, free with a version, or with a `fault`."""

    in_use: bool = False
    version: str = ""
    fault: str = ""


def ask(node: str, address: str, access: Access) -> Health:
    """Greet an agent. `access` is opened (`launcher.config.access.opened`)."""
    contact = Contact(node, address, started_by_us=False)
    with Connections(access.ring, access.guards) as connections:
        roll = call_roll(connections, [contact], greeting(LEASE_S), ANSWER_S)
    found = roll.greeted[node]
    if found.welcome is not None:
        return Health(version=found.welcome.version)
    match found.cause:
        case MessageReceived(_, Refused(_, protocol)) if is_understood(protocol):
            return Health(in_use=True)
        case _:
            return Health(fault=str(found.error))


def wait_until_healthy(
    node: str, address: str, access: Access, version: str, was_in_use: bool, patience_s: float
) -> str:
    """Wait until an agent works; return the reason if it does not, else an empty text.

    An agent that was in use has to be in use again: its run also has to accept it. A free one has
    to have this version, unless that is empty.
    """
    until_s = time.monotonic() + patience_s
    while True:
        health = ask(node, address, access)
        if health.in_use:
            return ""
        if not health.fault and version and health.version != version:
            return (
                f"the agent at {address} has version {health.version} after its restart; does its "
                "service start PREFIX/current/bin/node-agent?"
            )
        if not health.fault and not was_in_use:
            return ""
        if time.monotonic() >= until_s:
            return health.fault or (
                f"the run that had the agent at {address} did not take it again within "
                f"{patience_s:g} s"
            )
        _leave_alone(AGAIN_S)


def _leave_alone(seconds: float) -> None:
    with Connections() as nothing:
        for _ in nothing.wait(seconds):
            pass
