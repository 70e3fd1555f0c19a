"""Makes the service a unit of systemd, which starts it with the machine and after a crash.

systemd ends a service whose loop no longer says that it turns (`WatchdogSec`), and starts it again
after every end that nobody asked for. `launch down`, `systemctl stop` and SIGTERM end it with exit
code 0, after which systemd does not start it again.

The system's service has its own user, which owns its state and nothing else: an intruder into the
servers is neither root nor a user with a home on the machine. The file is also applied as that
user, so files that it may not read are found before anything is started.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.errors import BadInputError, RunFailedError, shortened
from launcher.files import cannot_write, write_whole
from launcher.service.up import apply_first
from nodes.host.folders import user_folder
from nodes.host.process import python_command

Manager = Literal["user", "system"]

USER = "csdf-edge-server"
"""The user of the system's services."""

_CONFINED = f"""\
# Its own user, who can write the state and caches and nothing else.
User={USER}
CacheDirectory=csdf-edge-server
CacheDirectoryMode=0700
Environment=XDG_CACHE_HOME=%C/csdf-edge-server
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateMounts=yes
RemoveIPC=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectProc=invisible
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""


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
        folder = user_folder("XDG_CONFIG_HOME", ".config")
        return folder / "systemd" / "user" / self.file_name

    @property
    def text(self) -> str:
        """The unit file."""
        command = python_command("launcher.commands.launch", "up", "--state", str(self.state))
        if self.log_format == "json":
            command += ["--log-format", "json"]
        target = "multi-user.target" if self.manager == "system" else "default.target"
        confined = ""
        if self.manager == "system":
            confined = f"{_CONFINED}ReadWritePaths={_quoted(str(self.state))}\n"
        return f"""\
# Made by launch up --install {self.manager}. What differs goes into `systemctl edit`.
[Unit]
Description=Cluster of csdf-edge: {self.name}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={" ".join(_quoted(word).replace("$", "$$") for word in command)}
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
{confined}
[Install]
WantedBy={target}
"""

    def apply(self, cluster: Path | None) -> list[str]:
        """Apply a cluster.yaml to the state, as the user of the service; return what was done.

        Raises `BadInputError` if that user cannot, `RunFailedError` if there is no such user.
        """
        if self.manager == "user":
            return apply_first(self.state, cluster)
        cache = Path("/var/cache") / USER
        try:
            account = _account()
            for folder in (self.state, cache):
                folder.mkdir(parents=True, exist_ok=True)
                _give(folder, account)
        except OSError as error:
            raise BadInputError(f"{error.filename}: {cannot_write(error)}") from None
        given = [str(self.state), *([] if cluster is None else [str(cluster.absolute())])]
        command = python_command("launcher.service.up", *given)
        try:
            ran = subprocess.run(
                command,
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
                cwd="/",
                env={"PATH": os.defpath, "XDG_CACHE_HOME": str(cache)},
                capture_output=True,
                text=True,
                check=False,
            )
        except PermissionError:
            raise BadInputError(
                f"{command[0]}: the user of the service, {USER}, cannot run it; install "
                "csdf-edge where every user can read it, such as /opt/csdf-edge"
            ) from None
        if ran.returncode:
            raise BadInputError(
                f"{ran.stderr.strip()} (as {USER}, the user of the service, which has to be able "
                "to read the cluster's files and to own its launcher's keys)"
            )
        return ran.stdout.splitlines()

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
        _run("systemctl", *(["--user"] if self.manager == "user" else []), *arguments)


def _account() -> pwd.struct_passwd:
    """Return the account of the system's services, which is made if it is missing."""
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        _run(
            "useradd",
            "--system",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/usr/sbin/nologin",
            USER,
        )
        return pwd.getpwnam(USER)


def _give(folder: Path, account: pwd.struct_passwd) -> None:
    """Let a user own a folder, with what an earlier service has left in it, and let no other user
    read it. The targets of links are unchanged.
    """
    folder.chmod(0o700)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _run(*command: str) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailedError(f"{' '.join(command)}: {error}") from None
    if ran.returncode:
        raise RunFailedError(f"{' '.join(command)}: {shortened(ran.stderr)}")


def _quoted(word: str) -> str:
    """Return a word in the syntax of systemd's settings, always on one line."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + re.sub(r"[\x00-\x1f\x7f-\xff\udc80-\udcff]", _escaped, escaped) + '"'


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(match[0]))
