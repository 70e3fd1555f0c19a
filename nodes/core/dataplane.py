"""The data side of one deployment: links to peers, the ends of channels, and the actor.

The agent dials the nodes that it feeds; the nodes that feed it, and the host, dial the agent. The
dialling end first sends its name (`Attach`). Then credits go from each consumer to its producer and
tensors the other way, and every change may make a phase ready. A frame that has no credit when it
is made waits for one, if its channel has places for such frames (`nodes.core.fifo`). Only the two
nodes of a channel may use it, over the link between them; anything else is a `RemoteProtocolError`.
"""

from __future__ import annotations

import statistics
from collections import deque

from nodes.core.actions import Action, Dial, Fire, SendData
from nodes.core.actor import Ports, RunningActor
from nodes.core.deployment import (
    Reader,
    Wiring,
    bytes_of,
    check,
    described,
    is_payload_length,
    payload_bounds,
    tensor_bytes,
)
from nodes.core.events import FiringEnded, Link, Sent
from nodes.core.fifo import HeldBytes, Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    HOST,
    Attach,
    ChannelSpec,
    Credit,
    Deployment,
    TensorHeader,
)

SETTLED = 8
"""The first firings of a phase, which `phase_s` leaves out."""

FEWEST_FIRINGS, MOST_FIRINGS = 32, 128
"""How many of a phase's last firings `phase_s` is computed from; those whose waits were not counted
are left out."""


class DataPlane:
    """The data side of one deployment; raises `DeploymentError` if that is inconsistent.

    `firings`, `busy_s` and `phase_cpu_s` have one entry per phase. `sent_bytes` and
    `received_bytes` count the payloads of tensors that crossed a socket. `now_s` is the time of the
    event that is handled, which the caller sets.
    """

    def __init__(self, deployment: Deployment) -> None:
        check(deployment)
        self.deployment = deployment
        self.epoch = deployment.epoch
        self.firings = [0] * len(deployment.phases)
        self.busy_s = [0.0] * len(deployment.phases)
        self.phase_cpu_s = [0.0] * len(deployment.phases)
        self._lately_s = [deque[float](maxlen=MOST_FIRINGS) for _ in deployment.phases]
        self.sent_bytes = 0
        self.received_bytes = 0
        self.started = False
        self.now_s = 0.0
        self._waited_s = [0.0] * len(deployment.phases)
        self._waiting_phases: tuple[int, ...] = ()
        self._waiting_since_s = 0.0
        node = deployment.node
        specs = deployment.channels
        self._outlets = {
            c.number: Outlet(c.number, c.consumer_frames, c.unsent_frames)
            for c in specs
            if c.source_node == node
        }
        self._waiting: dict[int, deque[SendData]] = {
            number: deque() for number, outlet in self._outlets.items() if outlet.unsent
        }
        self._inlets = {
            c.number: Inlet(c.number, c.consumer_frames, len(c.target_phases))
            for c in specs
            if c.target_node == node
        }
        self._spec = {c.number: c for c in specs}
        self._bytes = {c.number: tensor_bytes(c) for c in specs}
        self._held = HeldBytes({n: len(self._spec[n].target_phases) for n in self._inlets})
        self._link_to: dict[str, Link] = {}
        self._link_from: dict[str, Link] = {}
        self._local = self._outlets.keys() & self._inlets.keys()
        wiring = Wiring(deployment)
        self._actor = RunningActor(
            deployment.order,
            [
                Ports(
                    tuple((self._inlets[c.number], reader) for c, reader in reads),
                    tuple(self._outlets[c.number] for c in writes),
                    tuple((self._inlets[c.number], reader) for c, reader in initial),
                )
                for reads, writes, initial in zip(
                    wiring.reads, wiring.writes, wiring.initial_reads, strict=True
                )
            ],
            [(self._outlets[n], self._inlets[n]) for n in sorted(self._local)],
            [phase.network for phase in deployment.phases],
        )
        local = self._local
        self._remote_inputs = [
            tuple((c, reader) for c, reader in reads if c.number not in local)
            for reads in wiring.reads
        ]
        self._remote_outputs = [
            tuple(c for c in writes if c.number not in local) for writes in wiring.writes
        ]
        self._initial_inputs = [tuple(initial) for initial in wiring.initial_reads]
        self._reads = [[(c.number, reader) for c, reader in reads] for reads in wiring.reads]
        self._local_outputs = [
            [c.number for c in writes if c.number in local] for writes in wiring.writes
        ]

    @property
    def fifo_peak_bytes(self) -> int:
        """The most bytes that the FIFOs into this node have held at once."""
        return self._held.peak_bytes

    @property
    def channel_frames(self) -> tuple[int, ...]:
        """See `nodes.protocol.messages.Stats`."""
        ends: dict[int, Inlet | Outlet] = {**self._inlets, **self._outlets}
        return tuple(ends[channel.number].held for channel in self.deployment.channels)

    @property
    def waited_s(self) -> tuple[float, ...]:
        """See `nodes.protocol.messages.Stats`."""
        self._note_waiting()
        return tuple(self._waited_s)

    def _note_waiting(self) -> None:
        """Count the time since the last call for the phases that waited for credits, and note those
        that wait now."""
        for phase in self._waiting_phases:
            self._waited_s[phase] += self.now_s - self._waiting_since_s
        self._waiting_phases = tuple(self._actor.waiting)
        self._waiting_since_s = self.now_s

    # ------------------------------------------------------------ links

    def start(self) -> list[Action]:
        """Dial the nodes that this one feeds, and begin to fire; all nodes have deployed."""
        self.started = True
        actions: list[Action] = []
        for peer in self.deployment.dial:
            self._link_to[peer.name] = peer.name
            actions.append(Dial(peer.name, peer.data_address))
            actions.append(SendData(peer.name, Attach(self.epoch, self.deployment.node)))
        return actions + self._fire()

    def attach(self, link: Link, message: Attach) -> list[Action]:
        """Accept a peer that has dialled, and grant it the capacities of its channels."""
        node = message.node
        fed = [self._spec[n] for n in self._inlets if self._spec[n].source_node == node]
        if isinstance(link, str) or node == self.deployment.node or (not fed and node != HOST):
            raise RemoteProtocolError(f"{node!r} attached, but no channel comes from it")
        if node in self._link_from or link in self._link_from.values():
            raise RemoteProtocolError(f"{node!r} attached a second time")
        self._link_from[node] = link
        if node == HOST:
            self._link_to[HOST] = link
        return [SendData(link, Credit(self.epoch, c.number, c.consumer_frames)) for c in fed]

    def node_of(self, link: Link) -> str | None:
        """Return the node at the other end of a link of this epoch; None if there is none."""
        for links in (self._link_from, self._link_to):
            for node, known in links.items():
                if known == link:
                    return node
        return None

    def unanswered(self) -> list[str]:
        """Return the nodes that were dialled and have not yet granted credits on some channel."""
        return sorted(
            {
                self._spec[number].target_node
                for number, outlet in self._outlets.items()
                if outlet.granted == 0 and self._spec[number].target_node != HOST
            }
        )

    # ------------------------------------------------------------ credits and tensors

    def credit(self, link: Link, message: Credit) -> list[Action]:
        """Handle the credits of a consumer that has room for more frames."""
        number = message.channel
        if number not in self._outlets or number in self._local:
            raise RemoteProtocolError(
                f"credit for channel {number}, which does not start at this node"
            )
        if self._link_to.get(self._spec[number].target_node) != link:
            raise RemoteProtocolError(
                f"credit for {described(self._spec[number])} from another node"
            )
        self._outlets[number].grant(message.frames)
        self._actor.changed(number)
        return self._send_waiting(number) + self._fire()

    def _send_waiting(self, number: int) -> list[Action]:
        """Send the frames of a channel that have waited for credits, as far as there are any."""
        actions: list[Action] = []
        waiting = self._waiting.get(number)
        while waiting and self._outlets[number].may_send:
            self._outlets[number].send()
            actions.append(waiting.popleft())
        return actions

    def tensor(
        self, link: Link, header: TensorHeader, payload: object, payload_bytes: int
    ) -> list[Action]:
        """Accept a frame from a producer."""
        number = header.channel
        if number not in self._inlets or number in self._local:
            raise RemoteProtocolError(
                f"a tensor of channel {number}, which does not end at this node"
            )
        spec = self._spec[number]
        if self._link_from.get(spec.source_node) != link:
            raise RemoteProtocolError(f"a tensor of {described(spec)} from another node")
        if header.dtype != spec.dtype or header.shape != spec.shape:
            raise RemoteProtocolError(
                f"{described(spec)}: {header.dtype}{list(header.shape)} arrived instead of "
                f"{spec.dtype}{list(spec.shape)}"
            )
        if payload is None or not is_payload_length(spec, payload_bytes):
            raise RemoteProtocolError(
                f"{described(spec)}: {payload_bytes} bytes arrived, but its frames have "
                f"{payload_bounds(spec)}"
            )
        self._inlets[number].put(header.frame, payload)
        self._held.put(number, payload_bytes)
        self.received_bytes += payload_bytes
        self._actor.changed(number)
        return self._fire()

    # ------------------------------------------------------------ firings

    @property
    def under_way(self) -> tuple[int, int] | None:
        """The phase and frame of the firing that the executor runs; None if it is idle."""
        dispatched = self._actor.dispatched
        return dispatched[0] if dispatched else None

    def _fire(self) -> list[Action]:
        """Dispatch ready phases, as many as the executor takes."""
        actions: list[Action] = []
        if not self.started:
            return actions
        while (phase := self._actor.choose()) is not None:
            frame = self._actor.dispatch(phase)
            inputs = {
                spec.tensor: self._inlets[spec.number].token(frame)
                for spec, _ in self._arrived_for(phase, frame)
            }
            actions.append(Fire(self.epoch, phase, frame, inputs))
        if self._waiting_phases or self._actor.waiting:
            self._note_waiting()
        return actions

    def _arrived_for(self, phase: int, frame: int) -> tuple[Reader, ...]:
        """Return the channels from other nodes that a firing reads, initial state included."""
        inputs = self._remote_inputs[phase]
        return inputs + self._initial_inputs[phase] if frame == 0 else inputs

    @property
    def phase_s(self) -> tuple[float, ...]:
        """The median time of each phase's last firings without waits for other processes; 0 for a
        phase with too few."""
        return tuple(
            statistics.median(lately) if len(lately) >= FEWEST_FIRINGS else 0.0
            for lately in self._lately_s
        )

    def ended(self, event: FiringEnded) -> list[Action]:
        """Send the outputs of a firing that has ended, return the credits of its inputs, and fire.

        Sending comes before dispatching: other nodes wait for it, whereas the executor already has
        its next firing. A firing dispatched first would wake the executor's thread, which would
        then contend with this one for the interpreter.
        """
        phase, frame = event.phase, event.frame
        self._actor.ended(phase, frame, event.busy_s)
        self.firings[phase] += 1
        self.busy_s[phase] += event.busy_s
        self.phase_cpu_s[phase] += event.cpu_s
        if self.firings[phase] > SETTLED and event.undisturbed_s:
            self._lately_s[phase].append(event.undisturbed_s)
        for number in self._local_outputs[phase]:
            self._held.put(number, self._bytes[number])
        for number, reader in self._reads[phase]:
            self._held.read(number, reader)
        if frame == 0:
            for spec, reader in self._initial_inputs[phase]:
                self._held.read(spec.number, reader)
        sending: list[Action] = []
        for spec, reader in self._arrived_for(phase, frame):
            inlet = self._inlets[spec.number]
            freed = inlet.end(reader, frame)
            if freed:
                credit = Credit(self.epoch, spec.number, freed)
                sending.append(SendData(self._link_from[spec.source_node], credit))
        for spec in self._remote_outputs[phase]:
            send = self._sending(spec, event)
            if spec.number in self._waiting:
                self._waiting[spec.number].append(send)
                sending += self._send_waiting(spec.number)
            else:
                self._outlets[spec.number].send()
                sending.append(send)
        return sending + self._fire()

    def _sending(self, spec: ChannelSpec, event: FiringEnded) -> SendData:
        """Return the message with what a firing has made for a channel to another node."""
        shape = event.shapes[spec.tensor] if spec.varies else spec.shape
        header = TensorHeader(self.epoch, spec.number, event.frame, spec.dtype, shape)
        payload: object
        if spec.encoding == "raw":
            payload, size = event.outputs[spec.tensor], bytes_of(spec, shape)
        else:
            payload = event.encoded[spec.number]
            size = event.encoded[spec.number].nbytes
        self.sent_bytes += size
        link, reports = self._link_to[spec.target_node], spec.number in self._waiting
        return SendData(link, header, payload, reports)

    def sent(self, event: Sent) -> list[Action]:
        """Note that a frame has left this node, and fire."""
        if event.channel not in self._waiting:
            raise LocalProtocolError(f"channel {event.channel} does not report what has left")
        self._outlets[event.channel].leave()
        self._actor.changed(event.channel)
        return self._fire()
