"""Choose which phase of a node fires next, and claim what the firing needs.

Each phase of the actor processes the frames 0, 1, 2, … in order. It is ready for its next frame
when every channel that it reads holds that frame and every channel that it writes has a place for
it. Firings are *dispatched* to an executor that runs one at a time, in the order of dispatch. A
second firing may be dispatched while the first one runs, so that the executor never waits for the
core.

Channels between two phases of the same actor change at dispatch, because the executor ends the
earlier firing before it begins the later one. Channels to other nodes change when the executor
reports the end of the firing.

A phase that keeps state from frame to frame waits for its initial state, at frame 0 only. For every
later frame its own firing before has left the state.

Orders:

- `pipelined`: of the ready phases, the one whose next frame is the oldest fires; of several, the
  last one, which is nearest to the result. The order is work-conserving; the capacities bound how
  far early phases run ahead.
  Networks that stream their own frames side by side have no common count of frames. Each gets an
  equal share of the executor's time as long as it has ready phases: of the networks with a ready
  phase, the one that was served least fires (start-time fair queueing: Goyal, Vin and Cheng, 1997).
- `strict`: all phases in turn for frame 0, then for frame 1, …; for comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError
from nodes.protocol.messages import Order

MAX_DISPATCHED = 2
"""One firing that runs, and one that waits for the executor."""


LONGEST_WAIT_S = 2.0
"""The most of the executor's time that a network gives up because of what it had before; a firing
may have taken minutes because the machine was suspended."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ends of channels at one phase: inlets, outlets, and inlets that bring initial state.

    Each inlet comes with the phase's index among the inlet's readers.
    """

    inlets: tuple[tuple[Inlet, int], ...]
    outlets: tuple[Outlet, ...]
    initial_inlets: tuple[tuple[Inlet, int], ...] = ()


class FairShares:
    """Shares the executor's time between networks, in seconds of a common virtual time.

    A network that has had no ready phase for a while resumes at the time of the network that was
    served last, so it cannot make up for the time that it did not need. A firing counts from its
    dispatch on with the seconds that the phase took the last time, and is corrected at its end.
    """

    def __init__(self, networks: Sequence[int]) -> None:
        """`networks` has the network of each phase."""
        self._network = tuple(networks)
        self._served_s = dict.fromkeys(networks, 0.0)
        self._now_s = 0.0
        self._expected_s = [0.0] * len(self._network)

    def least_served(self, ready: Iterable[int]) -> list[int]:
        """Return those of the `ready` phases that are of the network which was served least."""
        ready = list(ready)
        least = min((self._network[phase] for phase in ready), key=self._served_s.__getitem__)
        return [phase for phase in ready if self._network[phase] == least]

    def begin(self, phase: int) -> None:
        """Note that a firing is dispatched."""
        network = self._network[phase]
        self._now_s = max(self._now_s, self._served_s[network])
        self._served_s[network] = self._now_s + self._expected_s[phase]

    def end(self, phase: int, busy_s: float) -> None:
        """Note that the oldest firing of a phase has ended."""
        network = self._network[phase]
        served_s = self._served_s[network] + busy_s - self._expected_s[phase]
        self._served_s[network] = min(served_s, self._now_s + LONGEST_WAIT_S)
        self._expected_s[phase] = min(busy_s, LONGEST_WAIT_S)


class RunningActor:
    """The phases of one node: the next frame of each, which are ready, and which are dispatched.

    `local` has the two ends of each channel within the node.
    """

    def __init__(
        self,
        order: Order,
        ports: Sequence[Ports],
        local: Iterable[tuple[Outlet, Inlet]] = (),
        networks: Sequence[int] = (),
    ) -> None:
        """`networks` has the network of each phase; without it, all are of one."""
        self.order = order
        self.ports = tuple(ports)
        self._shares = FairShares(networks) if len(set(networks)) > 1 else None
        self.next_frame = [0] * len(self.ports)
        self.dispatched: deque[tuple[int, int]] = deque()
        self._turn = 0
        self._local = {outlet.number: (outlet, inlet) for outlet, inlet in local}
        self._neighbours = self._phases_by_channel()
        for outlet, inlet in self._local.values():
            outlet.grant(inlet.capacity)
        self._ready = {phase for phase in range(len(self.ports)) if self._is_ready(phase)}
        self._blocked: set[int] = set()

    def _phases_by_channel(self) -> dict[int, tuple[int, ...]]:
        touching: dict[int, list[int]] = {}
        for phase, ports in enumerate(self.ports):
            numbers = {inlet.number for inlet, _ in (*ports.inlets, *ports.initial_inlets)}
            numbers |= {outlet.number for outlet in ports.outlets}
            for number in numbers:
                touching.setdefault(number, []).append(phase)
        return {number: tuple(phases) for number, phases in touching.items()}

    def _has_inputs(self, phase: int) -> bool:
        frame = self.next_frame[phase]
        ports = self.ports[phase]
        for inlet, _ in ports.inlets:  # runs several times per firing: generators are slower
            if not inlet.has(frame):
                return False
        return frame > 0 or all(inlet.has(frame) for inlet, _ in ports.initial_inlets)

    def _has_places(self, phase: int) -> bool:
        for outlet in self.ports[phase].outlets:  # noqa: SIM110 - as above
            if outlet.places <= 0:
                return False
        return True

    def _is_ready(self, phase: int) -> bool:
        return self._has_inputs(phase) and self._has_places(phase)

    def changed(self, channel: int) -> None:
        """Update which phases of this channel are ready, after its tokens or credits changed."""
        for phase in self._neighbours.get(channel, ()):
            if not self._has_inputs(phase):
                self._ready.discard(phase)
                self._blocked.discard(phase)
            elif self._has_places(phase):
                self._ready.add(phase)
                self._blocked.discard(phase)
            else:
                self._ready.discard(phase)
                self._blocked.add(phase)

    @property
    def waiting(self) -> Collection[int]:
        """The phases that have their inputs and wait for credits while nothing is dispatched."""
        return () if self.dispatched else self._blocked

    def choose(self) -> int | None:
        """Return the phase to dispatch now, or None."""
        if len(self.dispatched) >= MAX_DISPATCHED or not self._ready:
            return None
        if self.order == "strict":
            phase = self._turn % len(self.ports)
            return phase if phase in self._ready else None
        ready: Collection[int] = self._ready
        if len(ready) == 1:
            return next(iter(ready))
        if self._shares is not None:
            ready = self._shares.least_served(ready)
        return min(ready, key=lambda phase: (self.next_frame[phase], -phase))

    def dispatch(self, phase: int) -> int:
        """Claim what the next firing of `phase` needs, and return its frame.

        Raises `LocalProtocolError` if the phase is not ready.
        """
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
        if self._shares is not None:
            self._shares.begin(phase)
        for number in touched:
            self.changed(number)
        return frame

    def ended(self, phase: int, frame: int, busy_s: float = 0.0) -> None:
        """Note that the executor has ended the oldest dispatched firing, which must be this one,
        after `busy_s` seconds of computing."""
        if not self.dispatched or self.dispatched[0] != (phase, frame):
            raise LocalProtocolError(
                f"firing of phase {phase} for frame {frame} ended; dispatched: "
                f"{list(self.dispatched)}"
            )
        self.dispatched.popleft()
        if self._shares is not None:
            self._shares.end(phase, busy_s)

    def is_local(self, channel: int) -> bool:
        """Return whether both ends of the channel are phases of this actor."""
        return channel in self._local
