"""Checks the limits of this process: file descriptors."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from nodes.doctor.findings import Finding, Severity
from nodes.doctor.setup import AgentSetup
from nodes.quotas import descriptors_needed


@dataclass(frozen=True, slots=True)
class DescriptorReading:
    """The soft and the hard limit of file descriptors; None for no limit."""

    soft: int | None
    hard: int | None


def read_descriptors() -> DescriptorReading:
    """Read this process's limits."""
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return DescriptorReading(soft, hard)


def judge_descriptors(reading: DescriptorReading, needed: int) -> list[Finding]:
    """Return what is wrong with limits for a process that may need `needed` file descriptors.

    A process may raise its soft limit up to the hard one itself, and agents do.
    """
    if reading.hard is None or reading.hard >= needed:
        return []
    return [
        Finding(
            Severity.ERROR,
            "ulimit -Hn",
            f"The system allows {reading.hard} file descriptors, and {needed} may be needed. For a "
            f"service write LimitNOFILE={needed} into its unit; or allow fewer connections with "
            "--connections.",
            f"sudo prlimit --pid $$ --nofile={needed}",
        )
    ]


def check_limits(setup: AgentSetup) -> list[Finding]:
    """Check the limits for an agent with these options."""
    return judge_descriptors(read_descriptors(), descriptors_needed(setup.quotas.connections))
