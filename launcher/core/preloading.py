"""Brings the subnets of a better plan to its nodes while frames stream by the present one.

A change of plans ends the epoch on all nodes. The time between the last result before it and the
first one after it is the user's pause, so everything that takes long happens before: nodes receive
the blobs that they lack, prepare them (`Prepare`), which may take seconds for each subnet, and load
and rehearse them in addition to those that run. After the halt they only take them over.

Preloading is optional: where a node cannot do its part of it, because its agent is older or has no
memory for two plans, or does not end in time, the change is carried out as it is after a loss, and
that node does the rest during the pause. If the change is abandoned, a `Stop` of its epoch frees
what nodes have loaded. A node whose disk cannot take the blobs could not take them during the pause
either, so the present plan is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Notice, Send
from launcher.core.recovery import Change
from launcher.core.session import Session, SessionState, blocks_of
from launcher.core.upload import BESIDE_WINDOW
from launcher.core.watch import is_past
from nodes.protocol.messages import Failed, Missing, Prepare, Prepared, Stop, Stored

PRELOADED = (SessionState.RUNNING, SessionState.IDLE)
"""The states of a node that is brought the subnets of a better plan."""


class Preloading:
    """Leads the nodes of a change's blueprint to having its subnets prepared."""

    def __init__(self, change: Change, sessions: Mapping[str, Session], until_s: float) -> None:
        self.change = change
        self.until_s = until_s
        """When to carry out the change, even if nodes are not ready."""
        self._sessions = sessions
        self._blueprint: Blueprint = change.blueprint.in_blocks(blocks_of(sessions.values()))
        self._loading: list[Session] = []
        self._waiting = {
            node: sessions[node]
            for node in self._blueprint.deployments
            if sessions[node].state in PRELOADED
        }

    def is_over(self, now_s: float) -> bool:
        """Whether every node is ready, or it takes too long."""
        return not self._waiting or is_past(self.until_s, now_s)

    @property
    def can_be_carried_out(self) -> bool:
        """Whether all nodes of the plan are present and have not failed."""
        return all(self._sessions[node].state in PRELOADED for node in self._blueprint.deployments)

    def is_refusal(self, session: Session, failure: Failed) -> bool:
        """Whether a failure says that the node cannot store the blobs; its part still runs."""
        is_of_no_part = not failure.epoch and session.node in self._waiting
        return is_of_no_part and session.refuses_blobs()

    def end(self) -> list[Session]:
        """Expect nothing more of the nodes; return the sessions of those that may have loaded their
        part."""
        for session in self._waiting.values():
            session.abandon()
        return self._loading

    def give_up(self) -> list[Action]:
        """End it, and let the nodes free what they have loaded."""
        stop = Stop(self._blueprint.epoch)
        return [Send(session.node, stop) for session in self.end() if session.is_open]

    def begin(self) -> list[Action]:
        """Query which blobs the nodes lack."""
        return [s.query(self._blueprint.blobs(node)) for node, s in self._waiting.items()]

    def receive(self, session: Session, answer: Missing | Stored | Prepared) -> list[Action]:
        """Act on a node's answer, which its session has received."""
        if session.node not in self._waiting:
            return []
        if not isinstance(answer, Prepared):
            if session.upload.is_complete:
                return self._prepare(session)
            return [*session.due_chunks(BESIDE_WINDOW)]  # frames have the link otherwise
        if answer.epoch != self._blueprint.epoch:
            return []
        del self._waiting[session.node]
        return [_left_to_the_pause(session.node, answer.reason)] if answer.reason else []

    def _prepare(self, session: Session) -> list[Action]:
        node = session.node
        has_room = node in self._blueprint.with_room
        if has_room:
            self._loading.append(session)
        prepare = Send(node, Prepare(self._blueprint.deployments[node], has_room))
        reason = "it lacks memory for two plans"
        return [prepare] if has_room else [prepare, _left_to_the_pause(node, reason)]


def _left_to_the_pause(node: str, reason: str) -> Notice:
    text = f"node {node!r} loads its next subnets only in the pause: {reason}"
    return Notice(text, nodes=(node,))
