"""The agent's core among peers who say what they like, in any order, at any time."""

from __future__ import annotations

from random import Random

from nodes.core import events as ev
from nodes.protocol import codec
from nodes.protocol import messages as words
from nodes.protocol.errors import RemoteProtocolError
from tests.fuzz.agent_shell import AgentUnderFire
from tests.fuzz.good import DEPLOYMENT, ENCODED, EPOCH
from tests.fuzz.mutation import mutated_map

EVENTS = 30

_LAUNCHER = tuple(
    codec.encode(message)
    for message in (
        words.Hello(words.PROTOCOL, "s", 60.0), words.Deploy(DEPLOYMENT), words.Start(EPOCH),
        words.GetStats(), words.Stop(EPOCH), words.Bye(),
    )
)  # fmt: skip
"""What leads an agent from one state to the next."""

_GOOD_DATA = (
    ("host", codec.encode(words.Attach(EPOCH, words.HOST)), None),
    ("peer", codec.encode(words.Attach(EPOCH, "n1")), None),
    *(
        ("host", codec.encode(words.TensorHeader(EPOCH, 0, frame, "float32", (2,))), b"12345678")
        for frame in (0, 0, 1)
    ),
    *(("n1", codec.encode(words.Credit(EPOCH, channel, 2)), None) for channel in (1, 1)),
)
"""What may come over data connections once it runs: from whom, the message, the payload."""


class Choices(Random):
    """A random generator whose bits are given: whoever changes them changes what is chosen."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether all bits have been used; from then on they are zeros."""
        return self._at >= len(self._data)

    def random(self) -> float:
        return self.getrandbits(16) / 65536

    def getrandbits(self, k: int) -> int:
        size = (k + 7) // 8
        taken = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(taken, "big") & ((1 << k) - 1)


def converse(data: bytes) -> bool:
    """A conversation that these bytes decide on; whether a frame was computed in it."""
    random = Choices(data)
    there = AgentUnderFire(random)
    following = 0
    for _ in range(EVENTS):
        if random.is_over:
            break
        if random.random() < 0.4:
            raw, following = _LAUNCHER[following % len(_LAUNCHER)], following + 1
            there.hear(_control(there.peer("launcher"), raw))
        else:
            _someone_speaks(there, random)
    there.settle()
    assert there.bugs == []
    return there.fired > 0


def _someone_speaks(there: AgentUnderFire, random: Random) -> None:
    if random.random() < 0.75:
        who, raw, payload = _GOOD_DATA[random.randrange(len(_GOOD_DATA))]
        link = "n1" if who == "n1" else there.peer(who)
        there.hear(ev.DataReceived(link, codec.decode(raw), payload, len(payload or b"")))
    elif random.random() < 0.15:
        peer = there.peer("peer")
        gone = ev.LinkLost(random.choice((peer, "n1")), "gone")
        there.hear(random.choice((ev.Tick(), gone, ev.Rejected("no handshake"))))
    else:
        raw = random.choice(ENCODED) if random.random() < 0.7 else mutated_map(ENCODED, random)
        peer = there.peer(random.choice(("launcher", "peer", "peer")))
        there.hear(_control(peer, raw) if random.random() < 0.3 else _data(peer, raw, random))


def _control(peer: bytes, raw: bytes) -> ev.Event:
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
