"""Network namespaces joined by a bridge, each with one address, made and removed by root.

Every name carries the process id, and the network depends on it, so that neither another run nor
anything of the machine's is touched. The bridge has an address too: that is the launcher's machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.launcher_runtime.clusters import stop

NETWORK = f"10.77.{os.getpid() % 256}"
PORT = 7070


def ip(*arguments: str) -> None:
    """Run iproute2's `ip`; raises with what it said."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def why_not() -> str | None:
    """Why no namespaces can be made here; None if they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if shutil.which("ip") is None:
        return "iproute2 (`ip`) is not installed"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    probe, bridge = f"csdf{os.getpid()}p", f"cb{os.getpid()}p"
    try:
        ip("netns", "add", probe)
        ip("netns", "delete", probe)
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "delete", bridge)
    except RuntimeError as error:
        return f"this machine does not let us make them ({error})"
    return None


@contextmanager
def namespaces(count: int) -> Iterator[dict[str, str]]:
    """`count` namespaces on one bridge; yields namespace → its address. All gone afterwards."""
    bridge = f"cb{os.getpid()}"
    with ExitStack() as undo:
        ip("link", "add", bridge, "type", "bridge")
        undo.callback(ip, "link", "delete", bridge)
        ip("address", "add", f"{NETWORK}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        made = {}
        for number in range(count):
            name, outside = f"csdf{os.getpid()}n{number}", f"cv{os.getpid()}n{number}"
            ip("netns", "add", name)
            undo.callback(ip, "netns", "delete", name)
            ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            undo.callback(ip, "link", "delete", outside)
            ip("link", "set", outside, "master", bridge, "up")
            ip("-n", name, "address", "add", f"{NETWORK}.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            made[name] = f"{NETWORK}.{number + 1}"
        yield made


@contextmanager
def agent_in(namespace: str, listen: str, name: str, cache: Path, keys: Path) -> Iterator[int]:
    """A `node-agent` daemon inside a namespace, with its own keys; yields its process id."""
    command = [sys.executable, "-m", "nodes.cli", "--listen", listen, "--name", name]
    command += ["--keys", str(keys / name)]
    with subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command, "--cache", str(cache)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process.pid  # `ip netns exec` becomes the agent
        finally:
            stop(process)


def slowed(namespace: str, rate: str) -> None:
    """Let a namespace's link carry no more than `rate` in each direction, until it is removed."""
    outside = namespace.replace("csdf", "cv")
    shape = ["root", "tbf", "rate", rate, "burst", "4kb", "latency", "400ms"]
    for where in (["-n", namespace, "qdisc"], ["qdisc"]):
        device = "eth0" if "-n" in where else outside
        command = ["tc", *where, "add", "dev", device, *shape]
        subprocess.run(command, capture_output=True, check=True)
