"""The unit that `launch up --install` writes, under a systemd of its own in a container."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.service.server import LAUNCH, command, write_cluster, write_version

SYSTEMD = Path("/lib/systemd/systemd")
START_S = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.namespaces,
    pytest.mark.skipif(
        os.geteuid() != 0
        or not SYSTEMD.exists()
        or Path("/proc/1/comm").read_text() == "systemd\n",
        reason="needs root, systemd, and a machine that another systemd does not run already",
    ),
]

INIT = """
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /etc/systemd/system || exit 1
printf '[Unit]\\nDescription=tests\\n' > /etc/systemd/system/multi-user.target
container=tests exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
"""


class Container:
    """A systemd with its own processes, mounts and units; the files are the machine's."""

    def __init__(self) -> None:
        unshare = ["unshare", "--fork", "--pid", "--mount", "--ipc", "--uts", "--mount-proc"]
        self.process = subprocess.Popen([*unshare, "bash", "-c", INIT], stderr=subprocess.DEVNULL)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.wait_for(lambda: bool(children.read_text().split()))
        self.inside = ["nsenter", "--target", children.read_text().split()[0], "--all"]
        self.wait_for(lambda: "running" in self.run("systemctl", "is-system-running")[1])

    def wait_for(self, holds: object) -> float:
        """Look again and again until that is so; return how many seconds it took."""
        began_s = time.monotonic()
        while not holds():  # type: ignore[operator]
            assert time.monotonic() < began_s + START_S
        return time.monotonic() - began_s

    def run(self, *arguments: str) -> tuple[int, str]:
        ran = subprocess.run(
            [*self.inside, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        return ran.returncode, ran.stdout + ran.stderr

    def end(self) -> None:
        self.process.kill()  # all that runs in it ends with its first process
        subprocess.run([*self.inside, "kill", "-9", "1"], check=False, capture_output=True)
        self.process.wait()


@pytest.fixture
def container() -> Iterator[Container]:
    if shutil.which("nsenter") is None:
        pytest.skip("needs nsenter")
    container = Container()
    yield container
    container.end()


def test_systemd_starts_it_again_after_every_end_that_nobody_asked_for(
    container: Container, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    write_version(tmp_path, 1)
    cluster = write_cluster(tmp_path, ("digits", 1), count=1)
    given = ["up", str(cluster), "--install", "system", "--name", "tests", "--state", str(state)]
    code, text = container.run(*LAUNCH, *given)
    assert code == 0, text
    unit = "csdf-edge-tests.service"

    def process() -> int:
        return int(container.run("systemctl", "show", "-P", "MainPID", unit)[1])

    def serves() -> bool:
        return command(tmp_path, "status")[0] == 0

    def kill(number: signal.Signals) -> None:
        container.run("kill", f"-{number.name.removeprefix('SIG')}", str(before))

    container.wait_for(serves)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        before = process()
        kill(number)
        container.wait_for(lambda before=before: process() not in (0, before))
        container.wait_for(serves)
    before = process()
    assert container.run("systemctl", "reload", unit)[0] == 0
    assert process() == before
    code, text = container.run(*LAUNCH, "down", "--state", str(state), "--json")
    assert (code, json.loads(text)) == (0, {"state": "ended"})
    assert container.run("systemctl", "is-active", unit)[1].strip() in ("inactive", "deactivating")
    assert container.run("systemctl", "show", "-P", "Result", unit)[1].strip() == "success"
