"""Who is at fault when agents answer and the run does not go on.

An agent that fails says whether the fault is its own or a peer's. What it says of itself is
believed. What it says of others is evidence and no verdict: a board that was taken over, or is
merely confused, could have one healthy node after the other expelled. Each accusation is a
*dispute* between two nodes, and one of them, or the link between them, is at fault. The accused is
asked first: if it does not answer a ping, it is lost for its silence, and nobody looks further.
Otherwise the first of these that applies:

1. It says that it failed, or blames nobody who has a part in the epoch: it has failed.
2. All disputes of now are with the same node, and that has had disputes with two others or more:
   that node is lost, whether it accuses or is accused.
3. The same two have had a dispute before: the one that accused first is lost.
4. Anything else, a first dispute, or several without a node in common: nobody is lost, and all
   begin anew.

So a node that lies about two others is lost by its second lie, and so is one that two others
rightly accuse. A node that cannot reach one other, but all the rest, costs two pauses and its
place, or the place of that other one. Nobody is lost for good on the word of others: who is lost
so is greeted again like any (`launcher.core.returns`). Disputes are forgotten after `FORGET_S`.
Nodes that lie together are believed: two liars cannot be distinguished from two witnesses.

Agents that are stuck only report how far each of their phases got: a phase that has its
inputs and the places for its outputs, and yet does not fire, is where the run is stuck. All others
wait for it, directly or in turn. What its neighbours' counters say may be a lie as well, so this
too is a dispute, of the node that is stuck with them; but here that node is lost, or a neighbour
that has had disputes with more others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.core.blueprint import Blueprint
from launcher.core.session import Session
from launcher.core.watch import Suspicion
from nodes.protocol.messages import HOST, ChannelSpec

FORGET_S = 600.0
"""How long a dispute is remembered."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who `failed` by itself, and who is `suspect`, each with the report about it; nobody
    where all are to begin anew."""

    failed: tuple[tuple[str, Suspicion], ...] = ()
    suspect: tuple[tuple[str, Suspicion], ...] = ()


class Disputes:
    """Who has accused whom."""

    def __init__(self) -> None:
        self._noted_s: dict[frozenset[str], float] = {}

    def judge(
        self, suspicions: Sequence[Suspicion], members: Sequence[Session], now_s: float
    ) -> Verdict:
        """The verdict on what agents reported together, see the module's docstring."""
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
        """With how many others a node has had disputes."""
        return sum(node in pair for pair in self._noted_s)

    def blame_for_stall(self, node: str, neighbours: Sequence[str], now_s: float) -> str:
        """Who is at fault where a node is stuck by its neighbours' counters and its own."""
        self._remembered(now_s)
        self._noted_s.update({frozenset((node, other)): now_s for other in neighbours})
        worst = max(neighbours, key=self.opponents, default=node)
        return worst if self.opponents(worst) > self.opponents(node) else node

    def _remembered(self, now_s: float) -> set[frozenset[str]]:
        self._noted_s = {
            pair: at_s for pair, at_s in self._noted_s.items() if now_s - at_s < FORGET_S
        }
        return set(self._noted_s)


def stuck(
    blueprint: Blueprint, firings: Mapping[str, Sequence[int]], frames: int, taken: int
) -> list[str]:
    """The nodes that could fire a phase and do not; `firings` counts each node's, phase by phase.

    `frames` is how many the epoch has, `taken` how many of its results the user took. A state that
    the host brings goes with the first frame and keeps nobody waiting. Nodes whose
    firings are not known are left out, and so is what depends on them.
    """
    dealt, copy_of = blueprint.dealing.dealt, blueprint.dealing.channel_copy

    def has_no_place(frame: int) -> bool:
        """Whether the host cannot have fed this frame and all before it, which go in order."""
        return any(
            dealt(copy_of(c.number), frame + 1) > freed(c) + c.capacity_frames
            for c in blueprint.from_host
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
