"""Children forked from a process without threads: they work, are killed, and outlive nobody."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import errno, os, resource, sys
from nodes.executors.fork_server import ForkServer

def work(input_, output):
    for line in input_:
        if line == "leave\\n":
            os._exit(7)
        print(line.strip().upper(), file=output, flush=True)

server = ForkServer(work)
first, second = server.fork(), server.fork()
for child, word in ((first, "one"), (second, "two")):
    print(word, file=child.stdin, flush=True)
    assert child.stdout.readline() == word.upper() + "\\n"
first.kill()
assert first.wait() == -9 == first.wait()
print("leave", file=second.stdin, flush=True)
assert second.wait() == 7
third = server.fork()
print(third.pid, flush=True)
{end}
"""
CLOSE = """
open_files, taken = os.listdir("/proc/self/fd"), []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    os.close(taken.pop())
    os.close(taken.pop())
try:
    server.fork()
except OSError as error:
    assert error.errno == errno.EMFILE, error
for file in taken:
    os.close(file)
assert os.listdir("/proc/self/fd") == open_files, "it closes what it could open"
third.stdin.close()
assert third.wait() == 0
server.close()
server.close()
assert third.wait() == 0
try:
    server.fork()
except OSError:
    print("fine")
"""


def run(end: str) -> list[str]:
    script = SCRIPT.replace("{end}", end)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_it_forks_as_often_as_it_is_asked_and_tells_how_children_ended() -> None:
    pid, said = run(CLOSE)
    assert said == "fine"
    assert not Path(f"/proc/{pid}").exists()


def test_neither_it_nor_its_children_outlive_who_made_it() -> None:
    """They hold no end of its standard output: `run` would wait for them."""
    (pid,) = run("os.kill(os.getpid(), 9)")
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        ended = os.pidfd_open(int(pid))
        assert select.select([ended], [], [], 30) == ([ended], [], [])
        os.close(ended)


STOPPED = """
import signal, threading
os.kill(server._pid, signal.SIGSTOP)
errors = []

def ask():
    try:
        server.fork()
    except OSError as error:
        errors.append(error)

asking = threading.Thread(target=ask)
asking.start()
while not server._lock.locked():
    os.sched_yield()
server.close()
asking.join()
print(*[type(error).__name__ for error in errors])
"""


def test_one_that_does_not_answer_is_ended_and_whoever_waits_for_it_hears_so() -> None:
    _, *said = run(STOPPED)
    assert said == ["ConnectionResetError"]
