"""Talks with one agent as a launcher does, and measures what the protocol lets a launcher see.

The agent is greeted, which gives a session if it is free. Then it is asked to answer pings (the
round trip), to look up blobs that do not exist (whether long messages pass in both directions), and
to take a blob that never becomes complete (the rate towards it). At the end of the session the
agent discards that blob. All of this is bounded in bytes and seconds. An agent that another
launcher has refuses the session, and is not measured.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from launcher.core.clocks import RoundTrip
from launcher.core.events import MessageMalformed, MessageReceived, NotAdmitted
from launcher.core.roll import Greeted
from launcher.core.session import Contact
from launcher.run.connections import Connections
from launcher.run.roll_call import call_roll
from nodes.net.keys import KeyFolder
from nodes.protocol.messages import (
    PUT_WINDOW,
    BlobInfo,
    Bye,
    Control,
    Failed,
    GetTrace,
    Hello,
    Missing,
    Ping,
    Pong,
    Put,
    Query,
    Stored,
    Traced,
)

ANSWER_S = 4.0
"""How long an agent may take to answer."""

PINGS = 5

LONG_DIGESTS = 256
"""Digests in the long message: 17 KB, which is a dozen packets of 1500 bytes in each direction."""

TRANSFER_BYTES = 8 << 20
TRANSFER_S = 2.0
"""The most bytes and seconds of the transfer."""

CHUNK_BYTES = 64 << 10
"""Bytes of a chunk: few enough for a slow link, where a whole one is in flight at the end."""


@dataclass(frozen=True, slots=True)
class ConversationReading:
    """The result of a conversation.

    `greeted` is the outcome of the greeting; without a `Welcome`, nothing else was tried.
    `long_passed` is None if that was not tried, and so are the others. `clock_rate` is how many
    seconds the agent's steady clock advances in one of ours, known to `clock_error`.
    """

    greeted: Greeted
    round_trip_s: float | None = None
    long_passed: bool | None = None
    bytes_per_s: float | None = None
    failure: str = ""
    clock_rate: float | None = None
    clock_error: float = 0.0


def compare_clocks(before: RoundTrip, after: RoundTrip) -> tuple[float | None, float]:
    """Return the seconds that the agent's clock advances in one of ours, and the largest error.

    When in its round trip an answer was given is unknown, and on a busy machine a trip can be long.
    The rate is None if no time passed between the two trips.
    """
    between_s = after.sent_s - before.back_s
    if between_s <= 0:
        return None, 0.0
    unknown_s = (before.took_s + after.took_s) / 2
    rate = (after.there_s - before.there_s) / (between_s + unknown_s)
    return rate, rate * unknown_s / between_s


def converse(
    node: str,
    address: str,
    hello: Hello,
    keys: KeyFolder | None,
    guards: Callable[[str], bool],
    greeting_s: float = ANSWER_S,
) -> ConversationReading:
    """Talk with the agent of `node` at `address`; nothing that it does raises.

    It has `greeting_s` to answer the greeting, and `ANSWER_S` for each message after it.
    """
    with Connections(keys, guards) as connections:
        contact = Contact(node, address, started_by_us=False)
        roll = call_roll(connections, [contact], hello, greeting_s, greeting_s, keeps=True)
        reading = ConversationReading(roll.greeted[node])
        if reading.greeted.welcome is not None:
            reading = _Talk(connections, node).measure(reading)
            connections.send(node, Bye())
        return reading


class _Talk:
    """One conversation, with an agent that is greeted."""

    def __init__(self, connections: Connections, node: str) -> None:
        self._is_over = False
        self._connections = connections
        self._node = node
        self._unread: deque[Control] = deque()

    def ask(self, message: Control, kinds: tuple[type[Control], ...]) -> Control | None:
        """Send a message; return the next one of these kinds, None if none comes in time."""
        self._connections.send(self._node, message)
        return self._next(kinds, time.monotonic() + ANSWER_S)

    def _next(self, kinds: tuple[type[Control], ...], until_s: float) -> Control | None:
        while True:
            while self._unread:
                message = self._unread.popleft()
                if isinstance(message, kinds):
                    return message
            left_s = until_s - time.monotonic()
            if self._is_over or left_s <= 0:
                return None
            for arrival in self._connections.wait(left_s):
                match arrival:
                    case MessageReceived(_, message):
                        self._unread.append(message)
                    case MessageMalformed() | NotAdmitted():
                        self._is_over = True
                    case _:
                        pass

    def measure(self, reading: ConversationReading) -> ConversationReading:
        """Measure the round trip, whether long messages pass, the rate, and the agent's clock."""
        trips: list[float] = []
        while len(trips) < PINGS:
            trip_s = self._trip()
            if trip_s is None:
                return replace(reading, failure="it does not answer pings")
            trips.append(trip_s)
        reading = replace(reading, round_trip_s=min(trips))
        before = self._clock(1)
        digests = tuple(secrets.token_hex(32) for _ in range(LONG_DIGESTS))
        looked_up = self.ask(Query(digests), (Missing, Failed))
        if looked_up is None:
            return replace(reading, long_passed=False)
        reading = replace(reading, long_passed=True)
        if isinstance(looked_up, Failed):
            return replace(reading, failure=looked_up.reason)
        rate, failure = self._transfer()
        reading = replace(reading, bytes_per_s=rate, failure=failure)
        after = self._clock(2)
        if before is None or after is None:
            return reading
        clock_rate, clock_error = compare_clocks(before, after)
        return replace(reading, clock_rate=clock_rate, clock_error=clock_error)

    def _trip(self) -> float | None:
        began_s = time.monotonic()
        return None if self.ask(Ping(), (Pong,)) is None else time.monotonic() - began_s

    def _clock(self, number: int) -> RoundTrip | None:
        asked_s = time.monotonic()
        answer = self.ask(GetTrace(number), (Traced,))
        if not isinstance(answer, Traced):
            return None
        return RoundTrip(asked_s, answer.now_s, time.monotonic())

    def _transfer(self) -> tuple[float | None, str]:
        """Send chunks for `TRANSFER_S` seconds; return the bytes per second, and a failure.

        The window of unanswered chunks begins with one and grows with every answer, so that a slow
        link is not filled for seconds.
        """
        blob = BlobInfo(secrets.token_hex(32), TRANSFER_BYTES + 1)
        data = secrets.token_bytes(CHUNK_BYTES)  # nothing on the path can compress it
        began_s = time.monotonic()
        sent = stored = 0
        while True:
            is_time_left = time.monotonic() - began_s < TRANSFER_S
            window = min(PUT_WINDOW, 1 + stored // CHUNK_BYTES) * CHUNK_BYTES
            while is_time_left and sent < TRANSFER_BYTES and sent - stored < window:
                self._connections.send(self._node, Put(blob, sent, data))
                sent += CHUNK_BYTES
            if stored == sent:
                return stored / (time.monotonic() - began_s), ""
            answer = self._next((Stored, Failed), time.monotonic() + ANSWER_S)
            if isinstance(answer, Failed):
                return None, answer.reason
            if answer is None:
                return None, "it does not answer while data are sent to it"
            stored += CHUNK_BYTES
