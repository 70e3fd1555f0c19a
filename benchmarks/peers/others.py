"""Runs ours and the alternatives: a pyzmq script, torch's pipelining, and one ONNX Runtime."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import zmq

from benchmarks.comparison import worst_of
from benchmarks.lab import Lab
from benchmarks.lab.programs import programs
from benchmarks.lab.readings import processes
from benchmarks.lab.runs import Planned
from benchmarks.lab.shell import LabError
from benchmarks.peers.chain import Chain
from benchmarks.peers.stages.session import packed, read_frame, read_results, unpacked
from benchmarks.peers.turns import Counting, Turn
from benchmarks.programs import Program, free_port
from nodes.protocol.payload import Array

STAGES = "benchmarks.peers.stages"
PATIENCE_MS = 120_000
"""Without a result, after which a stage is thought to have ended."""

HIGH_WATER_MARK = 2
"""Frames in each of pyzmq's queues."""

MICROBATCHES = 8
"""Frames in a step of torch."""


PORT = 6600
"""Where a program on a board listens."""


def host_address(lab: Lab) -> str:
    """Where this machine can listen."""
    host = lab.layout.host_address.partition("/")[0]
    return f"tcp://{host}:{free_port(host)}"


class Ours:
    """Deploys again for each turn, as every `launch` does; nodes keep the optimised files."""

    name = "csdf-edge"

    def __init__(self, lab: Lab, made: Planned, chain: Chain, folder: Path) -> None:
        places = lab.layout.places.items()
        self._agents = {name: min(processes(lab.layout, place)) for name, place in places}
        self._made = made
        inputs = [tensor.name for tensor in chain.parts[0].inputs]
        self._outputs = [tensor.name for tensor in chain.parts[-1].outputs]
        self._frame = dict(zip(inputs, read_frame(folder), strict=True))
        self._wanted = read_results(folder)

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`."""
        counting, worst = Counting(self._agents), [0.0]

        def take(number: int, outputs: Mapping[str, Array]) -> None:
            if number == skipped:
                counting.full()
            results = [outputs[name] for name in self._outputs]
            worst.append(worst_of(zip(results, self._wanted, strict=True)))
            if number == frames - 1:  # the agents still have everything
                counting.done()

        result = self._made.stream([self._frame] * frames, take)
        return counting.turn(result.sent_s, result.received_s, skipped, max(worst))


class PlainZmq:
    """The plainest pyzmq script on each board; frames are fed and results taken by this process."""

    name = "pyzmq script"

    def __init__(self, programs: Mapping[str, Program], push: Any, pull: Any, folder: Path) -> None:
        self._programs, self._push, self._pull = programs, push, pull
        self._frame, self._wanted = read_frame(folder), read_results(folder)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, lab: Lab, chain: Chain, folder: Path) -> Iterator[PlainZmq]:
        """Start the stages."""
        at_host = host_address(lab)
        names = [part.device for part in chain.parts]
        at = {name: f"tcp://{lab.place(name).host}:{PORT}" for name in names}
        following = [*(at[name] for name in names[1:]), at_host]
        commands = {
            name: (
                *(sys.executable, "-m", f"{STAGES}.zmq_stage", str(folder / "chain.json")),
                *(str(number), at[name], following[number], str(HIGH_WATER_MARK)),
            )
            for number, name in enumerate(names)
        }
        with (
            zmq.Context() as context,
            context.socket(zmq.PUSH) as push,
            context.socket(zmq.PULL) as pull,
            programs(lab, commands) as started,
        ):
            push.sndhwm = pull.rcvhwm = HIGH_WATER_MARK
            push.linger = 0
            pull.bind(at_host)
            push.connect(at[names[0]])
            yield cls(started, push, pull, folder)

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`."""
        counting = Counting({name: program.pid for name, program in self._programs.items()})
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
                self._push.send_multipart(packed(self._frame), copy=False)
                sent.append(time.monotonic())
                if len(sent) == frames:
                    poller.unregister(self._push)
            if self._pull in ready:
                results = unpacked(self._pull.recv_multipart(copy=False))
                worst = max(worst, worst_of(zip(results, self._wanted, strict=True)))
                received.append(time.monotonic())
                if len(received) == skipped + 1:
                    counting.full()
        counting.done()
        return counting.turn(sent, received, skipped, worst)


class TorchGloo:
    """`torch.distributed.pipelining` over gloo, in another Python's processes."""

    name = "torch pipelining"

    def __init__(self, programs: Mapping[str, Program], boards: tuple[str, ...]) -> None:
        self._programs, self._boards = programs, boards

    @classmethod
    @contextlib.contextmanager
    def opened(cls, lab: Lab, chain: Chain, folder: Path, python: str) -> Iterator[TorchGloo]:
        """Start source, stages and sink, which find each other."""
        names = tuple(part.device for part in chain.parts)
        rendezvous = host_address(lab)

        def command(rank: int) -> tuple[str, ...]:
            return (
                *(python, "-m", f"{STAGES}.torch_stage", str(folder / "chain.json")),
                *(str(rank), rendezvous, str(MICROBATCHES)),
            )

        stages = {name: command(rank) for rank, name in enumerate(names, 1)}
        host = {"source": command(0), "sink": command(len(names) + 1)}
        variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        variables |= {"GLOO_SOCKET_IFNAME": "{interface}"}
        with programs(lab, stages, host, variables) as started:
            yield cls(started, names)

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`; frames are rounded up to whole steps."""
        steps = -(-frames // MICROBATCHES)
        source, sink = self._programs["source"], self._programs["sink"]
        counting = Counting({name: self._programs[name].pid for name in self._boards})
        for program in self._programs.values():
            program.tell(f"{steps * MICROBATCHES} {skipped}")
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

    def __init__(self, program: Program) -> None:
        self._program = program

    @classmethod
    @contextlib.contextmanager
    def opened(cls, lab: Lab, folder: Path) -> Iterator[WholeModel]:
        """Start it on the first board."""
        argv = (sys.executable, "-m", f"{STAGES}.whole_model", str(folder / "whole.json"))
        board = next(iter(lab.layout.places))
        with programs(lab, {board: argv}) as started:
            yield cls(started[board])

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`."""
        counting = Counting({"": self._program.pid})
        self._program.tell(f"{frames} {skipped}")
        assert self._program.hear() == "full"
        counting.full()
        answer = json.loads(self._program.hear())
        counting.done()
        return counting.turn(answer["sent"], answer["received"], skipped, answer["difference"])
