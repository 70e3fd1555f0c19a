"""A process that has the engine imported already, and from which children that use it are forked.

A child that begins anew imports the engine anew: half a second of CPU and 20 MB of memory of its
own, beside the same 20 MB of the agent that started it. A fork has both at once, and its memory is
that of its parent until one of them writes to it. But only a process without other threads at work
can be forked safely, and an agent has some. So one fork is made while the agent starts, before it
has any, and does nothing but fork again when it is asked to. It ends when the agent does, and so
do its children, whose standard input closes then.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable
from io import TextIOWrapper
from typing import IO, NoReturn, Protocol, TextIO

_FORK, _WAIT = b"fork", b"wait"
_LONGEST = 64


class Child(Protocol):
    """What is used of a child process, forked or begun anew (`subprocess.Popen`)."""

    @property
    def stdin(self) -> IO[str] | None:
        """What it reads."""
        ...

    @property
    def stdout(self) -> IO[str] | None:
        """What it writes."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def wait(self) -> int:
        """Its exit code, −N if signal N ended it."""
        ...


class ForkServer:
    """Forks children that call `work(input, output)` and exit; made before there are threads.

    `work` reads what `ForkedChild.stdin` is sent and answers on its `stdout`.
    """

    def __init__(self, work: Callable[[TextIO, TextIO], None]) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        gc.collect()
        gc.freeze()  # a collection would write to every object's page
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _serve(its, work)
        its.close()

    def fork(self) -> ForkedChild:
        """Another child; raises OSError if the server is gone or may not fork."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as its:
            its_input, our_output = os.pipe2(os.O_CLOEXEC)
            its.callback(os.close, its_input)
            ours.callback(os.close, our_output)
            our_input, its_output = os.pipe2(os.O_CLOEXEC)
            its.callback(os.close, its_output)
            ours.callback(os.close, our_input)
            with self._lock:
                socket.send_fds(self._socket, [_FORK], [its_input, its_output])
                pid = int(self._answer())
            ours.pop_all()
        return ForkedChild(self, pid, our_output, our_input)

    def wait(self, pid: int) -> int:
        """The exit code of a child that is about to end, −N if signal N ended it."""
        try:
            with self._lock:
                self._socket.send(_WAIT + str(pid).encode())
                return int(self._answer())
        except OSError:  # the server is gone, and its children with it
            return -signal.SIGKILL

    def _answer(self) -> bytes:
        answer = self._socket.recv(_LONGEST)
        if not answer:
            raise ConnectionResetError("the fork server is gone")
        if answer.startswith(b"!"):
            raise OSError(int(answer[1:]), os.strerror(int(answer[1:])))
        return answer

    def close(self) -> None:
        """End the server; children end when their standard input is closed. Idempotent.

        It is killed, so that a thread that waits for its answer waits no longer.
        """
        if self._socket.fileno() < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with self._lock:
            self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class ForkedChild:
    """A child of the server, used like a `subprocess.Popen` with text pipes."""

    def __init__(self, server: ForkServer, pid: int, output: int, input_: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self.stdin: IO[str] | None = os.fdopen(output, "w", encoding="utf-8")
        self.stdout: IO[str] | None = os.fdopen(input_, encoding="utf-8")

    def kill(self) -> None:
        """SIGKILL; nothing if it was waited for."""
        if self.returncode is None:  # until then its number is nobody else's
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, −N if signal N ended it."""
        if self.returncode is None:
            self.returncode = self._server.wait(self.pid)
        return self.returncode


def _serve(agent: socket.socket, work: Callable[[TextIO, TextIO], None]) -> NoReturn:
    """The server: never returns, whatever happens, into what the agent goes on to do."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the agent's affair
        _leave_standard_files()
        while True:
            question, files, _, _ = socket.recv_fds(agent, _LONGEST, 2)
            if not question:
                break
            agent.send(_answered(question, files, agent, work))
    finally:
        os._exit(0)


def _answered(
    question: bytes, files: list[int], agent: socket.socket, work: Callable[[TextIO, TextIO], None]
) -> bytes:
    try:
        if question != _FORK:
            _, status = os.waitpid(int(question.removeprefix(_WAIT)), 0)
            return str(os.waitstatus_to_exitcode(status)).encode()
        pid = os.fork()
        if pid == 0:
            agent.close()
            _work(files, work)
        return str(pid).encode()
    except OSError as error:
        return f"!{error.errno}".encode()
    finally:
        for file in files:
            os.close(file)


def _work(files: list[int], work: Callable[[TextIO, TextIO], None]) -> NoReturn:
    code = 1
    try:
        with os.fdopen(files[0], encoding="utf-8") as input_:
            output = TextIOWrapper(os.fdopen(files[1], "wb"), "utf-8", write_through=True)
            work(input_, output)
            output.flush()
            code = 0
    finally:
        os._exit(code)


def _leave_standard_files() -> None:
    """Whoever waits for the agent's last word must not wait for this process."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    os.close(nowhere)
