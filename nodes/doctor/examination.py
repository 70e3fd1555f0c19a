"""Examines the machine of an agent: `node-agent --doctor`."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator

from nodes.doctor.clock import check_clock
from nodes.doctor.disk import judge_folder, read_folder
from nodes.doctor.engine import TRIAL_S, check_engine
from nodes.doctor.findings import Check, Examination, Finding, Severity
from nodes.doctor.keys import judge_keys, read_keys
from nodes.doctor.memory import check_memory
from nodes.doctor.network import check_network
from nodes.doctor.performing import perform
from nodes.doctor.ports import check_ports
from nodes.doctor.processor import check_processor
from nodes.doctor.setup import AgentSetup
from nodes.doctor.versions import check_versions, version_facts
from nodes.host.usage import machine
from nodes.quotas import descriptors_needed


def check_keys(setup: AgentSetup) -> Iterator[Finding]:
    """Check an agent's keys, if it uses any or should."""
    if setup.keys is None:
        if not setup.is_exposed:
            return
        yield Finding(
            Severity.WARNING,
            setup.listen,
            "With --insecure, everybody who reaches this port can run networks here and read "
            "their results.",
            f"node-agent --listen {setup.listen} --keys csdf-keys",
        )
        return
    yield from judge_keys(read_keys(setup.keys), setup.name)


def check_cache(setup: AgentSetup) -> Iterable[Finding]:
    """Check the folder of an agent's cache."""
    return judge_folder(read_folder(setup.cache), setup.quotas.cache_bytes, "--cache")


def judge_descriptors(limit: int, needed: int) -> Iterator[Finding]:
    """Yield what is wrong with the hard limit of a process that may need `needed` file descriptors.

    A process may raise its soft limit up to the hard one itself, and agents do.
    """
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    yield Finding(
        Severity.ERROR,
        "ulimit -Hn",
        f"The system allows {limit} file descriptors, and {needed} may be needed. For a "
        f"service write LimitNOFILE={needed} into its unit; or allow fewer connections with "
        "--connections.",
        f"sudo prlimit --pid $$ --nofile={needed}",
    )


def check_limits(setup: AgentSetup) -> Iterable[Finding]:
    """Check the limits for an agent with these options."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return judge_descriptors(limit, descriptors_needed(setup.quotas.connections))


CHECKS: tuple[Check[AgentSetup], ...] = (
    Check("keys", check_keys),
    Check("ports", check_ports),
    Check("versions", check_versions),
    Check("clock", check_clock),
    Check("disk", check_cache, limit_s=20.0),
    Check("memory", check_memory),
    Check("processor", check_processor, limit_s=15.0),
    Check("engine", check_engine, limit_s=TRIAL_S + 30.0),
    Check("network", check_network),
    Check("limits", check_limits),
)
"""Every check of an agent's machine."""

EXIT_FINE, EXIT_ERRORS = 0, 1


def examine(setup: AgentSetup) -> Examination:
    """Run every check of an agent with these options."""
    facts = {"machine": machine(), **version_facts(setup.version), "user": str(os.geteuid())}
    return Examination(tuple(perform(setup.name, CHECKS, setup)), {setup.name: facts})


def doctor(setup: AgentSetup, *, as_json: bool) -> int:
    """Examine, print the report, and return the exit code: 1 if there are errors, else 0."""
    report = examine(setup)
    code = EXIT_ERRORS if report.has_errors else EXIT_FINE
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(code)) + "\n")
    else:
        sys.stdout.write(report.text())
    sys.stdout.flush()
    return code
