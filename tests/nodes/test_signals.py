"""An agent process notices every signal, also one that does not interrupt its sleep."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from tests.nodes.speaker import AgentProcess


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "S"


def test_notices_a_signal_that_does_not_interrupt_its_sleep(tmp_path: Path) -> None:
    """As one that comes just before the sleep; here it is one that another thread gets."""
    agent = AgentProcess(tmp_path / "cache", parent=False)
    while "executor" not in agent.threads() or not is_asleep(agent.pid):
        os.sched_yield()
    other = int(agent.threads()["executor"].name)
    assert ctypes.CDLL(None, use_errno=True).tgkill(agent.pid, other, signal.SIGTERM) == 0
    assert agent.report()["why"] == "SIGTERM"
