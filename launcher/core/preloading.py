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

from collections.abc import Iterable, Mapping

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Notice, Send, SendChunk
from launcher.core.recovery import Change
from launcher.core.session import BESIDE_WINDOW, Session, SessionState, Upload, blocks_of
from launcher.core.watch import is_past
from nodes.protocol.messages import Failed, Missing, Prepare, Prepared, Query, Stop, Stored


class Preloading:
    """Leads the nodes of a change's blueprint to having its subnets prepared."""

    def __init__(self, change: Change, sessions: Mapping[str, Session], until_s: float) -> None:
        self.change = change
        self.until_s = until_s
        """When to carry out the change, even if nodes are not ready."""
        self._sessions = sessions
        self._blueprint: Blueprint = change.blueprint.in_blocks(blocks_of(sessions.values()))
        self._uploads: dict[str, Upload] = {}
        self._loading: list[Session] = []
        self._waiting = {
            node: sessions[node]
            for node in self._blueprint.deployments
            if _can_prepare(sessions[node])
        }

    def is_over(self, now_s: float) -> bool:
        """Whether every node is ready, or it takes too long."""
        return not self._waiting or is_past(self.until_s, now_s)

    @property
    def can_be_carried_out(self) -> bool:
        """Whether all nodes of the plan are present and have not failed."""
        fit = (SessionState.RUNNING, SessionState.IDLE)
        return all(self._sessions[node].state in fit for node in self._blueprint.deployments)

    def is_refusal(self, session: Session, failure: Failed) -> bool:
        """Whether a failure says that the node cannot store the blobs; its part still runs."""
        if failure.epoch or session.node not in self._waiting:
            return False
        for kind in (Missing, Stored):
            if session.unanswered[kind] > session.abandoned[kind]:
                session.unanswered[kind] -= 1  # at most one is outstanding, which this answers
                return True
        return False

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
        actions: list[Action] = []
        for node, session in self._waiting.items():
            session.unanswered[Missing] += 1
            digests = tuple(blob.digest for blob in self._blueprint.blobs(node))
            actions.append(Send(node, Query(digests)))
        return actions

    def receive(self, session: Session, answer: Missing | Stored | Prepared) -> list[Action]:
        """Act on a node's answer; raises `RemoteProtocolError` if it cannot be true."""
        if session.node not in self._waiting:
            return []
        match answer:
            case Missing(digests):
                self._uploads[session.node] = self._upload(session.node, digests)
            case Stored():
                if session.node in self._uploads:
                    self._uploads[session.node].stored(answer)
            case Prepared(epoch, reason):
                if epoch != self._blueprint.epoch:
                    return []
                del self._waiting[session.node]
                return [_left_to_the_pause(session.node, reason)] if reason else []
        return self._continue(session)

    def _upload(self, node: str, lacking: Iterable[str]) -> Upload:
        needed = {blob.digest: blob for blob in self._blueprint.blobs(node)}
        return Upload(needed[digest] for digest in dict.fromkeys(lacking) if digest in needed)

    def _continue(self, session: Session) -> list[Action]:
        upload = self._uploads.get(session.node)
        if upload is None:
            return []
        if upload.is_complete:
            del self._uploads[session.node]
            return self._prepare(session)
        due = upload.due(BESIDE_WINDOW)  # frames have the link to themselves otherwise
        session.unanswered[Stored] += len(due)
        return [SendChunk(session.node, *chunk) for chunk in due]

    def _prepare(self, session: Session) -> list[Action]:
        node = session.node
        has_room = node in self._blueprint.with_room
        if has_room:
            self._loading.append(session)
        prepare = Send(node, Prepare(self._blueprint.deployments[node], has_room))
        reason = "it has no memory for two plans"
        return [prepare] if has_room else [prepare, _left_to_the_pause(node, reason)]


def _left_to_the_pause(node: str, reason: str) -> Notice:
    text = f"node {node!r} loads its next subnets only in the pause: {reason}"
    return Notice(text, nodes=(node,))


def _can_prepare(session: Session) -> bool:
    return session.state in (SessionState.RUNNING, SessionState.IDLE)
