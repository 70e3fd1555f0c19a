"""Runs checks side by side, so that none can stop or delay the others.

Every check has a thread and a time limit. One that raises, or that has not ended at its limit, is
itself a finding. Such a thread cannot be ended from outside; it is a daemon and ends with the
process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodes.doctor.findings import Check, Checked, Finding, Severity, Subject


@dataclass
class _Run:
    """A running check; `findings` is None until it has ended."""

    began_s: float
    seconds: float = 0.0
    findings: tuple[Finding, ...] | None = None
    ended: threading.Event = field(default_factory=threading.Event)


def perform(machine: str, checks: Sequence[Check[Subject]], subject: Subject) -> list[Checked]:
    """Run the checks on `subject` side by side; return what each found on `machine`, in order.

    Takes at most the longest limit of a check.
    """
    runs = []
    for check in checks:
        run = _Run(time.monotonic())
        threading.Thread(
            target=_run, args=(check, subject, run), name=f"check {check.name}", daemon=True
        ).start()
        runs.append(run)
    found = []
    for check, run in zip(checks, runs, strict=True):
        run.ended.wait(max(0.0, run.began_s + check.limit_s - time.monotonic()))
        findings, seconds = run.findings, run.seconds
        if findings is None:
            findings, seconds = (_unfinished(check.limit_s),), check.limit_s
        found.append(Checked(machine, check.name, seconds, findings))
    return found


def _run(check: Check[Subject], subject: Subject, run: _Run) -> None:
    try:
        findings = tuple(check.run(subject))
    except Exception as error:  # noqa: BLE001 - no check may stop the others
        findings = (_failed(error),)
    run.seconds = time.monotonic() - run.began_s
    run.findings = findings
    run.ended.set()


def _unfinished(limit_s: float) -> Finding:
    return Finding(
        Severity.WARNING,
        "the check itself",
        f"It did not finish within {limit_s:g} s, so its result is unknown: a disk, a driver or a "
        "name server may hang.",
        "dmesg --level err,warn | tail -n 20",
    )


def _failed(error: Exception) -> Finding:
    return Finding(
        Severity.WARNING,
        "the check itself",
        f"It could not be completed ({type(error).__name__}: {str(error)[:200]}), so its result "
        "is unknown.",
        "dmesg --level err,warn | tail -n 20",
    )
