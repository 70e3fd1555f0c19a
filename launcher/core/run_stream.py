"""The host's ends of the stream over all epochs of a run: which frames still lack a result.

An epoch streams the run's frames from `first` on, which its nodes count from 0. When it is given up
(`halt`), the results that are complete stay for the user to take, and the next epoch (`begin`)
starts with the first frame that has none: frames that were under way are sent again. As the old
epoch's messages are ignored, nothing is doubled.

A network may keep state from frame to frame. What it keeps is among its results, so the last
complete result holds the state with which the next epoch begins. That is the checkpoint: one frame
of state, however many frames are under way. Frames that were computed beyond it are computed again.

The source may drop frames before they are sent (`launcher.core.intake`). Then the stream is shorter
by as many: it counts the frames that it sends, 0, 1, 2, …, and remembers how the source numbers
them until the user has their results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic

from launcher.core.blueprint import Blueprint
from launcher.core.intake import Intake, Pace
from launcher.core.stream import FrameSource, Payload, Sink
from nodes.protocol.messages import ChannelSpec, Credit, TensorHeader


class RunStream(Generic[Payload]):
    """Streams `frames` frames through one epoch after another; the first is `blueprint`'s.

    `frames`, `first`, `taken` and `complete` count what is streamed, without what was dropped.
    """

    def __init__(
        self,
        frames: int,
        blueprint: Blueprint,
        pace: Pace | None = None,
        state: Mapping[str, Payload] | None = None,
    ) -> None:
        """`state` is what the network keeps before its first frame."""
        self.frames = frames
        self.state: Mapping[str, Payload] = state or {}
        """What the network's phases read at the next epoch's first frame, by tensor name."""
        self.intake = Intake(frames, pace)
        self.first = 0
        self.taken = 0
        """How many results the user has taken, in all epochs."""
        self._kept: deque[dict[str, Payload]] = deque()
        self._numbers: deque[int] = deque()
        """The source's numbers of all frames that were sent and not taken."""
        self._begin(blueprint)

    def _begin(self, blueprint: Blueprint) -> None:
        self.is_live = True
        self.blueprint = blueprint
        ends = (self.frames - self.first, blueprint.epoch, blueprint.dealing)
        self.source = FrameSource(blueprint.from_host, *ends)
        self.sink: Sink[Payload] = Sink(blueprint.to_host, *ends)

    # ------------------------------------------------------------ epochs

    def halt(self) -> tuple[int, int]:
        """Give the epoch up; returns the first frame of the next and how many are sent again."""
        sent = self.first + self.source.next_frame
        while self.sink.is_ready:
            self._kept.append(self.sink.result()[1])
            self._release()
        self.first += self.sink.taken
        self.is_live = False
        return self.first, max(0, sent - self.first)

    def begin(self, blueprint: Blueprint) -> None:
        """Begin the next epoch, after a halt; nothing if this one has begun already."""
        if not self.is_live:
            self._begin(blueprint)

    @property
    def complete(self) -> int:
        """How many frames in a row have a complete result, those taken included."""
        return self.first + (self.sink.complete if self.is_live else 0)

    # ------------------------------------------------------------ frames in

    def advance(self, now_s: float) -> list[int]:
        """Take in what the source has made by now; returns the frames that were dropped of it."""
        dropped = self.intake.advance(now_s)
        if dropped:
            self.frames -= len(dropped)
            if self.is_live:
                self.source.frames = self.sink.frames = self.frames - self.first
        return dropped

    @property
    def offered(self) -> int:
        """How many frames the source has given so far; all, if it has no pace of its own."""
        return self.intake.offered

    @property
    def _again(self) -> int:
        """The place of the next frame among those that were sent, if it is one of them."""
        return self.first + self.source.next_frame - self.taken

    @property
    def next_frame(self) -> int | None:
        """The source's number of the frame that is sent next; None while there is none."""
        if not self.is_live:
            return None
        again = self._again
        return self._numbers[again] if again < len(self._numbers) else self.intake.waiting

    @property
    def may_send(self) -> bool:
        """Whether there is one and every channel has a credit for it."""
        return self.is_live and self.source.is_ready and self.next_frame is not None

    def send(self) -> list[tuple[ChannelSpec, TensorHeader]]:
        """Claim the credits for the next frame; returns what to send of it."""
        is_new = self._again == len(self._numbers)
        sent = self.source.fire()
        if is_new:
            self._numbers.append(self.intake.take())
        return sent

    def credit(self, grant: Credit) -> bool:
        """See `FrameSource.credit`; False also for what an epoch that was given up still grants."""
        return self.is_live and self.source.credit(grant)

    # ------------------------------------------------------------ results out

    def tensor(self, node: str, header: TensorHeader, payload: Payload) -> bool:
        """See `Sink.tensor`; False also for what an epoch that was given up still sends."""
        return self.is_live and self.sink.tensor(node, header, payload)

    @property
    def may_take(self) -> bool:
        """Whether the next result is complete."""
        return bool(self._kept) or (self.is_live and self.sink.is_ready)

    def result(self) -> tuple[int, dict[str, Payload]]:
        """The next result: the source's number of the frame, and its outputs by tensor name; `take`
        it afterwards."""
        outputs = self._kept[0] if self._kept else self.sink.result()[1]
        return self._numbers[0], outputs

    def take(self) -> list[tuple[str, Credit]]:
        """The user has it; returns the credits to give back, per node."""
        self.taken += 1
        self._numbers.popleft()
        if self._kept:
            self._kept.popleft()
            return []
        return self._release()

    def _release(self) -> list[tuple[str, Credit]]:
        """Take the next result out of the sink, but for what the next epoch may begin with."""
        if states := self.blueprint.states:
            outputs = self.sink.result()[1]
            self.state = {channel.tensor: outputs[channel.kept_from] for channel in states}
        return self.sink.take()
