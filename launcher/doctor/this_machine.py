"""Has `node-agent --doctor` examine the launching machine, in a separate process.

The launcher imports nothing of an agent, and no engine. So the machine's checks are the agent's,
run as the launcher runs its own agents.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence

from launcher.config.node import NodeConfig
from nodes.core.engines import AUTO
from nodes.doctor.findings import Checked, Finding, Severity, checked_from_json
from nodes.host.process import install_command, python_command

LIMIT_S = 120.0
"""How long the process may take; every check has its own limit."""

NAME = "this machine"

_NOT_HERE = {"keys", "ports"}
"""Checks of an agent's options, which an agent that `launch` starts gets from it."""


def examine_this_machine(nodes: Sequence[NodeConfig]) -> list[Checked]:
    """Examine this machine for the nodes whose agents `launch` starts; there may be none.

    Each different choice of engine and device is tried.
    """
    choices = dict.fromkeys((node.engine, node.device) for node in nodes)
    found: dict[str, Checked] = {}
    for engine, device in choices or ((AUTO, AUTO),):
        for each in _examined(engine, device):
            if each.check in _NOT_HERE or (each.check == "engine" and not nodes):
                continue
            known = found.get(each.check)
            if known is None:
                found[each.check] = each
            elif each.check == "engine":
                findings = dict.fromkeys((*known.findings, *each.findings))
                found[each.check] = Checked(
                    NAME, each.check, known.seconds + each.seconds, tuple(findings)
                )
    return list(found.values())


def _examined(engine: str, device: str) -> tuple[Checked, ...]:
    command = python_command("nodes.cli", "--doctor", "--json")
    command += ["--listen", "tcp://127.0.0.1:0", "--engine", engine, "--device", device]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
            return checked_from_json(json.loads(output), NAME)
        except subprocess.TimeoutExpired:
            return (_failed(f"it has not ended within {LIMIT_S:g} s"),)
        except ValueError:
            return (_failed(errors.decode("utf-8", "replace").strip()[-300:]),)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _failed(why: str) -> Checked:
    finding = Finding(
        Severity.ERROR,
        "node-agent --doctor",
        f"An agent could not be started to examine this machine: {why}.",
        install_command("csdf-edge[run,cpu]"),
    )
    return Checked(NAME, "agent", 0.0, (finding,))
