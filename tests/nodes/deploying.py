"""The control messages of a launcher, step by step, and chains of layers to deploy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import onnx

from csdf_edge.testing import executor_models as models
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import (
    CHUNK_BYTES,
    HOST,
    Attach,
    BlobInfo,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    Missing,
    PhaseSpec,
    Progress,
    Put,
    Query,
    Stop,
    Stopped,
    Stored,
    TensorHeader,
)
from tests.nodes.speaker import Speaker


class Launcher(Speaker):
    """Uploads, deploys and stops."""

    def upload(self, blobs: dict[str, bytes]) -> None:
        missing = self.ask(Query(tuple(blobs)))
        assert isinstance(missing, Missing)
        for digest in missing.digests:
            content = blobs[digest]
            info = BlobInfo(digest, len(content))
            for at in range(0, len(content), CHUNK_BYTES):
                chunk = content[at : at + CHUNK_BYTES]
                stored = self.ask(Put(info, at, chunk))
                assert stored == Stored(digest, at, complete=at + len(chunk) == len(content))

    def deploy(self, deployment: Deployment) -> Deployed | Failed:
        self.say(Deploy(deployment))
        while isinstance(answer := self.hear(), Progress):
            assert answer.done <= answer.total == len(deployment.phases)
        assert isinstance(answer, Deployed | Failed), answer
        return answer

    def stop(self, epoch: int) -> Stopped:
        self.say(Stop(epoch))
        return self.hear(Stopped)


@dataclass(frozen=True)
class Line:
    """Networks of one input and one output each, one phase behind the other, with their files."""

    phases: tuple[PhaseSpec, ...]
    channels: tuple[ChannelSpec, ...]
    blobs: dict[str, bytes]

    def deployment(self, epoch: int) -> Deployment:
        """All of it on node a, between the host and the host."""
        return Deployment(epoch, "a", "pipelined", self.phases, self.channels, ())


def line(folder: Path, *protos: onnx.ModelProto) -> Line:
    """`protos` as a launcher deploys them, each fed by the one before; the files are written below
    `folder`. Of the channels the host feeds 0, and the last one goes to it."""
    blobs: dict[str, bytes] = {}
    phases, channels = [], []
    for number, proto in enumerate(protos):
        graph = models.save(proto, folder / str(number))
        files = (graph, *(path for path in graph.parent.iterdir() if path != graph))
        infos = [_blob(path, blobs) for path in files]
        (x,), (y,) = proto.graph.input, proto.graph.output
        weights = infos[1] if len(infos) > 1 else None
        phases.append(PhaseSpec(f"p{number}", infos[0], weights, (x.name,), (y.name,)))
        before = (HOST, None) if number == 0 else ("a", number - 1)
        channels.append(_channel(number, x, before, ("a", (number,))))
    channels.append(_channel(len(protos), y, ("a", len(protos) - 1), (HOST, ())))
    return Line(tuple(phases), tuple(channels), blobs)


def _blob(path: Path, blobs: dict[str, bytes]) -> BlobInfo:
    content = path.read_bytes()
    digest = sha256(content).hexdigest()
    blobs[digest] = content
    return BlobInfo(digest, len(content))


def _channel(
    number: int,
    value: onnx.ValueInfoProto,
    source: tuple[str, int | None],
    target: tuple[str, tuple[int, ...]],
) -> ChannelSpec:
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    return ChannelSpec(number, value.name, "float32", shape, *source, *target, 2)


class Host(Speaker):
    """The data side of a `Line`: feeds its first channel and takes its last."""

    def feed(self, network: Line, epoch: int, frame: bytes) -> None:
        """One frame, of which the result is not waited for."""
        first, last = network.channels[0], network.channels[-1]
        self.say(Attach(epoch, HOST), Credit(epoch, last.number, last.capacity_frames))
        granted = self.hear(Credit)
        assert granted.channel == first.number
        header = TensorHeader(epoch, first.number, 0, first.dtype, first.shape)
        self.say_raw(encode(header), frame)

    def stream(self, network: Line, epoch: int, frames: int) -> None:
        """Zeros, frame by frame; raises what the socket raises if no result comes in time."""
        first, last = network.channels[0], network.channels[-1]
        zeros = bytes(4 * math.prod(first.shape))
        self.say(Attach(epoch, HOST), Credit(epoch, last.number, last.capacity_frames))
        sent = taken = room = 0
        while taken < frames:
            message = decode(self.socket.recv_multipart()[0])
            if isinstance(message, Credit):
                room += message.frames
            else:
                assert message == TensorHeader(epoch, last.number, taken, "float32", last.shape)
                taken += 1
                self.say(Credit(epoch, last.number, 1))
            while room and sent < frames:
                header = TensorHeader(epoch, first.number, sent, "float32", first.shape)
                self.say_raw(encode(header), zeros)
                sent, room = sent + 1, room - 1
