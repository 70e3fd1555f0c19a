"""Who is at fault when agents answer and the run does not go on.

Agents that fail tell whether it was they or a peer. Agents that are stuck tell nothing, but how far
each of their phases got: a phase that has its inputs and the places for its outputs, and yet does
not fire, is where the run is stuck. All others wait for it, directly or in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from launcher.core.blueprint import Blueprint
from launcher.core.session import Session
from launcher.core.watch import Suspicion
from nodes.core.messages import HOST, ChannelSpec


def at_fault(
    suspicions: Sequence[Suspicion], sessions: Mapping[str, Session]
) -> list[tuple[Session, Suspicion]]:
    """Those that failed by themselves, each with what it said; if there are none, the peer that is
    blamed most often (of several, the first to be blamed). A peer that is not there is nobody's
    fault but the accuser's."""
    there = [node for node, session in sessions.items() if session.is_there]
    own = [(s.session, s) for s in suspicions if s.peer not in there]
    if own or not suspicions:
        return own
    (most, _), *_ = Counter(s.peer for s in suspicions).most_common(1)
    return [(sessions[most], next(s for s in suspicions if s.peer == most))]


def stuck(
    blueprint: Blueprint, firings: Mapping[str, Sequence[int]], frames: int, taken: int
) -> list[str]:
    """The nodes that could fire a phase and do not; `firings` counts each node's, phase by phase.

    `frames` is how many the epoch has, `taken` how many of its results the user took. Nodes whose
    firings are not known are left out, and so is what depends on them.
    """
    dealt, copy_of = blueprint.dealing.dealt, blueprint.dealing.channel_copy

    def has_no_place(frame: int) -> bool:
        """Whether the host cannot have fed this frame and all before it, which go in order."""
        return any(
            dealt(copy_of(c.number), frame + 1) > freed(c) + c.capacity_frames
            for c in blueprint.from_host
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
                c for c in deployment.channels if c.target_node == node and phase in c.target_phases
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
