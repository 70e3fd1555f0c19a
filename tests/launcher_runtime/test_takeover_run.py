"""A launcher is killed while frames stream, and the next one has the cluster at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.config.run import RunConfig
from launcher.errors import BadInputError
from launcher.run.runtime import RunOptions
from tests.launcher_runtime.clusters import Cluster, RandomFrames, daemons, results
from tests.launcher_runtime.test_endings import endless

pytestmark = pytest.mark.slow

LONG_LEASE = RunOptions(RunConfig(connect_timeout_s=5.0))


def run(two: Cluster, addresses: dict[str, str]) -> None:
    taken = results()
    two.run(RandomFrames(10), taken, LONG_LEASE, nodes=two.nodes(addresses))
    two.check(taken.outputs, 10)


def test_a_live_launcher_is_named_and_one_that_was_killed_is_succeeded(
    two: Cluster, cache: Path, tmp_path: Path
) -> None:
    with daemons(two.names, cache) as agents, half_open(agents["n1"][0]) as by_the_way:
        addresses = {name: address for name, (address, _) in agents.items()}
        with endless(tmp_path, cache, addresses["n0"], by_the_way) as first:
            with pytest.raises(
                BadInputError, match=r"'n[01]' at .* refused: launcher '.*@"
            ) as said:
                run(two, addresses)
            assert f"process {first.process.pid}" in str(said.value)
            first.process.kill()
            first.process.wait()
            # n0 hears that its launcher is gone; n1 does not, but the next one knows.
            run(two, addresses)


@contextmanager
def half_open(address: str) -> Iterator[str]:
    """An address at which `address` is reached; what has dialled it may end, and it never hears."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    ends: list[socket.socket] = []

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass  # closed below

    def serve() -> None:
        try:
            while True:
                near, _ = listener.accept()
                ends.append(near)
                try:
                    far = socket.create_connection((host, int(port)), timeout=20.0)
                except ConnectionRefusedError:  # it has not started yet
                    near.close()
                    continue
                ends.append(far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()
        except OSError:
            pass  # closed below

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for end in ends:
                end.close()
