"""Asks whether an agent works: whether it answers a greeting, and with which version.

An agent that a run has refuses the greeting, which shows that it works, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from launcher.core.events import MessageReceived
from launcher.run.access import LAUNCHER, Access, barred
from launcher.run.connections import Barred, Connections
from launcher.run.runner import greeting
from nodes.core.session import older_hello
from nodes.net.sockets import AddressError
from nodes.protocol.messages import Bye, Refused, Welcome, is_understood

LEASE_S = 5.0
"""How long an agent keeps our session if we vanish."""

ANSWER_S = 3.0
"""How long an agent may take to answer before it is dialled again."""

AGAIN_S = 1.0
"""How long to leave an agent alone that a run is to take again, before it is asked once more."""


@dataclass(frozen=True, slots=True)
class Health:
    """How an agent is: in use, free with a version, or with a `fault`."""

    in_use: bool = False
    version: str = ""
    fault: str = ""


def ask(node: str, address: str, access: Access) -> Health:
    """Greet an agent once. `access` is opened (`launcher.run.access.opened`)."""
    with Connections(access.ring, access.guards) as connections:
        try:
            connections.open_control(node, address)
        except AddressError as error:
            return Health(fault=str(error))
        hello = greeting(LEASE_S)
        connections.send(node, hello)
        until_s = time.monotonic() + ANSWER_S
        while (left_s := until_s - time.monotonic()) > 0:
            for arrival in connections.wait(left_s):
                match arrival:
                    case MessageReceived(_, Welcome() as welcome):
                        connections.send(node, Bye())
                        return _free(welcome)
                    case MessageReceived(_, Refused() as refused):
                        again = older_hello(hello, refused)
                        if again is None:
                            return _refused(refused)
                        hello = again
                        connections.send(node, hello)
                    case Barred(_, why):
                        folder = access.keys / LAUNCHER if access.guards(address) else None
                        return Health(fault=str(barred(node, address, folder, why)))
                    case _:
                        pass
    return Health(fault=f"no agent answers at {address}")


def wait_until_healthy(
    node: str, address: str, access: Access, version: str, was_in_use: bool, patience_s: float
) -> str:
    """Wait until an agent works; return why it does not, or the empty text.

    An agent that was in use has to be in use again: its run has to accept it, too. A free one has
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


def _free(welcome: Welcome) -> Health:
    if not is_understood(welcome.protocol):
        return Health(fault=f"its agent speaks protocol {welcome.protocol}")
    return Health(version=welcome.version)


def _refused(refused: Refused) -> Health:
    if not is_understood(refused.protocol):
        return Health(fault=refused.reason)
    return Health(in_use=True)
