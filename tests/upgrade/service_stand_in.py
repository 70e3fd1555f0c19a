"""What `systemctl restart node-agent` is on a test's board: the unit's effect without systemd.

The present agent is ended, `current/bin/node-agent` started, and its readiness awaited, as for
`Type=notify`. Arguments: the board's folder, the agent's address and its name.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path


def end(pid: int) -> None:
    """End a process, and wait until it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    select.select([handle], [], [])
    os.close(handle)


def restart(board: Path, address: str, name: str) -> int:
    """Restart a board's agent; return 0 once it is ready, 1 if it ends before."""
    noted = board / "agent.pid"
    if noted.exists():
        end(int(noted.read_text()))
    told = board / "notify"
    told.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(told))
        program = board / "home" / "csdf-edge" / "current" / "bin" / "node-agent"
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        agent = subprocess.Popen(
            [program, "--listen", address, "--name", name, "--cache", board / "cache"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**environment, "NOTIFY_SOCKET": str(told)},
        )
        noted.write_text(str(agent.pid))
        handle = os.pidfd_open(agent.pid)
        while True:
            heard, _, _ = select.select([ready, handle], [], [])
            if handle in heard:
                return 1
            if b"READY=1" in ready.recv(4096):
                return 0


if __name__ == "__main__":
    sys.exit(restart(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
