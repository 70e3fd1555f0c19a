"""Runs fixed commands on a board by ssh.

The user's own keys, ssh agent, ~/.ssh/config and ~/.ssh/known_hosts are used, as by `ssh`. A host
whose key is not known is refused, and no password is asked for or kept.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncssh

from launcher.errors import LauncherError, reason, shortened
from launcher.upgrade.boards import SshTarget
from launcher.upgrade.layout import Command

CONNECT_S = 30.0
"""How long connecting and authenticating may take."""

KEEPALIVE_S = 10.0
"""How often a board must answer; it is lost after three missing answers."""

SUDO = ("sudo", "-n", "--")


class BoardError(LauncherError):
    """A board cannot be reached, or a command on it failed."""


class BoardShell:
    """Runs commands on one board, with sudo if the user may not write there."""

    def __init__(self, connection: asyncssh.SSHClientConnection, as_root: bool = False) -> None:
        self._connection = connection
        self._prefix: Command = SUDO if as_root else ()

    async def run(self, command: Command, within_s: float, given: bytes | None = None) -> str:
        """Run a command; return what it prints. Raises `BoardError` if it fails."""
        words = (*self._prefix, *command)
        done = await self._run(words, within_s, given)
        if done.returncode != 0:
            said = shortened(_tail(done.stderr) or _tail(done.stdout)) or f"exit {done.returncode}"
            raise BoardError(f"`{shlex.join(command)}` on the board failed: {said}")
        return _text(done.stdout)

    async def succeeds(self, command: Command, within_s: float) -> bool:
        """Return whether a command ends with exit code 0; it is run without sudo."""
        return (await self._run(command, within_s)).returncode == 0

    async def _run(
        self, words: Command, within_s: float, given: bytes | None = None
    ) -> asyncssh.SSHCompletedProcess:
        source = {"stdin": asyncssh.DEVNULL} if given is None else {"input": given}
        running = self._connection.run(shlex.join(words), encoding=None, check=False, **source)
        try:
            return await asyncio.wait_for(running, within_s)
        except asyncio.TimeoutError as error:  # a separate class in Python 3.10
            raise BoardError(
                f"`{shlex.join(words)}` on the board took longer than {within_s:g} s"
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise BoardError(f"the board was lost: {reason(error)}") from error


@asynccontextmanager
async def connected(target: SshTarget) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Connect to a board. Raises `BoardError` if that fails, whatever the cause."""
    options: dict[str, Any] = {"username": target.user, "port": target.port}
    try:
        connection = await asyncssh.connect(
            target.host,
            **{name: value for name, value in options.items() if value is not None},
            preferred_auth="publickey",
            connect_timeout=CONNECT_S,
            keepalive_interval=KEEPALIVE_S,
        )
    except asyncssh.HostKeyNotVerifiable as error:
        raise BoardError(
            f"ssh does not know the key of {target.host}; connect once by hand (`ssh "
            f"{_shown(target)}`), compare the fingerprint, and accept it"
        ) from error
    except asyncssh.PermissionDenied as error:
        raise BoardError(
            f"{target.host} admits none of your ssh keys; copy one there (`ssh-copy-id "
            f"{_shown(target)}`) or load it into your ssh agent"
        ) from error
    except (asyncssh.Error, OSError, ValueError) as error:
        raise BoardError(f"ssh cannot reach {target.host}: {reason(error)}") from error
    async with connection:
        yield connection


def _shown(target: SshTarget) -> str:
    place = f"{target.user}@{target.host}" if target.user else target.host
    return f"-p {target.port} {place}" if target.port else place


def _text(output: object) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else str(output or "")


def _tail(output: object) -> str:
    """Return the end of what a command has printed, where programs say what went wrong."""
    lines = [line for line in _text(output).splitlines() if line.strip()]
    return " ".join(lines[-3:])
