"""Decides which node is at fault when agents accuse each other, or answer but make no progress.

An agent that fails reports whether the fault is its own or a peer's. A report about itself is
believed. A report about a peer is evidence and no verdict, because a board that was taken over, or
is faulty, could otherwise have one healthy node after the other expelled. Each accusation is a
*dispute* between two nodes: one of them, or the link between them, is at fault. The accused is
pinged first, and if it does not answer, it is lost for its silence. Otherwise the first of these
rules that applies decides:

1. The agent reports its own failure, or accuses a node that has no part in the epoch: it has
   failed.
2. All present disputes involve the same node, and this node has had disputes with at least two
   others: it is lost, whether it accuses or is accused.
3. The same two nodes have had a dispute before: the one whose report arrived first now is lost.
4. In all other cases (a first dispute, or several without a common node) no node is lost, and all
   begin a new epoch.

A node that lies about two others is therefore lost by its second lie, and so is one that two others
rightly accuse. If just two nodes cannot reach each other, the run pauses twice and loses one of
them. No node is lost permanently because others accuse it: it is greeted again like any lost node
(`launcher.core.returns`), and disputes are forgotten after `FORGET_S`. Nodes that lie together are
believed, since two liars cannot be distinguished from two witnesses.

If no result comes although all agents answer, their firing counters show where the run is stuck: at
a phase that has its inputs and room for its outputs, and does not fire. All others wait for it,
directly or indirectly. The counters of its neighbours may be false too, so this counts as a dispute
of its node with each of them; the node is lost, or a neighbour that has had disputes with more
nodes.

If an engine cannot load its part of the model before the first frame, the node or the model may be
at fault. `ModelFaults` blames the model if two nodes report the same, or the only one, and no other
node has another engine to try.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from launcher.core.blueprint import Blueprint
from launcher.core.events import NetworkCounts
from launcher.core.session import Session
from launcher.core.watch import Suspicion
from nodes.core.engines import EngineLackingError, resolve
from nodes.protocol.messages import HOST, ChannelSpec

FORGET_S = 600.0
"""How long a dispute is remembered."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The nodes that `failed` by themselves and those that are `suspect`, each with the report
    that decided; both are empty if all nodes begin a new epoch."""

    failed: tuple[tuple[str, Suspicion], ...] = ()
    suspect: tuple[tuple[str, Suspicion], ...] = ()


class Disputes:
    """Remembers which pairs of nodes have had disputes, and judges new ones."""

    def __init__(self) -> None:
        self._noted_s: dict[frozenset[str], float] = {}

    def judge(
        self, suspicions: Sequence[Suspicion], members: Sequence[Session], now_s: float
    ) -> Verdict:
        """Return the verdict on simultaneous reports by the rules above."""
        names = {session.node for session in members}
        failed = [s for s in suspicions if s.peer not in names - {s.session.node}]
        if failed:
            return Verdict(failed=tuple((s.session.node, s) for s in failed))
        before = self._remembered(now_s)
        pairs = [frozenset((s.session.node, s.peer)) for s in suspicions]
        self._noted_s.update(dict.fromkeys(pairs, now_s))
        in_all = frozenset.intersection(*pairs)
        worst = max(sorted(in_all), key=self.opponents, default="")
        if worst and self.opponents(worst) > 1:
            return Verdict(suspect=((worst, suspicions[0]),))
        again = [s for s, pair in zip(suspicions, pairs, strict=True) if pair in before]
        return Verdict(suspect=tuple((s.session.node, s) for s in again[:1]))

    def opponents(self, node: str) -> int:
        """The number of other nodes with which a node has had disputes."""
        return sum(node in pair for pair in self._noted_s)

    def blame_for_stall(self, node: str, neighbours: Sequence[str], now_s: float) -> str:
        """Return the node at fault if, by its own and its neighbours' counters, `node` is stuck."""
        self._remembered(now_s)
        self._noted_s.update({frozenset((node, other)): now_s for other in neighbours})
        worst = max(neighbours, key=self.opponents, default=node)
        return worst if self.opponents(worst) > self.opponents(node) else node

    def _remembered(self, now_s: float) -> set[frozenset[str]]:
        self._noted_s = {
            pair: at_s for pair, at_s in self._noted_s.items() if now_s - at_s < FORGET_S
        }
        return set(self._noted_s)


_ENGINES_WORDS = re.compile(r"subnet .*?: (\S.*? cannot (?:load|run|build) .*)", re.DOTALL)
"""How an engine reports that it cannot load, try out or build a subnet; other failures, such as too
little memory, are the node's."""

_OF_ONE_NODE = re.compile(r"\S*/\S*|@\d+")
"""Text that differs between nodes with the same fault: files, and names of copies of layers."""


class ModelFaults:
    """Remembers why engines could not load their parts, and decides whether it is the model."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[str]] = {}
        self._engines: set[tuple[str, ...]] = set()

    def note(self, failed: Session, reason: str, others: Collection[Session]) -> str:
        """Return an engine's error about the model, "" while the node may be at fault.

        `others` are the nodes that can still be used.
        """
        words = _ENGINES_WORDS.search(reason)
        if words is None:
            return ""
        nodes = self._nodes.setdefault(_OF_ONE_NODE.sub("", words[1]), [])
        if failed.node not in nodes:
            nodes.append(failed.node)
        self._engines.add(_engine(failed))
        if (others and len(nodes) < 2) or not self._engines.issuperset(map(_engine, others)):
            return ""
        named = " and ".join(f"node {node!r}" for node in nodes)
        return f"{words[1]} (reported by {named})"


def _engine(session: Session) -> tuple[str, ...]:
    """Return the engine with which a node computes; its name alone if that is not known."""
    if session.welcome is None:
        return (session.node,)
    try:
        choice = resolve(session.engine, session.welcome.engines)
    except EngineLackingError:
        return (session.node,)
    return choice.engine, choice.device, session.welcome.engine


def stuck(
    blueprint: Blueprint,
    firings: Mapping[str, Sequence[int]],
    progress: NetworkCounts,
    network: int = 0,
) -> list[str]:
    """Return the nodes that could fire a phase of a network and do not.

    `firings` has each node's firings per phase, `progress` the network's frames. Initial states
    arrive with the first frame and are not waited for. A node whose firings are not known, and one
    that depends on it, is not found.
    """
    frames, taken = progress.offered - progress.first, progress.taken - progress.first
    from_host = blueprint.of_network(network).from_host
    dealt, copy_of = blueprint.dealing.dealt, blueprint.dealing.channel_copy

    def has_no_place(frame: int) -> bool:
        """Whether the host cannot have sent this frame yet; frames are sent in order."""
        return any(
            dealt(copy_of(c.number), frame + 1) > freed(c) + c.capacity_frames
            for c in from_host
            if not c.kept_from
        )

    def produced(channel: ChannelSpec) -> int:
        if channel.source_phase is None:
            return dealt(copy_of(channel.number), fed)
        counts = firings.get(channel.source_node, ())
        return counts[channel.source_phase] if channel.source_phase < len(counts) else 0

    def freed(channel: ChannelSpec) -> int:
        if channel.target_node == HOST:
            return dealt(copy_of(channel.number), taken)
        counts = firings.get(channel.target_node, ())
        return min((counts[t] for t in channel.target_phases if t < len(counts)), default=0)

    fed = bisect_left(range(frames), True, key=has_no_place)
    found = []
    for node, deployment in blueprint.deployments.items():
        for phase, fired in enumerate(firings.get(node, ())):
            if phase < len(deployment.phases) and deployment.phases[phase].network != network:
                continue
            reads = [
                c
                for c in deployment.channels
                if c.target_node == node and phase in c.target_phases and not c.kept_from
            ]
            writes = [
                c for c in deployment.channels if c.source_node == node and phase == c.source_phase
            ]
            has_inputs = all(produced(channel) > fired for channel in reads)
            has_places = all(fired - freed(c) < c.capacity_frames for c in writes)
            if has_inputs and has_places:
                found.append(node)
                break
    return found
