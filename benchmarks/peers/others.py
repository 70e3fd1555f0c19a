"""Runs the alternatives: a pyzmq script, torch's pipelining, and a single ONNX Runtime."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from benchmarks.lab.shell import LabError
from benchmarks.peers.boards import Boards, Program
from benchmarks.peers.chain import Chain
from benchmarks.peers.stages.frames import Array, difference, read_frame, read_results
from benchmarks.peers.turns import Counting, Turn

STAGES = "benchmarks.peers.stages"
PATIENCE_MS = 120_000
"""Without a result, after which a stage is thought to have ended."""


class PlainZmq:
    """The plainest pyzmq script on each board; frames are fed and results taken by this process."""

    name = "pyzmq script"

    def __init__(self, programs: Mapping[str, Program], push: Any, pull: Any, folder: Path) -> None:
        self._programs, self._push, self._pull = programs, push, pull
        self._frame, self._wanted = read_frame(folder), read_results(folder)

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, boards: Boards, chain: Chain, folder: Path, high_water_mark: int
    ) -> Iterator[PlainZmq]:
        """Start the stages."""
        at_host = boards.host_address()
        names = [part.device for part in chain.parts]
        following = [*(boards.address(name) for name in names[1:]), at_host]
        commands = {
            name: (
                *(sys.executable, "-m", f"{STAGES}.zmq_stage", str(folder / "chain.json")),
                *(str(number), boards.address(name), following[number], str(high_water_mark)),
            )
            for number, name in enumerate(names)
        }
        with (
            zmq.Context() as context,
            context.socket(zmq.PUSH) as push,
            context.socket(zmq.PULL) as pull,
            boards.programs(commands) as programs,
        ):
            push.sndhwm = pull.rcvhwm = high_water_mark
            push.linger = 0
            pull.bind(at_host)
            push.connect(boards.address(names[0]))
            yield cls(programs, push, pull, folder)

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`."""
        counting = Counting(
            {name: program.pid for name, program in self._programs.items()}, [os.getpid()]
        )
        sent: list[float] = []
        received: list[float] = []
        worst = 0.0
        poller = zmq.Poller()
        poller.register(self._pull, zmq.POLLIN)
        poller.register(self._push, zmq.POLLOUT)
        while len(received) < frames:
            ready = dict(poller.poll(PATIENCE_MS))
            if not ready:
                raise LabError(f"the pyzmq script gave no result for {PATIENCE_MS / 1000:g} s")
            if self._push in ready:
                self._send(len(sent))
                sent.append(time.monotonic())
                if len(sent) == frames:
                    poller.unregister(self._push)
            if self._pull in ready:
                worst = max(worst, difference(self._receive(len(received)), self._wanted))
                received.append(time.monotonic())
                if len(received) == skipped + 1:
                    counting.full()
        counting.done()
        return counting.turn(sent, received, skipped, worst)

    def _send(self, number: int) -> None:
        tensors = [(str(array.dtype), array.shape) for array in self._frame]
        header = json.dumps({"frame": number, "tensors": tensors}).encode()
        self._push.send_multipart([header, *self._frame], copy=False)

    def _receive(self, number: int) -> list[Array]:
        first, *parts = self._pull.recv_multipart(copy=False)
        header = json.loads(first.bytes)
        assert header["frame"] == number
        return [
            np.frombuffer(part.buffer, dtype).reshape(shape)
            for part, (dtype, shape) in zip(parts, header["tensors"], strict=True)
        ]


class TorchGloo:
    """`torch.distributed.pipelining` over gloo, in another Python's processes."""

    name = "torch pipelining"

    def __init__(
        self, programs: Mapping[str, Program], boards: tuple[str, ...], microbatches: int
    ) -> None:
        self._programs, self._boards, self._microbatches = programs, boards, microbatches

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, boards: Boards, chain: Chain, folder: Path, python: str, microbatches: int
    ) -> Iterator[TorchGloo]:
        """Start source, stages and sink, which find each other."""
        names = tuple(part.device for part in chain.parts)
        rendezvous = boards.host_address()

        def command(rank: int) -> tuple[str, ...]:
            return (
                *(python, "-m", f"{STAGES}.torch_stage", str(folder / "chain.json")),
                *(str(rank), rendezvous, str(microbatches)),
            )

        stages = {name: command(rank) for rank, name in enumerate(names, 1)}
        host = {"source": command(0), "sink": command(len(names) + 1)}
        quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        with boards.programs(stages, host, quiet) as programs:
            yield cls(programs, names, microbatches)

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`; frames are rounded up to whole steps."""
        steps = -(-frames // self._microbatches)
        source, sink = self._programs["source"], self._programs["sink"]
        counting = Counting(
            {name: self._programs[name].pid for name in self._boards}, [source.pid, sink.pid]
        )
        for program in self._programs.values():
            program.tell(f"{steps * self._microbatches} {skipped}")
        assert sink.hear() == "full"
        counting.full()
        answer = json.loads(sink.hear())
        counting.done()
        sent = json.loads(source.hear())["times"]
        for name in self._boards:
            self._programs[name].hear()
        return counting.turn(sent, answer["times"], skipped, answer["difference"])


def torch_version(python: str) -> str | None:
    """The torch that this Python has, together with ONNX Runtime; None without."""
    code = (
        "import onnxruntime, torch, torch.distributed.pipelining; "
        "print(torch.__version__ if torch.distributed.is_gloo_available() else '')"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


class WholeModel:
    """The whole network in one ONNX Runtime on one board, the others idle."""

    name = "one ONNX Runtime"

    def __init__(self, program: Program, board: str) -> None:
        self._program, self._board = program, board

    @classmethod
    @contextlib.contextmanager
    def opened(cls, boards: Boards, folder: Path) -> Iterator[WholeModel]:
        """Start it on the first board."""
        board = boards.names[0]
        argv = (sys.executable, "-m", f"{STAGES}.whole_model", str(folder / "whole.json"))
        with boards.programs({board: argv}) as programs:
            yield cls(programs[board], board)

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`."""
        counting = Counting({self._board: self._program.pid}, [])
        self._program.tell(f"{frames} {skipped}")
        assert self._program.hear() == "full"
        counting.full()
        answer = json.loads(self._program.hear())
        counting.done()
        return counting.turn(answer["sent"], answer["received"], skipped, answer["difference"])
