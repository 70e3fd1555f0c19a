"""The values of an examination: what a check finds, and what is reported of all checks.

A check is one subject. It has a part that reads (files, sockets, the kernel) and returns readings,
and a part that decides, a function from readings to findings. So a test can supply any reading
without breaking anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from nodes.protocol.fields import printable

Subject = TypeVar("Subject")

LONGEST_TEXT = 1000
"""Characters of a finding's text that are taken from another process."""

MOST_FINDINGS = 200
"""Findings that are taken from another process."""


class Severity(Enum):
    """How bad a finding is: it stops the work, it makes the work slow or unsafe, or it is only
    information.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: how bad it is, where, what is wrong in a sentence, and a command that helps.

    `where` is a file, an address or a part of the machine. The `remedy` can be typed into a shell;
    it is empty only where `what` says that there is nothing to do.
    """

    severity: Severity
    where: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject]):
    """A check of one subject: its name, the function that runs it, and how long that may take."""

    name: str
    run: Callable[[Subject], Iterable[Finding]]
    limit_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of one check on one `machine`, and how long it took."""

    machine: str
    check: str
    seconds: float
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """An examination: what every check found, in order, and facts of each machine by name."""

    checked: tuple[Checked, ...]
    facts: Mapping[str, Mapping[str, str]]

    @property
    def findings(self) -> tuple[tuple[Checked, Finding], ...]:
        """Every finding with the check that made it, the worst first."""
        order = list(Severity)
        found = [(each, finding) for each in self.checked for finding in each.findings]
        return tuple(sorted(found, key=lambda pair: order.index(pair[1].severity)))

    @property
    def has_errors(self) -> bool:
        """Whether something stops the work."""
        return any(finding.severity is Severity.ERROR for _, finding in self.findings)

    def as_json(self, exit_code: int) -> dict[str, Any]:
        """Return JSON-like data."""
        return {
            "exit_code": exit_code,
            "findings": [
                {
                    "severity": finding.severity.value,
                    "machine": each.machine,
                    "check": each.check,
                    "where": finding.where,
                    "what": finding.what,
                    "remedy": finding.remedy,
                }
                for each, finding in self.findings
            ],
            "checks": [
                {
                    "machine": each.machine,
                    "check": each.check,
                    "seconds": round(each.seconds, 3),
                    "findings": len(each.findings),
                }
                for each in self.checked
            ],
            "facts": {machine: dict(facts) for machine, facts in self.facts.items()},
        }

    def text(self) -> str:
        """Return the report for people; every remedy is on a separate line after `$`."""
        lines = []
        for machine, facts in self.facts.items():
            described = ", ".join(f"{name} {value}" for name, value in facts.items())
            lines.append(f"{machine}: {described}")
        if lines:
            lines.append("")
        for each, finding in self.findings:
            lines += [
                f"{finding.severity.value}  {each.machine}, {each.check}: {finding.where}",
                f"  {finding.what}",
            ]
            if finding.remedy:
                lines.append(f"  $ {finding.remedy}")
        counts = [
            f"{number} {severity.value}{'' if number == 1 else 's'}"
            for severity in Severity
            if (number := sum(f.severity is severity for _, f in self.findings))
        ]
        lines.append(
            f"{len(self.checked)} checks: {', '.join(counts) if counts else 'nothing found'}"
        )
        return printable("\n".join(lines) + "\n", lines=True)


def checked_from_json(data: object, machine: str) -> tuple[Checked, ...]:
    """Return what another process has reported by `Examination.as_json`, as found on `machine`.

    Raises `ValueError` if the data is not such a report.
    """
    try:
        assert isinstance(data, dict)  # noqa: S101 - caught below
        found: dict[str, list[Finding]] = {str(each["check"]): [] for each in data["checks"]}
        seconds = {str(each["check"]): float(each["seconds"]) for each in data["checks"]}
        for each in data["findings"][:MOST_FINDINGS]:
            where, what, remedy = (
                str(each[key])[:LONGEST_TEXT] for key in ("where", "what", "remedy")
            )
            found[each["check"]].append(Finding(Severity(each["severity"]), where, what, remedy))
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"it is not a report: {error}") from error
    return tuple(
        Checked(machine, check, seconds[check], tuple(findings))
        for check, findings in found.items()
    )
