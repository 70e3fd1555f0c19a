"""Which phase fires next: the actor of a node, its phases processing frames 0, 1, 2, … each.

A phase is ready for its next frame when every channel that it reads holds that frame and every
channel that it writes has a credit. Firings are *dispatched* to an executor that runs one at a
time, in the order of dispatch, so a second one may be dispatched while the first still runs and
the executor never waits for us. What passes between two phases of the same actor is settled at
dispatch: when the later firing begins, the earlier one has ended, whatever the clock says. Towards
other nodes a firing has ended only when the executor says so.

A phase that keeps state from frame to frame waits for it at its first frame only. From then on its
own last firing has left it, which the order of dispatch puts before the next.

Orders:

- `pipelined`: the ready phase whose next frame is the oldest fires; of several, the latest one, as
  it is nearest to the result. Work-conserving; the capacities bound how far early phases run ahead.
- `strict`: all phases in turn for frame 0, then for frame 1, …; for comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError
from nodes.protocol.messages import Order

MAX_DISPATCHED = 2
"""One firing that runs and one that waits for the executor."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The channels of one phase: inlets with the phase's number among their readers, outlets, and
    the inlets that bring its first frame's state."""

    inlets: tuple[tuple[Inlet, int], ...]
    outlets: tuple[Outlet, ...]
    begins: tuple[tuple[Inlet, int], ...] = ()


class RunningActor:
    """The phases of one node: what each does next, what is ready, what is dispatched.

    `local` maps the number of each channel within the node to its two ends.
    """

    def __init__(
        self, order: Order, ports: Sequence[Ports], local: Iterable[tuple[Outlet, Inlet]] = ()
    ) -> None:
        self.order = order
        self.ports = tuple(ports)
        self.next_frame = [0] * len(self.ports)
        self.dispatched: deque[tuple[int, int]] = deque()
        self._turn = 0
        self._local = {outlet.number: (outlet, inlet) for outlet, inlet in local}
        self._neighbours = self._phases_by_channel()
        for outlet, inlet in self._local.values():
            outlet.grant(inlet.capacity)
        self._ready = {phase for phase in range(len(self.ports)) if self._is_ready(phase)}

    def _phases_by_channel(self) -> dict[int, tuple[int, ...]]:
        touching: dict[int, list[int]] = {}
        for phase, ports in enumerate(self.ports):
            numbers = {inlet.number for inlet, _ in (*ports.inlets, *ports.begins)}
            numbers |= {outlet.number for outlet in ports.outlets}
            for number in numbers:
                touching.setdefault(number, []).append(phase)
        return {number: tuple(phases) for number, phases in touching.items()}

    def _is_ready(self, phase: int) -> bool:
        frame = self.next_frame[phase]
        ports = self.ports[phase]
        for inlet, _ in ports.inlets:  # asked several times per firing: no generators
            if not inlet.has(frame):
                return False
        if frame == 0 and not all(inlet.has(frame) for inlet, _ in ports.begins):
            return False
        for outlet in ports.outlets:  # noqa: SIM110
            if outlet.credits <= 0:
                return False
        return True

    def changed(self, channel: int) -> None:
        """A token or credit of this channel came or went: look again at the phases it touches."""
        for phase in self._neighbours.get(channel, ()):
            if self._is_ready(phase):
                self._ready.add(phase)
            else:
                self._ready.discard(phase)

    def choose(self) -> int | None:
        """The phase to dispatch now, if any."""
        if len(self.dispatched) >= MAX_DISPATCHED or not self._ready:
            return None
        if self.order == "strict":
            phase = self._turn % len(self.ports)
            return phase if phase in self._ready else None
        if len(self._ready) == 1:
            return next(iter(self._ready))
        return min(self._ready, key=lambda phase: (self.next_frame[phase], -phase))

    def dispatch(self, phase: int) -> int:
        """Claim what a firing of `phase` needs and return its frame."""
        if phase not in self._ready or not self._is_ready(phase):
            raise LocalProtocolError(f"phase {phase} dispatched without being ready")
        frame = self.next_frame[phase]
        ports = self.ports[phase]
        touched = [outlet.number for outlet in ports.outlets]
        for outlet in ports.outlets:
            if outlet.claim() != frame:
                raise LocalProtocolError(
                    f"channel {outlet.number} is not at frame {frame} of phase {phase}"
                )
            if outlet.number in self._local:
                self._local[outlet.number][1].put(outlet.send(), None)
        for inlet, reader in ports.inlets:
            touched.append(inlet.number)
            if inlet.number in self._local:
                freed = inlet.end(reader, frame)
                if freed:
                    self._local[inlet.number][0].grant(freed)
        self.next_frame[phase] = frame + 1
        self._turn += 1
        self.dispatched.append((phase, frame))
        for number in touched:
            self.changed(number)
        return frame

    def ended(self, phase: int, frame: int) -> None:
        """The executor ended the oldest dispatched firing, which must be this one."""
        if not self.dispatched or self.dispatched[0] != (phase, frame):
            raise LocalProtocolError(
                f"firing of phase {phase} for frame {frame} ended; dispatched: "
                f"{list(self.dispatched)}"
            )
        self.dispatched.popleft()

    def is_local(self, channel: int) -> bool:
        """Whether both ends of the channel are phases of this actor."""
        return channel in self._local
