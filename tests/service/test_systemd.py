"""The unit that `launch up --install` writes, under a systemd of its own in a container."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
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
units=/usr/lib/systemd/system  # the machine's own: none of them is started
for folder in /run /etc/systemd/system $units $units-generators; do
    mount -t tmpfs tmpfs $folder || exit 1
done
for target in sysinit basic multi-user network-online shutdown; do
    printf '[Unit]\\nDefaultDependencies=no\\n' > /etc/systemd/system/$target.target
done
container=tests exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
"""


class Container:
    """A systemd with its own processes, mounts and units; the files are the machine's."""

    def __init__(self) -> None:
        unshare = ["unshare", "--fork", "--pid", "--mount", "--ipc", "--uts", "--mount-proc"]
        self.process = subprocess.Popen([*unshare, "bash", "-c", INIT], stderr=subprocess.DEVNULL)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.wait_for(lambda: bool(children.read_text().split()))
        self.first = int(children.read_text().split()[0])
        self.inside = ["nsenter", "--target", str(self.first), "--all"]
        try:
            self.wait_for(lambda: "running" in self.run("systemctl", "is-system-running")[1])
        except BaseException:
            self.end()
            raise

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Look again and again until that is so."""
        until_s = time.monotonic() + START_S
        while not holds():
            assert time.monotonic() < until_s

    def run(self, *arguments: str) -> tuple[int, str]:
        ran = subprocess.run(
            [*self.inside, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        return ran.returncode, ran.stdout + ran.stderr

    def end(self) -> None:
        os.kill(self.first, signal.SIGKILL)  # all that runs in it ends with its first process
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

    container.wait_for(serves)
    before = process()
    container.run("kill", "-STOP", str(before))
    # The watchdog kills it: it hangs.
    container.wait_for(lambda: process() not in (0, before))
    container.wait_for(serves)
    before = process()
    assert container.run("systemctl", "reload", unit)[0] == 0
    assert process() == before
    code, text = container.run(*LAUNCH, "down", "--state", str(state), "--json")
    assert (code, json.loads(text)) == (0, {"state": "ended"})
    assert container.run("systemctl", "is-active", unit)[1].strip() in ("inactive", "deactivating")
    assert container.run("systemctl", "show", "-P", "Result", unit)[1].strip() == "success"
