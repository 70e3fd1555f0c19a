"""What is fed: every reader of bytes that nobody vouches for, and what each may answer.

A target makes an input from a random generator and has it read. It returns whether the input was
taken for good; it raises only for what must never happen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from onnx import TensorProto, helper

from cnn.errors import CnnError
from launcher.config_sentences import validated
from launcher.config_source import parse_source
from launcher.errors import BadInputError
from launcher.plan_files import PLAN, read_plan
from nodes.core import codec
from nodes.core import events as ev
from nodes.core import messages as words
from nodes.core.errors import RemoteProtocolError
from nodes.executors.base import ExecutorError
from nodes.executors.onnx_file import inspect
from nodes.keys import KeyFolder, KeysError
from tests.fuzz.agent_shell import AgentUnderFire
from tests.fuzz.mutation import mutated, mutated_map, mutated_text
from tests.nodes.simulation import EPOCH, GRAPH, Dataflow

Target = Callable[[Random], bool]

_FLOW = Dataflow(("n0", "n1", "n0"), (("x",), ("t0",), ("t1",)), ("t2",), (2, 2, 2, 2))
_STATS = words.Stats(EPOCH, (1,), (0.5,), 1.0, 1.0, 8, 8, 1, 1, 1, 0, 0, 8, (0.5,))

MESSAGES: tuple[words.Message, ...] = (
    words.Hello(words.PROTOCOL, "s", 5.0), words.Query(("a" * 64,)), words.Put(GRAPH, 0, b"x"),
    words.Deploy(_FLOW.deployments()["n0"]), words.Start(EPOCH), words.Stop(EPOCH),
    words.GetStats(), words.Ping(), words.Bye(), words.Shutdown(),
    words.Welcome(1, "n0", "0", "tcp://h:1", "e", "m", 4, 10**8), words.Refused("no", 1),
    words.Missing(("a" * 64,)), words.Stored("a" * 64, 0, True), words.Progress(EPOCH, 1, 2, "w"),
    words.Deployed(EPOCH, (0.1,), 10**8), words.Failed(EPOCH, "why"), words.Stopped(EPOCH, _STATS),
    _STATS, words.Pong(), words.Attach(EPOCH, "n1"), words.Attach(EPOCH, words.HOST),
    words.Credit(EPOCH, 1, 2), words.TensorHeader(EPOCH, 0, 0, "float32", (2,)),
)  # fmt: skip
ENCODED = tuple(codec.encode(message) for message in MESSAGES)

CLUSTER = (
    "model: {path: a.onnx, input_shape: [1, 3, 8, 8]}\n"
    "nodes:\n  - name: a\n    address: tcp://10.0.0.1:5500\n    memory: 2GB\n    link: 1Gbit/s\n"
    "  - {name: b, threads: 2, cpus: [0, 1], macs_per_s: 20G}\n"
    "input: {files: ['*.jpg'], scale: 1, mean: [0.5, 0.5, 0.5], resize: pad}\n"
    "pins: {conv1: a, 'head*': b}\nframes: 9\nseed: 3\nkeys: keys\nverify: false\n"
    "run: {order: strict, lease_s: 5}\n",
    "model: [a.onnx, {path: b.onnx, name: k}]\nnodes: [{name: a}]\ninputs: {k: x/*.png}\n",
)


def read_message(random: Random) -> bool:
    """The codec: bytes, as they come off the wire."""
    make = mutated_map if random.random() < 0.5 else mutated
    try:
        message = codec.decode(make(ENCODED, random))
    except RemoteProtocolError:
        return False
    assert isinstance(message, words.Message)
    return True


LAUNCHER = tuple(
    codec.encode(message)
    for message in (
        words.Hello(words.PROTOCOL, "s", 60.0), words.Deploy(_FLOW.deployments()["n0"]),
        words.Start(EPOCH),
        words.GetStats(), words.Stop(EPOCH), words.Bye(),
    )
)  # fmt: skip
"""What leads an agent from one state to the next."""


GOOD_DATA = (
    ("host", codec.encode(words.Attach(EPOCH, words.HOST)), None),
    ("peer", codec.encode(words.Attach(EPOCH, "n1")), None),
    *(
        ("host", codec.encode(words.TensorHeader(EPOCH, 0, frame, "float32", (2,))), b"12345678")
        for frame in (0, 0, 1)
    ),
    *(("n1", codec.encode(words.Credit(EPOCH, channel, 2)), None) for channel in (1, 1)),
)
"""What may come over data connections once it runs: from whom, the message, the payload."""


def converse(random: Random) -> bool:
    """The agent's core: peers who say what they like, in any order, at any time."""
    there = AgentUnderFire(random)
    following = 0
    for _ in range(30):
        if random.random() < 0.4:
            raw, following = LAUNCHER[following % len(LAUNCHER)], following + 1
            there.hear(_control(there.peer("launcher"), raw))
        elif random.random() < 0.75:
            who, raw, payload = GOOD_DATA[random.randrange(len(GOOD_DATA))]
            link = "n1" if who == "n1" else there.peer(who)
            there.hear(ev.DataReceived(link, codec.decode(raw), payload, len(payload or b"")))
        elif random.random() < 0.15:
            peer = there.peer("peer")
            gone = ev.LinkLost(random.choice((peer, "n1")), "gone")
            there.hear(random.choice((ev.Tick(), gone, ev.Rejected("no handshake"))))
        else:
            raw = random.choice(ENCODED) if random.random() < 0.7 else mutated_map(ENCODED, random)
            who = random.choice(("launcher", "peer", "peer"))
            control = random.random() < 0.3
            make = _control if control else _data
            there.hear(make(there.peer(who), raw, random))
    there.settle()
    assert not there.bugs, there.bugs
    return there.fired > 0


def _control(peer: bytes, raw: bytes, _: Random | None = None) -> ev.Event:
    try:
        return ev.ControlReceived(peer, codec.decode(raw))
    except RemoteProtocolError as error:
        return ev.ControlMalformed(peer, str(error))


def _data(peer: bytes, raw: bytes, random: Random) -> ev.Event:
    payload = random.choice((None, b"", b"12345678"))
    try:
        return ev.DataReceived(peer, codec.decode(raw), payload, len(payload or b""))
    except RemoteProtocolError as error:
        return ev.DataMalformed(peer, str(error))


def read_cluster(random: Random) -> bool:
    """`cluster.yaml`."""
    try:
        validated(parse_source(mutated_text(CLUSTER, random), "cluster.yaml"))
    except BadInputError:
        return False
    return True


class Files:
    """Targets that read a file, which they write into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._onnx = (_network(), _network(external=True))
        self._plans = (json.dumps(_PLAN), json.dumps(_PLAN, indent=1))
        (folder / "weights").write_bytes(b"1234")

    def _written(self, name: str, content: bytes) -> Path:
        """A new file: one that is written over is flushed to the disk by some file systems."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return path

    def read_network(self, random: Random) -> bool:
        """ONNX as a node reads it."""
        path = self._written("network", mutated(self._onnx, random))
        try:
            file = inspect(path)
        except ExecutorError:
            return False
        assert all(found.parent == self._folder for found in file.external)
        return True

    def read_plan(self, random: Random) -> bool:
        """`plan.json`."""
        text = mutated_text(self._plans, random)
        self._written(PLAN, text.encode("utf-8", "surrogatepass"))
        try:
            read_plan(self._folder)
        except (BadInputError, CnnError):
            return False
        return True

    def read_keys(self, random: Random) -> bool:
        """A folder of keys."""
        keys = self._folder / "keys"
        (keys / "nodes").mkdir(parents=True, exist_ok=True)
        seeds = (b"# of a\n" + b"ab" * 32 + b"\n", b"cd" * 32)
        for path in (keys / "secret.key", keys / "nodes" / "b.pub"):
            content = mutated(seeds, random) if random.random() < 0.7 else seeds[1]
            self._written(str(path), content)
        (keys / "secret.key").chmod(0o600)
        try:
            ring = KeyFolder(keys)
        except KeysError:
            return False
        assert len(ring.secret) == len(ring.nodes["b"]) == 32
        return True

    def targets(self) -> Mapping[str, Target]:
        """All of them."""
        return {
            "messages": read_message,
            "agent": converse,
            "cluster.yaml": read_cluster,
            "plan.json": self.read_plan,
            "ONNX": self.read_network,
            "keys": self.read_keys,
        }


_PLAN = {
    "format": 1,
    "assignment": {"a": ["conv1", "relu1"], "b": ["fc"]},
    "rewrites": [],
    "model": "a.onnx",
    "model_digest": "ab" * 32,
    "strategy": "vertical",
    "explanation": "so",
    "optimal": True,
    "gap": 0.0,
    "derived": {"proof": "p", "period_s": 0.1, "nodes": [], "phases": [], "channels": []},
}


def _network(*, external: bool = False) -> bytes:
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    if external:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=1)
        for key, value in (("location", "weights"), ("offset", "0"), ("length", "4")):
            tensor.external_data.add(key=key, value=value)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    node = helper.make_node("Add", ["x", "w"], ["y"], name="add")
    inner = helper.make_graph([node], "inner", [], [])
    nodes = [node, helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)]
    model = helper.make_model(helper.make_graph(nodes, "g", [value], [], [tensor]))
    return bytes(model.SerializeToString())
