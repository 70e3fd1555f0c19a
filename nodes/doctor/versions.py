"""Checks Python, this package and the packages that an agent needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

from nodes.doctor.findings import Finding, Severity
from nodes.doctor.setup import AgentSetup
from nodes.host.process import install_command
from nodes.net.curve import new_pair
from nodes.net.keys import KeysError
from nodes.protocol.messages import PROTOCOL

OLDEST_PYTHON = (3, 10)

NEEDED = {"pyzmq": (25, 1), "numpy": (1, 23), "msgpack": (1, 0, 5)}
"""The packages of an agent and their oldest versions, as in pyproject.toml."""

PACKAGE = "csdf-edge"


@dataclass(frozen=True, slots=True)
class VersionsReading:
    """The versions of Python and of installed packages (None: not installed).

    `running` is the version that this code says it has; `has_curve` whether ZeroMQ can encrypt.
    """

    python: tuple[int, ...]
    running: str
    packages: dict[str, str | None]
    has_curve: bool = True


def read_versions(running: str) -> VersionsReading:
    """Read the versions of what is installed with this code, which has the version `running`."""
    try:
        new_pair()
        has_curve = True
    except KeysError:
        has_curve = False
    names = (PACKAGE, *NEEDED)
    return VersionsReading(
        tuple(sys.version_info[:3]), running, {name: _installed(name) for name in names}, has_curve
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def judge_versions(reading: VersionsReading) -> Iterator[Finding]:
    """Yield which versions are too old, or do not belong together."""
    if reading.python < OLDEST_PYTHON:
        yield Finding(
            Severity.ERROR,
            "Python",
            f"It is {'.'.join(map(str, reading.python))}; {PACKAGE} needs 3.10 or newer.",
            "sudo apt install python3.11 python3.11-venv",
        )
    installed = reading.packages.get(PACKAGE)
    if installed is not None and installed != reading.running:
        yield Finding(
            Severity.WARNING,
            PACKAGE,
            f"Version {installed} is installed, but the running code is version "
            f"{reading.running}: two installations are mixed.",
            install_command(
                "--force-reinstall",
                "--no-deps",
                f"dist/csdf_edge-{reading.running}-py3-none-any.whl",
            ),
        )
    for name, oldest in NEEDED.items():
        version = reading.packages.get(name)
        wanted = ".".join(map(str, oldest))
        if version is None or numbers(version) < oldest:
            yield Finding(
                Severity.ERROR,
                name,
                f"It is {'not installed' if version is None else f'version {version}'}; "
                f"{wanted} or newer is needed.",
                install_command(f"{name}>={wanted}"),
            )
    if not reading.has_curve:
        yield Finding(
            Severity.ERROR,
            "pyzmq",
            "Its ZeroMQ was built without CURVE and cannot encrypt.",
            install_command("--force-reinstall", "pyzmq"),
        )


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `25.1.2rc1` → (25, 1, 2)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return () if match is None else tuple(map(int, match[0].split(".")))


def check_versions(setup: AgentSetup) -> Iterable[Finding]:
    """Check the versions of an agent's installation."""
    return judge_versions(read_versions(setup.version))


def version_facts(running: str) -> dict[str, str]:
    """Return the versions that a reader compares between machines."""
    return {
        PACKAGE: running,
        "protocol": str(PROTOCOL),
        "Python": ".".join(map(str, sys.version_info[:3])),
    }
