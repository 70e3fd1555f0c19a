"""One epoch's data: links to peers, the ends of channels, the actor that fires between them.

Links come up in either direction: we dial the nodes that we feed, and are dialled by those that
feed us and by the host. Whoever dials says first who it is (`Attach`). Credits then flow from each
consumer to its producer, tensors back, and every change may make a phase ready. Nothing is sent on
a channel but by its two nodes over the link between them; whatever else comes is a
`RemoteProtocolError`.
"""

from __future__ import annotations

from nodes.core.actions import Action, Dial, Fire, SendData
from nodes.core.actor import Ports, RunningActor
from nodes.core.deployment import Reader, Wiring, bytes_of, check, described, tensor_bytes
from nodes.core.events import FiringEnded, Link
from nodes.core.fifo import Held, Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import HOST, Attach, Credit, Deployment, TensorHeader


class DataPlane:
    """The data side of one deployment; raises `DeploymentError` if that contradicts itself.

    `firings`, `busy_s` and `phase_cpu_s` have one entry per phase; the byte counters count tensors
    that crossed a socket, without their headers.
    """

    def __init__(self, deployment: Deployment) -> None:
        check(deployment)
        self.deployment = deployment
        self.epoch = deployment.epoch
        self.firings = [0] * len(deployment.phases)
        self.busy_s = [0.0] * len(deployment.phases)
        self.phase_cpu_s = [0.0] * len(deployment.phases)
        self.sent_bytes = 0
        self.received_bytes = 0
        self.started = False
        node = deployment.node
        specs = deployment.channels
        self._outlets = {
            c.number: Outlet(c.number, c.capacity_frames) for c in specs if c.source_node == node
        }
        self._inlets = {
            c.number: Inlet(c.number, c.capacity_frames, len(c.target_phases))
            for c in specs
            if c.target_node == node
        }
        self._spec = {c.number: c for c in specs}
        self._bytes = {c.number: tensor_bytes(c) for c in specs}
        self._held = Held(
            {n: (self._bytes[n], len(self._spec[n].target_phases)) for n in self._inlets}
        )
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
                    tuple((self._inlets[c.number], reader) for c, reader in begins),
                )
                for reads, writes, begins in zip(
                    wiring.reads, wiring.writes, wiring.begins, strict=True
                )
            ],
            [(self._outlets[n], self._inlets[n]) for n in sorted(self._local)],
        )
        local = self._local
        self._remote_inputs = [
            tuple((c, reader) for c, reader in reads if c.number not in local)
            for reads in wiring.reads
        ]
        self._remote_outputs = [
            tuple(c for c in writes if c.number not in local) for writes in wiring.writes
        ]
        self._begins = [tuple(begins) for begins in wiring.begins]
        self._reads_from = [[(c.number, reader) for c, reader in reads] for reads in wiring.reads]
        self._keeps = [[c.number for c in writes if c.number in local] for writes in wiring.writes]

    @property
    def fifo_peak_bytes(self) -> int:
        """The most that the FIFOs into this node have held at once."""
        return self._held.peak_bytes

    # ------------------------------------------------------------ links

    def start(self) -> list[Action]:
        """Every node has deployed: dial those that we feed, say who we are, begin to fire."""
        self.started = True
        actions: list[Action] = []
        for peer in self.deployment.dial:
            self._link_to[peer.name] = peer.name
            actions.append(Dial(peer.name, peer.data_address))
            actions.append(SendData(peer.name, Attach(self.epoch, self.deployment.node)))
        return actions + self._fire()

    def attach(self, link: Link, message: Attach) -> list[Action]:
        """A peer that dialled us says who it is; it is granted the capacities of its channels."""
        node = message.node
        fed = [self._spec[n] for n in self._inlets if self._spec[n].source_node == node]
        if isinstance(link, str) or node == self.deployment.node or (not fed and node != HOST):
            raise RemoteProtocolError(f"{node!r} attached, which feeds nothing here")
        if node in self._link_from or link in self._link_from.values():
            raise RemoteProtocolError(f"{node!r} attached a second time")
        self._link_from[node] = link
        if node == HOST:
            self._link_to[HOST] = link
        return [SendData(link, Credit(self.epoch, c.number, c.capacity_frames)) for c in fed]

    def node_of(self, link: Link) -> str | None:
        """The node at the other end of a link of this epoch."""
        for links in (self._link_from, self._link_to):
            for node, known in links.items():
                if known == link:
                    return node
        return None

    def unanswered(self) -> list[str]:
        """The nodes that we dialled and that have not granted anything on one of our channels."""
        return sorted(
            {
                self._spec[number].target_node
                for number, outlet in self._outlets.items()
                if outlet.granted == 0 and self._spec[number].target_node != HOST
            }
        )

    # ------------------------------------------------------------ credits and tensors

    def credit(self, link: Link, message: Credit) -> list[Action]:
        """A consumer has room for more frames."""
        number = message.channel
        if number not in self._outlets or number in self._local:
            raise RemoteProtocolError(f"credit for channel {number}, which does not leave here")
        if self._link_to.get(self._spec[number].target_node) != link:
            raise RemoteProtocolError(f"credit for {described(self._spec[number])} by another node")
        self._outlets[number].grant(message.frames)
        self._actor.changed(number)
        return self._fire()

    def tensor(
        self, link: Link, header: TensorHeader, payload: object, payload_bytes: int
    ) -> list[Action]:
        """A producer's frame arrived."""
        number = header.channel
        if number not in self._inlets or number in self._local:
            raise RemoteProtocolError(f"a tensor of channel {number}, which does not arrive here")
        spec = self._spec[number]
        if self._link_from.get(spec.source_node) != link:
            raise RemoteProtocolError(f"a tensor of {described(spec)} from another node")
        if header.dtype != spec.dtype or header.shape != spec.shape:
            raise RemoteProtocolError(
                f"{described(spec)}: {header.dtype}{list(header.shape)} came, "
                f"{spec.dtype}{list(spec.shape)} was agreed"
            )
        if payload is None or payload_bytes != self._bytes[number]:
            raise RemoteProtocolError(
                f"{described(spec)}: {payload_bytes} bytes came with a header "
                f"that tells of {self._bytes[number]}"
            )
        self._inlets[number].put(header.frame, payload)
        self._held.put(number)
        self.received_bytes += payload_bytes
        self._actor.changed(number)
        return self._fire()

    # ------------------------------------------------------------ firings

    @property
    def under_way(self) -> tuple[int, int] | None:
        """Phase and frame of the firing that the executor is at, if it has any."""
        dispatched = self._actor.dispatched
        return dispatched[0] if dispatched else None

    def _fire(self) -> list[Action]:
        """Dispatch what is ready, as far as the executor takes it."""
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
        return actions

    def _arrived_for(self, phase: int, frame: int) -> tuple[Reader, ...]:
        """The channels from other nodes that a firing reads."""
        inputs = self._remote_inputs[phase]
        return inputs + self._begins[phase] if frame == 0 else inputs

    def ended(self, event: FiringEnded) -> list[Action]:
        """A firing ended: send what it made, give back the places of what it read.

        Others wait for that, while the executor has its next firing already. Handed in before, one
        more would start the executor's thread, which then contends for the interpreter with this.
        """
        phase, frame = event.phase, event.frame
        self._actor.ended(phase, frame)
        self.firings[phase] += 1
        self.busy_s[phase] += event.busy_s
        self.phase_cpu_s[phase] += event.cpu_s
        for number in self._keeps[phase]:
            self._held.put(number)
        for number, reader in self._reads_from[phase]:
            self._held.read(number, reader)
        if frame == 0:
            for spec, reader in self._begins[phase]:
                self._held.read(spec.number, reader)
        sending: list[Action] = []
        for spec, reader in self._arrived_for(phase, frame):
            inlet = self._inlets[spec.number]
            freed = inlet.end(reader, frame)
            if freed:
                credit = Credit(self.epoch, spec.number, freed)
                sending.append(SendData(self._link_from[spec.source_node], credit))
        for spec in self._remote_outputs[phase]:
            if self._outlets[spec.number].send() != frame:
                raise LocalProtocolError(f"{described(spec)} is not at frame {frame}")
            shape = event.shapes[spec.tensor] if spec.varies else spec.shape
            header = TensorHeader(self.epoch, spec.number, frame, spec.dtype, shape)
            payload = event.outputs[spec.tensor]
            sending.append(SendData(self._link_to[spec.target_node], header, payload))
            self.sent_bytes += bytes_of(spec, shape)
        return sending + self._fire()
