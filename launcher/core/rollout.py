"""Deploys one epoch: sends each node the blobs that it lacks, deploys, and starts all when ready.

All nodes pass each barrier together. No node deploys before all are welcome, because a deployment
names the addresses of its peers; no node starts before all are ready.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Send, StageProgress
from launcher.core.session import Session, SessionState, Step, blocks_of
from launcher.core.upload import BESIDE_WINDOW
from launcher.core.watch import Limits
from nodes.protocol.addresses import data_address, host_of
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import (
    PUT_WINDOW,
    Deploy,
    Deployed,
    Missing,
    Progress,
    Start,
    Stored,
)

MOST_PROGRESS = 8
"""Reports of progress per phase that extend an agent's deadline. They are limited because an agent
that reported progress endlessly would block all others; an honest one prepares, loads and rehearses
each phase a few times."""


class Rollout:
    """Leads the sessions of `blueprint`'s nodes from IDLE to RUNNING.

    `renews` says that they come from an earlier epoch. A node that has not dropped it within
    `recovery_s` counts as lost, even if it answers.
    """

    def __init__(
        self, blueprint: Blueprint, sessions: Mapping[str, Session], limits: Limits, *, renews: bool
    ) -> None:
        self.blueprint = blueprint
        self.members = [sessions[node] for node in blueprint.deployments]
        self._limits = limits
        self._renews = renews

    @property
    def is_ready(self) -> bool:
        """Whether every member is ready to start."""
        return all(session.state is SessionState.READY for session in self.members)

    def leave(self, session: Session) -> None:
        """Remove a member that is lost; it has no part in this epoch even if it returns."""
        if session in self.members:
            self.members.remove(session)

    def join(self, session: Session, now_s: float) -> list[Action]:
        """Query which blobs a member lacks."""
        session.step(Step.QUERY)
        self._allow(session, now_s, first=True)
        return [session.query(self.blueprint.blobs(session.node))]

    def receive(
        self, session: Session, message: Missing | Stored | Progress | Deployed, now_s: float
    ) -> list[Action]:
        """Act on a member's answer, which its session has received; raises `RemoteProtocolError` if
        it cannot be true."""
        phases = len(self.blueprint.deployments[session.node].phases)
        match message:
            case Missing():
                return self._continue_upload(session, now_s)
            case Stored():
                return [self._report_uploads(), *self._continue_upload(session, now_s)]
            case Progress() if session.progress <= MOST_PROGRESS * (phases + 1):
                self._allow(session, now_s)
            case Deployed(_, phase_s) if len(phase_s) != phases:
                raise RemoteProtocolError(
                    f"it reports the times of {len(phase_s)} phases, but has {phases}"
                )
        return [self._report_loading()]

    def _continue_upload(self, session: Session, now_s: float) -> list[Action]:
        self._allow(session, now_s)
        if not session.upload.is_complete:
            return [*session.due_chunks(self._window(session))]
        session.step(Step.STOCKED)
        return self._deploy_if_all_welcome(now_s)

    def _window(self, session: Session) -> int:
        """The member's window: the full one if it has more bytes to receive than the others."""
        unsent = [member for member in self.members if not member.upload.is_sent]
        ahead = max(unsent, key=lambda member: member.upload.total_bytes, default=session)
        return PUT_WINDOW if session is ahead else BESIDE_WINDOW

    def _deploy_if_all_welcome(self, now_s: float) -> list[Action]:
        addresses = self.data_addresses()
        if len(addresses) < len(self.members):
            return []
        deployments = self.blueprint.in_blocks(blocks_of(self.members)).addressed(addresses)
        actions: list[Action] = []
        for session in self.members:
            if session.state is SessionState.STOCKED:
                session.step(Step.DEPLOY)
                self._allow(session, now_s, first=True)
                actions.append(Send(session.node, Deploy(deployments[session.node])))
        return actions

    def data_addresses(self) -> dict[str, str]:
        """Node → the address of its data port, for the members that are welcome."""
        return {
            session.node: data_address(
                session.welcome.data_address, session.host or host_of(session.address)
            )
            for session in self.members
            if session.welcome is not None
        }

    def start(self) -> list[Action]:
        """Start all members; each is ready."""
        for session in self.members:
            session.step(Step.START)
        return [Send(session.node, Start(self.blueprint.epoch)) for session in self.members]

    def _report_uploads(self) -> StageProgress:
        uploads = [member.upload for member in self.members]
        stored_bytes = sum(upload.stored_bytes for upload in uploads)
        return StageProgress("uploading", stored_bytes, sum(each.total_bytes for each in uploads))

    def _report_loading(self) -> StageProgress:
        phases = {node: len(d.phases) for node, d in self.blueprint.deployments.items()}
        loaded = sum(min(member.loaded, phases[member.node]) for member in self.members)
        return StageProgress("loading", loaded, sum(phases.values()))

    def _allow(self, session: Session, now_s: float, *, first: bool = False) -> None:
        """Set the deadline of a session's next step; `first` marks the first after a command."""
        allowed_s, overdue = self._limits.run.deploy_timeout_s, ""
        recovery_s = self._limits.recovery.recovery_s
        if first and self._renews and recovery_s < allowed_s:
            allowed_s = recovery_s
            overdue = f"it did not switch to its new part within {recovery_s:g} s"
        session.expect(now_s + allowed_s, overdue)
