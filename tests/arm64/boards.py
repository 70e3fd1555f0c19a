"""Whole emulated boards: QEMU runs Debian for ARM with its kernel, systemd and sshd.

Boards and this process share a bridge in a network namespace, so that all of them reach each other
at their addresses as machines in one room do. Killing QEMU is a power cut: what the board's kernel
has not written to its disk is lost, and its peers get no more packets, not even a reset.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.launcher_runtime.clusters import wait_until_it_listens

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(__file__).with_name("environment.sh")
SYSTEM = os.environ.get("CSDF_EDGE_BOARD", "bookworm")
"""The Debian of the boards; trixie has pages of 16 KiB, which an A76 has and an A72 lacks."""

PROCESSOR = {"bookworm": "cortex-a72", "trixie": "cortex-a76"}[SYSTEM]
DISK = Path(os.environ.get("CSDF_EDGE_ARM64", ROOT / "build" / "arm64")) / f"{SYSTEM}.disk"
BRIDGE, HERE = "csdf-boards", "10.35.0.1"
BOOT_LIMIT_S, START_LIMIT_S = 1800, 900
"""How long a board may take to boot, and a service in it to start (90 s elsewhere): a busy machine
emulates both at a hundredth of their speed.
"""

STARTED = b"Multi-User System"
"""The console's line once all enabled services have started; an agent has with its `READY=1`. A
login on the console, which starts before a slow agent has, would suppress the line.
"""

MACHINE = (
    "-M", "virt", "-cpu", PROCESSOR, "-smp", "2", "-m", "2G", "-display", "none",
    "-monitor", "none", "-serial", "stdio", "-no-reboot",
    "-kernel", f"{DISK}/kernel", "-initrd", f"{DISK}/initrd",
)  # fmt: skip


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; a failure shows what it wrote."""
    done = subprocess.run(
        words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done  # type: ignore[no-any-return]


def make_network() -> None:
    """Make the bridge; the namespace must be separate, as `unshare --net` makes it."""
    links = run("ip", "-oneline", "link").stdout.splitlines()
    assert len(links) == 1, "boards need a network namespace: run this by `make test-arm64-board`"
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{HERE}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


@dataclass
class Board:
    """A board with number 11 or 12, its disk and console in `folder`; it is off at first."""

    name: str
    number: int
    folder: Path
    started: threading.Event = field(default_factory=threading.Event)
    _machine: subprocess.Popen[bytes] | None = None
    _console: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir()
        run("cp", "--sparse=always", f"{DISK}/root.ext4", str(self.disk))
        run("ip", "tuntap", "add", "dev", self.name, "mode", "tap")
        run("ip", "link", "set", self.name, "master", BRIDGE, "up")

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def console(self) -> Path:
        return self.folder / "console"

    @property
    def host(self) -> str:
        return f"10.35.0.{self.number}"

    @property
    def address(self) -> str:
        return f"tcp://{self.host}:5500"

    def power_on(self) -> None:
        """Begin to boot; `wait` returns once everything enabled has started."""
        network = f"tap,id=net,ifname={self.name},script=no,downscript=no"
        card = f"virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:00:{self.number:02x}"
        said = (
            f"root=/dev/vda rw console=ttyAMA0 systemd.show_status=1 systemd.hostname={self.name} "
            f"systemd.default_timeout_start_sec={START_LIMIT_S} systemd.getty_auto=0"
        )
        self.started.clear()
        self._machine = subprocess.Popen(
            [
                "qemu-system-aarch64", *MACHINE, "-append", said,
                "-drive", f"if=virtio,format=raw,file={self.disk}",
                "-netdev", network,
                "-device", card,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._machine.stdout is not None
        self._console = threading.Thread(target=self._keep, args=(self._machine.stdout,))
        self._console.start()

    def wait(self) -> None:
        """Wait until the board has booted and its sshd answers; the link comes up at any time."""
        assert self.started.wait(BOOT_LIMIT_S), f"{self.name} does not start: see {self.console}"
        wait_until_it_listens(f"tcp://{self.host}:22", START_LIMIT_S)

    def _keep(self, lines: IO[bytes]) -> None:
        with self.console.open("ab") as console, lines:
            for line in lines:
                console.write(line)
                console.flush()
                if STARTED in line:
                    self.started.set()

    def received_bytes(self) -> int:
        """What has been sent to the board (`/sys` shows the links of the namespace outside)."""
        shown = run("ip", "-json", "-statistics", "link", "show", self.name).stdout
        return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])

    def cut_power(self) -> None:
        """End the machine at once, if it is on."""
        if self._machine is not None and self._console is not None:
            self._machine.kill()
            self._machine.wait()
            self._console.join()
            self._machine = None


class Room:
    """Two boards, and the folder of the person who works with them: keys, wheel and `cluster.yaml`.

    `ssh left` and `scp FILE left:` work there by the names of the boards.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boards = {
            name: Board(name, number, folder / name)
            for name, number in (("left", 11), ("right", 12))
        }
        home = folder / "home" / ".ssh"
        home.mkdir(parents=True, mode=0o700)
        shutil.copy(DISK / "pi", home / "id_ed25519")
        host_key = " ".join((DISK / "ssh_host_ed25519_key.pub").read_text().split()[:2])
        hosts = [host for board in self.boards.values() for host in (board.name, board.host)]
        (home / "known_hosts").write_text("".join(f"{host} {host_key}\n" for host in hosts))
        (home / "config").write_text(
            "".join(
                f"Host {board.name} {board.host}\n  HostName {board.host}\n  User pi\n"
                f"  IdentityFile {home}/id_ed25519\n  UserKnownHostsFile {home}/known_hosts\n"
                f"  HostKeyAlias {board.host}\n"
                for board in self.boards.values()
            )
        )
        # OpenSSH takes the home of the user's entry in passwd, and rsync starts `ssh` by its name.
        (folder / "bin").mkdir()
        for program in ("ssh", "scp"):
            path = folder / "bin" / program
            path.write_text(f'#!/bin/sh\nexec {shutil.which(program)} -F {home}/config "$@"\n')
            path.chmod(0o755)

    def shell(self, script: str, limit_s: float = 3600) -> str:
        """Run lines of a shell in the folder, and return what they wrote."""
        path = f"{self.folder}/bin:{ROOT}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {"PATH": path, "HOME": f"{self.folder}/home", "ORT_DISABLE_TELEMETRY": "1"}
        done = run(
            "sh", "-e", "-c", script, cwd=self.folder, env=environment, timeout=limit_s
        )  # fmt: skip
        return done.stdout

    def on(self, name: str, script: str, limit_s: float = 3600) -> str:
        """Run lines of a shell on a board, as its user `pi`."""
        (self.folder / f"{name}.sh").write_text(f"set -e\n{script}")
        return self.shell(f"ssh {name} sh -s < {name}.sh", limit_s)
