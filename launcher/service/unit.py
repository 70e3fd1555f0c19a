"""Makes the service a unit of systemd, which starts it with the machine and after a crash.

systemd ends a service whose loop no longer says that it turns (`WatchdogSec`), and starts it again
after every end that nobody asked for. `launch down`, `systemctl stop` and SIGTERM end it with exit
code 0, which is no reason to start it again.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.errors import BadInputError, RunFailedError, shortened
from launcher.files import cannot_write, write_whole
from nodes.host.process import python_command

Manager = Literal["user", "system"]


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """The unit of the service called `name`, of the user's systemd or the system's."""

    name: str
    manager: Manager
    state: Path
    log_format: str = "text"

    @property
    def file_name(self) -> str:
        """The name of the unit."""
        return f"csdf-edge-{self.name}.service"

    @property
    def path(self) -> Path:
        """Where systemd finds it."""
        if self.manager == "system":
            return Path("/etc/systemd/system") / self.file_name
        base = os.environ.get("XDG_CONFIG_HOME")
        folder = Path(base) if base else Path.home() / ".config"
        return folder / "systemd" / "user" / self.file_name

    @property
    def text(self) -> str:
        """The unit file."""
        command = python_command("launcher.commands.launch", "up", "--state", str(self.state))
        if self.log_format == "json":
            command += ["--log-format", "json"]
        target = "multi-user.target" if self.manager == "system" else "default.target"
        return f"""\
# Made by launch up --install {self.manager}. What differs goes into `systemctl edit`.
[Unit]
Description=Cluster of csdf-edge: {self.name}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={" ".join(map(_quoted, command))}
# The file that was applied last is applied again.
ExecReload=/bin/kill -HUP $MAINPID
# The loop that answers requests and keeps the models says that it turns.
WatchdogSec=5
WatchdogSignal=SIGKILL
Restart=on-failure
RestartSec=100ms
TimeoutStartSec=120
TimeoutStopSec=90
# The agents of this machine end with the service; while it ends, it ends them itself.
KillMode=mixed
OOMPolicy=continue
NoNewPrivileges=yes
UMask=0077
LimitCORE=0

[Install]
WantedBy={target}
"""

    def install(self) -> list[str]:
        """Write and start the unit; return what was done.

        Raises `BadInputError` if it cannot be written, `RunFailedError` if systemd refuses it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, self.text)
        except OSError as error:
            raise BadInputError(f"{self.path}: {cannot_write(error)}") from None
        self._systemctl("daemon-reload")
        self._systemctl("enable", self.file_name)
        self._systemctl("restart", self.file_name)
        scope = " --user" if self.manager == "user" else ""
        done = [
            f"{self.path} is installed and started",
            f"its log: journalctl{scope} -u {self.file_name}",
        ]
        if self.manager == "user":
            done.append("so that it starts with the machine: loginctl enable-linger")
        return done

    def _systemctl(self, *arguments: str) -> None:
        command = ["systemctl", *(["--user"] if self.manager == "user" else []), *arguments]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunFailedError(f"{' '.join(command)}: {error}") from None
        if ran.returncode:
            raise RunFailedError(f"{' '.join(command)}: {shortened(ran.stderr)}")


def _quoted(word: str) -> str:
    """A word as systemd's command lines have it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
