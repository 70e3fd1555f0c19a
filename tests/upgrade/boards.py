"""Boards on this machine: a folder, an agent and a real ssh server for each."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from tests.launcher_runtime.clusters import free_port
from tests.upgrade.service_stand_in import end

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_path("purelib"))

METADATA = """Metadata-Version: 2.1
Name: csdf-edge
Version: {version}
Requires-Dist: msgpack
Requires-Dist: numpy
Requires-Dist: pyzmq
Provides-Extra: cpu
Requires-Dist: onnxruntime; extra == "cpu"
"""

BROKEN = """

def main(arguments=None):
    if "--listen" in sys.argv:
        raise SystemExit(70)
    return _former_main(arguments)
"""
"""An agent that says what it is, and does not start."""

MISCOMPUTES = """

_right = OnnxRuntimeSubnet.run


def _wrong(self, inputs):
    return {name: 1.1 * array for name, array in _right(self, inputs).items()}


OnnxRuntimeSubnet.run = _wrong
"""
"""An agent that starts, and whose results are wrong."""


def make_wheel(folder: Path, version: str, broken: str = "", miscomputes: str = "") -> Path:
    """Return a wheel of this project's agent as `version`; `broken` is appended to its program,
    `miscomputes` to its executor."""
    path = folder / f"csdf_edge-{version}-py3-none-any.whl"
    info = f"csdf_edge-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        names = [*ROOT.glob("nodes/**/*.py"), *ROOT.glob("csdf_edge/*.py")]
        for file in names:
            text = file.read_text()
            if file == ROOT / "nodes" / "cli.py":
                text = text.replace('VERSION = "0.1.0"', f'VERSION = "{version}"')
                if broken:
                    text = text.replace("def main(", "def _former_main(", 1) + broken
            if file == ROOT / "nodes" / "executors" / "onnx" / "runtime.py":
                text += miscomputes
            wheel.writestr(str(file.relative_to(ROOT)), text)
        wheel.writestr("dependencies.pth", f"{SITE}\n")  # a sandboxed agent can read it
        scripts = "[console_scripts]\nnode-agent = csdf_edge.entry:node_agent\n"
        files = {
            "METADATA": METADATA.format(version=version),
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "entry_points.txt": scripts,
        }
        for name, text in files.items():
            wheel.writestr(f"{info}/{name}", text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in wheel.namelist()))
    return path


@dataclass
class Board:
    """A board: its folder, the agent's address, and the port of its ssh server."""

    name: str
    folder: Path
    dependencies: Path
    address: str = field(default_factory=lambda: f"tcp://127.0.0.1:{free_port()}")
    ssh_port: int = 0

    @property
    def prefix(self) -> Path:
        return self.folder / "home" / "csdf-edge"

    @property
    def current(self) -> str:
        return os.readlink(self.prefix / "current")

    @property
    def environment(self) -> dict[str, str]:
        """What commands on the board see: its own programs first, and no package index."""
        own = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": str(self.dependencies),
            "PIP_NO_INDEX": "1",
        }
        return {**os.environ, **own}

    def install(self) -> None:
        """Install the present version as `deploy/README.md` says, with this machine's packages."""
        version = self.prefix / "versions" / "0.1.0-aaaaaaaaaaaa"
        (version / "bin").mkdir(parents=True)
        program = version / "bin" / "node-agent"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from nodes.cli import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)
        (self.prefix / "current").symlink_to("versions/0.1.0-aaaaaaaaaaaa")
        python = sys._base_executable  # type: ignore[attr-defined]
        no_pip = f'[ "$2" = venv ] && shift 2 && exec {python} -m venv --without-pip "$@"'
        self._program("python3", f'{no_pip}\nexec {python} "$@"')  # pip is among `dependencies`
        stand_in = ROOT / "tests" / "upgrade" / "service_stand_in.py"
        words = f"{sys.executable} {stand_in} {self.folder} {self.address} {self.name}"
        self._program("systemctl", f'[ "$*" = "restart node-agent" ] && exec {words}')
        subprocess.run(["systemctl", "restart", "node-agent"], env=self.environment, check=True)

    def _program(self, name: str, line: str) -> None:
        (self.folder / "bin").mkdir(exist_ok=True)
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def remove(self) -> None:
        noted = self.folder / "agent.pid"
        if noted.exists():
            end(int(noted.read_text()))

    async def serve_command(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run a command of a client, as sshd does: by the user's shell, in the home."""
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command or "",
            cwd=self.folder / "home",
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await child.communicate(await process.stdin.read())
        process.stdout.write(output)
        process.stderr.write(errors)
        process.exit(child.returncode or 0)


class SshServers(threading.Thread):
    """An ssh server for each board, in a thread with its own event loop."""

    def __init__(self, boards: Sequence[Board], host_key: asyncssh.SSHKey, users: Path) -> None:
        super().__init__()
        self._boards, self._host_key, self._users = boards, host_key, users
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over = asyncio.Event()

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        servers = []
        for board in self._boards:
            server = await asyncssh.listen(
                "127.0.0.1",
                0,
                server_host_keys=[self._host_key],
                authorized_client_keys=str(self._users),
                process_factory=board.serve_command,
                encoding=None,
            )
            board.ssh_port = server.get_port()
            servers.append(server)
        self._ready.set()
        await self._over.wait()
        for server in servers:
            server.close()
            await server.wait_closed()

    def __enter__(self) -> SshServers:
        self.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join()


@contextmanager
def boards(folder: Path, names: Sequence[str]) -> Iterator[list[Board]]:
    """Boards with running agents and ssh servers; `folder/user` is the home of who upgrades."""
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for entry in SITE.iterdir():  # all that a wheel needs, and not this project
        if not entry.name.startswith(("csdf_edge", "_csdf", "__editable__")):
            (dependencies / entry.name).symlink_to(entry)
    ssh = folder / "user" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    user, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user.write_private_key(str(ssh / "id_ed25519"))
    user.write_public_key(str(folder / "authorized_keys"))
    made = [Board(name, folder / name, dependencies) for name in names]
    try:
        for board in made:
            board.install()
        with SshServers(made, host, folder / "authorized_keys"):
            key = host.export_public_key().decode()
            known = "".join(f"[127.0.0.1]:{board.ssh_port} {key}" for board in made)
            (ssh / "known_hosts").write_text(known)
            yield made
    finally:
        for board in made:
            board.remove()
