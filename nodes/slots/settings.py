"""The settings of the parent process of a node's slots, and how a process becomes that parent.

`node-agent --slots N` checks its arguments with all of its modules imported, which take 40 MB. It
then replaces itself by `nodes.slots`, which keeps its PID, its user, its limits, its standard files
and its place in systemd.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import NoReturn

from nodes.host.process import flush, python_command

DEFAULT_IDLE_S = 60.0
"""How long a slot's agent waits for a launcher before it ends."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `node-agent` that the parent needs itself.

    `command` starts an agent: the user's own command line, to which the parent appends what differs
    from slot to slot. `rereads_keys` says that SIGHUP means that keys are to be read again,
    `exits_with_parent` that the end of standard input ends the node.
    """

    name: str
    version: str
    slots: int
    address: str
    command: tuple[str, ...]
    idle_s: float
    rereads_keys: bool = False
    exits_with_parent: bool = False
    json: bool = False
    log_level: int = logging.WARNING
    logs_json: bool = False

    @classmethod
    def parsed(cls, text: str) -> Settings:
        """Return the settings that `become_parent` wrote."""
        given = json.loads(text)
        return cls(**{**given, "command": tuple(given["command"])})


def become_parent(settings: Settings) -> NoReturn:
    """Replace this process by the parent of the slots.

    Raises OSError if the interpreter cannot be started again.
    """
    flush()
    command = python_command("nodes.slots", json.dumps(asdict(settings)))
    os.execv(command[0], command)  # noqa: S606 - our own module
