"""Defines the changes to a machine as values, which plans list and the shell performs.

So these changes can be read and tested without making them, and without root.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Run:
    """A command that must end with 0; if not `required`, that it fails is no matter."""

    argv: tuple[str, ...]
    required: bool = True

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """A folder, or a control group; that it is there already is no matter."""

    path: Path

    def __str__(self) -> str:
        return f"mkdir {self.path}"


@dataclass(frozen=True, slots=True)
class Write:
    """Text into a file of the kernel's; if not `required`, a kernel without that file will do."""

    path: Path
    text: str
    required: bool = True

    def __str__(self) -> str:
        return f"echo {self.text} > {self.path}"


@dataclass(frozen=True, slots=True)
class Start:
    """A daemon: it outlives us, and writes what it has to say into a file."""

    argv: tuple[str, ...]
    log: Path

    def __str__(self) -> str:
        return f"{shlex.join(self.argv)} >> {self.log} 2>&1 &"


Action: TypeAlias = Run | MakeFolder | Write | Start
