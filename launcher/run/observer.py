"""Keeps the observation of a run (`launcher.view.observation`), in the run's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from launcher.core.blueprint import Blueprint
from launcher.core.session import Session, SessionState
from launcher.core.supervisor import Supervisor
from launcher.run.host import Host
from launcher.run.runtime import CutPlan, Node
from launcher.view.measurements import NodeMeasurements
from launcher.view.model import ChannelView, NodeState, NodeView, PhaseView, RunSnapshot
from launcher.view.observation import ANSWER_S, Observation
from nodes.core.engines import EngineLackingError, resolve
from nodes.protocol.messages import Control, GetStats, Stats, Stopped
from partition.plan import Plan, PlannedPhase

EVERY_S = 1.0
"""The least time between two requests for statistics."""

ASKED = (SessionState.IDLE, SessionState.RUNNING)
"""The states in which agents are asked: of nodes that stand by, and of those that stream."""


class Observer:
    """Asks agents for statistics when somebody views the run, and publishes what it knows.

    `plans` has the plan of each epoch, `nodes` those that may be used. `ask` sends a node a
    message.
    """

    def __init__(
        self,
        observation: Observation,
        supervisor: Supervisor,
        host: Host,
        plans: Mapping[int, CutPlan],
        nodes: tuple[Node, ...],
        ask: Callable[[str, Control], None],
    ) -> None:
        self._observation = observation
        self._supervisor = supervisor
        self._host = host
        self._plans = plans
        self._nodes = {node.name: node for node in nodes}
        self._ask = ask
        self._measured = {node: NodeMeasurements() for node in supervisor.sessions}
        self._asked_s = float("-inf")
        self._silent: set[str] = set()
        self._due_s: float | None = None
        self.descriptor = observation.begin(self._parts())

    @property
    def deadline_s(self) -> float | None:
        """When to call `turned` at the latest, on the monotonic clock."""
        return self._due_s

    def looked_at(self) -> None:
        """Answer a request for a view: the descriptor is readable."""
        self._observation.asked()
        now_s = time.monotonic()
        if self._due_s is not None:
            return
        if now_s < self._asked_s + EVERY_S:
            self._observation.publish(self._parts())
            return
        sessions = self._supervisor.sessions.values()
        self._silent = {session.node for session in sessions if session.state in ASKED}
        for node in self._silent:
            self._ask(node, GetStats())
        self._asked_s, self._due_s = now_s, now_s + ANSWER_S

    def received(self, node: str, message: Control) -> None:
        """Take in statistics, no matter who asked for them; ignores all other messages."""
        if isinstance(message, Stats | Stopped):
            stats = message.stats if isinstance(message, Stopped) else message
            self._measured[node].add(stats)
            self._silent.discard(node)

    def turned(self, now_s: float) -> None:
        """Publish, if all agents have answered or have had their time."""
        if self._due_s is not None and (not self._silent or now_s >= self._due_s):
            self._due_s = None
            self._observation.publish(self._parts())

    def note(self, text: str, level: str) -> None:
        """Keep an event of the run."""
        self._observation.note(text, level)

    def end(self) -> None:
        """Note that the run has ended."""
        self._observation.end(self._parts())

    # ------------------------------------------------------------ what the run's thread knows

    def _parts(self) -> RunSnapshot:
        blueprint = self._supervisor.blueprint
        plan = self._plans[blueprint.epoch].plan
        return RunSnapshot(
            state=self._supervisor.life.state.name.lower(),
            epoch=blueprint.epoch,
            strategy=plan.strategy,
            batch=plan.batch,
            predicted_rate=1 / plan.frame_s if plan.frame_s else 0.0,
            recoveries_total=self._supervisor.recovered,
            nodes=tuple(
                self._node(session, blueprint, plan)
                for session in self._supervisor.sessions.values()
            ),
            channels=tuple(self._channels(blueprint)),
        )

    def _node(self, session: Session, blueprint: Blueprint, plan: Plan) -> NodeView:
        name, measured = session.node, self._measured[session.node]
        state = _state(session, blueprint)
        engine, device = self._engine(session)
        is_known = name in blueprint.deployments and self._stats(name, blueprint) is not None
        predicted = plan.memory.get(name) if name in blueprint.deployments else None
        limits = {device.name: device.memory_bytes for device in plan.devices}
        idle = None if session.welcome is None else session.welcome.rss_bytes
        return NodeView(
            name=name,
            state=state,
            reason=session.why_lost if state in (NodeState.LOST, NodeState.ABSENT) else "",
            engine=engine,
            device=device,
            busy=measured.busy if is_known else None,
            waited=measured.waited if is_known else None,
            busy_s_total=measured.busy_s,
            waited_s_total=measured.waited_s,
            rss_bytes=idle if measured.rss_bytes is None else measured.rss_bytes,
            predicted_bytes=None if predicted is None else predicted.total_bytes,
            limit_bytes=limits.get(name),
            sent_bytes_total=measured.sent_bytes,
            received_bytes_total=measured.received_bytes,
            energy_j_total=measured.energy_j,
            phases=tuple(self._phases(session, blueprint, plan))
            if name in blueprint.deployments
            else (),
        )

    def _engine(self, session: Session) -> tuple[str, str]:
        if session.welcome is not None and session.node in self._nodes:
            with suppress(EngineLackingError):
                choice = resolve(self._nodes[session.node].engine, session.welcome.engines)
                return choice.engine, choice.device
        return "", ""

    def _phases(self, session: Session, blueprint: Blueprint, plan: Plan) -> list[PhaseView]:
        own = blueprint.deployments[session.node].phases
        planned: dict[str, PlannedPhase] = {phase.name: phase for phase in plan.phases}
        stats = self._stats(session.node, blueprint)
        rehearsed_s = () if session.deployed is None else session.deployed.phase_s
        return [
            PhaseView(
                name=phase.name,
                layers=len(planned[phase.name].layers),
                firings=0 if stats is None else stats.firings[index],
                busy_s=0.0 if stats is None else stats.busy_s[index],
                predicted_s=(
                    rehearsed_s[index]
                    if index < len(rehearsed_s)
                    else planned[phase.name].predicted_s
                ),
                waited_s=(stats.waited_s[index] if stats is not None and stats.waited_s else 0.0),
            )
            for index, phase in enumerate(own)
        ]

    def _stats(self, node: str, blueprint: Blueprint) -> Stats | None:
        """The node's statistics, if they are of this epoch and of its phases."""
        stats = self._measured[node].stats
        if stats is None or stats.epoch != blueprint.epoch:
            return None
        phases = len(blueprint.deployments[node].phases)
        counted = {len(stats.firings), len(stats.busy_s), len(stats.waited_s) or phases}
        return stats if counted == {phases} else None  # an agent may send anything

    def _channels(self, blueprint: Blueprint) -> list[ChannelView]:
        held = self._held(blueprint)
        planned = self._plans[blueprint.epoch].plan.channels
        channels = {c.number: c for d in blueprint.deployments.values() for c in d.channels}
        return [
            ChannelView(
                name=channel.tensor,
                producer=channel.source_node,
                consumer=channel.target_node,
                frames=held.get(number, 0),
                capacity=channel.capacity_frames,
                frame_bytes=planned[number].wire_bytes,
            )
            for number, channel in sorted(channels.items())
            if channel.source_node != channel.target_node and not channel.kept_from
        ]

    def _held(self, blueprint: Blueprint) -> dict[int, int]:
        """The frames in each channel: its producer knows all, its consumer those that arrived."""
        found: dict[int, int] = {}
        made: dict[int, int] = dict(self._host.held)
        for node, deployment in blueprint.deployments.items():
            stats = self._stats(node, blueprint)
            frames = () if stats is None else stats.channel_frames
            if len(frames) == len(deployment.channels):
                for channel, count in zip(deployment.channels, frames, strict=True):
                    (made if channel.source_node == node else found)[channel.number] = count
        return found | made


def _state(session: Session, blueprint: Blueprint) -> NodeState:
    if session.state is SessionState.CONNECTING:
        return NodeState.ABSENT
    if not session.is_present:
        return NodeState.ABSENT if session.was_absent else NodeState.LOST
    return NodeState.ACTIVE if session.node in blueprint.deployments else NodeState.STANDING_BY
