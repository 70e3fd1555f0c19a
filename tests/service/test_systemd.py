"""The unit that `launch up --install` writes, under its own systemd in a container."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.service.server import LAUNCH, write_cluster, write_version
from launcher.service.unit import USER

SYSTEMD = Path("/lib/systemd/systemd")
START_S = 60.0
CHECKOUT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.namespaces,
    pytest.mark.skipif(
        os.geteuid() != 0
        or not SYSTEMD.exists()
        or Path("/proc/1/comm").read_text() == "systemd\n"
        or CHECKOUT.is_relative_to("/tmp"),  # which the service does not see
        reason="needs root, systemd, a machine that another systemd does not run already, and a "
        "checkout outside of /tmp",
    ),
]

INIT = """
closed() {  # the first folder above that path which others may not enter
    local folder= part
    for part in $(dirname $1 | tr / ' '); do
        folder=$folder/$part
        case $(stat -c %A $folder 2>/dev/null) in
            ?????????[xt] | '') ;;
            *) echo $folder; return ;;
        esac
    done
}
mount -t tmpfs -o mode=755 tmpfs $SCRATCH && cd $SCRATCH || exit 1
mkdir etc etc.work var var.work
for folder in etc var; do  # what is written there stays in the container
    layers=lowerdir=/$folder,upperdir=$folder,workdir=$folder.work
    mount -t overlay overlay -o $layers /$folder || exit 1
done
for path in $NEEDED; do mkdir -p kept$path && mount --rbind $path kept$path || exit 1; done
for path in $NEEDED; do  # below a folder that no other user may enter: that folder is replaced
    for folder in $(closed $path); do mount -t tmpfs -o mode=755 tmpfs $folder || exit 1; done
    mkdir -p $path && mount --rbind kept$path $path || exit 1
done
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
    """A systemd with its own processes, mounts, units and users; the files are the machine's."""

    def __init__(self, scratch: Path) -> None:
        unshare = ["unshare", "--fork", "--pid", "--mount", "--ipc", "--uts", "--mount-proc"]
        given = {"SCRATCH": str(scratch), "NEEDED": f"{sys.base_prefix} {CHECKOUT}"}
        self.process = subprocess.Popen(
            [*unshare, "bash", "-c", INIT], stderr=subprocess.DEVNULL, env={**os.environ, **given}
        )
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
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)

    def run(self, *arguments: str) -> tuple[int, str]:
        ran = subprocess.run(
            [*self.inside, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        return ran.returncode, ran.stdout + ran.stderr

    def path(self, inside: str) -> Path:
        """Where a file of the container is seen from outside."""
        return Path(f"/proc/{self.first}/root{inside}")

    def end(self) -> None:
        os.kill(self.first, signal.SIGKILL)  # all that runs in it ends with its first process
        self.process.wait()


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    if shutil.which("nsenter") is None:
        pytest.skip("needs nsenter")
    container = Container(tmp_path)
    yield container
    container.end()


STATE, UNIT = "/var/lib/csdf-edge/tests", "csdf-edge-tests.service"


def installed(container: Container) -> None:
    """The service is installed from files that every user can read, and serves."""
    folder = container.path("/etc/csdf-edge")
    folder.mkdir(mode=0o755)
    write_version(folder, 1)
    write_cluster(folder, ("digits", 1), count=1)
    given = ["up", "/etc/csdf-edge/cluster.yaml", "--install", "system", "--name", "tests"]
    code, text = container.run(*LAUNCH, *given)
    assert code == 0, text
    container.wait_for(lambda: serves(container))


def process(container: Container) -> int:
    return int(container.run("systemctl", "show", "-P", "MainPID", UNIT)[1])


def serves(container: Container) -> bool:
    return container.run(*LAUNCH, "status", "--state", STATE)[0] == 0


def test_systemd_starts_it_again_after_every_end_that_nobody_asked_for(
    container: Container,
) -> None:
    installed(container)
    before = process(container)
    container.run("kill", "-STOP", str(before))
    # The watchdog kills it: it hangs.
    container.wait_for(lambda: process(container) not in (0, before))
    container.wait_for(lambda: serves(container))
    before = process(container)
    assert container.run("systemctl", "reload", UNIT)[0] == 0
    assert process(container) == before
    code, text = container.run(*LAUNCH, "down", "--state", STATE, "--json")
    assert (code, json.loads(text)) == (0, {"state": "ended"})
    assert container.run("systemctl", "is-active", UNIT)[1].strip() in ("inactive", "deactivating")
    assert container.run("systemctl", "show", "-P", "Result", UNIT)[1].strip() == "success"


def test_the_systems_service_is_a_user_of_its_own_who_owns_its_state_only(
    container: Container,
) -> None:
    installed(container)
    status = container.path(f"/proc/{process(container)}/status").read_text()
    user = int(container.run("id", "-u", USER)[1])
    assert f"Uid:\t{user}\t{user}\t{user}\t{user}\n" in status
    assert "CapEff:\t0000000000000000\n" in status
    assert "NoNewPrivs:\t1\n" in status
    assert "Seccomp:\t2\n" in status
    state = container.path(STATE)
    assert {path.stat().st_uid for path in (state, *state.rglob("*"))} == {user}
    assert state.stat().st_mode & 0o777 == 0o700
    secret = container.path("/etc/csdf-edge/secret.yaml")
    secret.write_text("model: digits1.onnx\nnodes: [{name: a}]\n")
    secret.chmod(0o600)
    code, text = container.run(*LAUNCH, "apply", "/etc/csdf-edge/secret.yaml", "--state", STATE)
    assert (code, "Permission denied" in text) == (2, True), text
    given = ["up", "/etc/csdf-edge/secret.yaml", "--install", "system", "--name", "other"]
    code, text = container.run(*LAUNCH, *given)
    assert code == 2, text
    assert f"(as {USER}, the user of the service" in text
    assert not container.path("/etc/systemd/system/csdf-edge-other.service").exists()
