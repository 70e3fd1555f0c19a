"""Makes the errors of a run: each says which node, its address, what happened and what to do."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from launcher.core.events import AgentExited
from launcher.core.session import Session, SessionState
from launcher.errors import (
    BadInputError,
    BarredError,
    LacksRoomError,
    LauncherError,
    RunFailedError,
    UnreachableError,
)
from nodes.core.engines import EngineLackingError
from nodes.protocol.encodings import Encoding
from nodes.protocol.messages import PROTOCOL, Refused, is_understood

CLOSED = (
    "its agent closed the connection: it was stopped, it crashed, or its machine or the network "
    "went down (the agent's log on that machine may say more)"
)

AGENT_COULD_NOT_START = 2
"""The exit code of a `node-agent` that could not start; its standard error has the sentence."""


def where(session: Session) -> str:
    """Return the node's name and address, as every sentence names it."""
    if session.started_by_us:
        return f"node {session.node!r} (started on this machine)"
    return f"node {session.node!r} at {session.address}"


def unreachable(sessions: Iterable[Session], waited_s: float) -> LauncherError:
    """These agents did not answer the greeting in time."""
    named = list(sessions)
    places = ", ".join(where(session) for session in named)
    if all(session.started_by_us for session in named):
        return RunFailedError(f"{places} did not answer within {waited_s:g} s of being started")
    sentence = (
        f"{places} did not answer within {waited_s:g} s; check that node-agent runs "
        "there, and that this machine can reach it"
    )
    closing = ", ".join(where(session) for session in named if session.closes_early)
    if closing:
        sentence += (
            f". The port of {closing} closes every connection during the handshake: either another "
            "program than node-agent listens there, or too many connections reach the port (the "
            "agent's log says from where)"
        )
    if len(named) == 1:
        return UnreachableError(sentence, {named[0].node: sentence})
    each = {session.node: str(unreachable([session], waited_s)) for session in named}
    return UnreachableError(sentence, each)


def refused(session: Session, answer: Refused, own: str) -> LauncherError:
    """The agent refused to open a session; `own` is the id of this process."""
    if not is_understood(answer.protocol):
        return other_protocol(session, answer.protocol)
    is_ours = bool(own) and answer.holder == own
    reason = "another deployment of this launcher is using it" if is_ours else answer.reason
    if session.slots > 1:
        return LacksRoomError(
            f"{where(session)} refused: all of its {session.slots} slots are taken (the last one: "
            f"{reason}); start its agent with more --slots, and write that number into cluster.yaml"
        )
    if is_ours:
        reason += (
            ", and it takes one at a time; to have two at once, start its agent with --slots 2, "
            "and write slots: 2 for it into cluster.yaml"
        )
    return LacksRoomError(f"{where(session)} refused: {reason}")


def data_port_shut(session: Session, tried: Iterable[str]) -> LauncherError:
    """The agent has answered, but its data port was not found at these addresses."""
    return BadInputError(
        f"{where(session)}: its agent answers, but its data port does not ({', '.join(tried)}): "
        "let that port through as well, or forward it. If it is behind forwarded ports and does "
        "not follow the control port, write its address into cluster.yaml (`data:` of the node)"
    )


def other_protocol(session: Session, theirs: int) -> LauncherError:
    """The agent's protocol version differs from ours."""
    older = "that node" if theirs < PROTOCOL else "this machine"
    return BadInputError(
        f"{where(session)} speaks protocol {theirs}, this launcher protocol {PROTOCOL}: "
        f"install the same version of csdf-edge on both ({older} has the older one)"
    )


def lacks_encoding(session: Session, encoding: Encoding) -> LauncherError:
    """The agent cannot encode tensors as its part of the plan needs."""
    return BadInputError(
        f"{where(session)} cannot exchange tensors encoded as {encoding}: install "
        "csdf-edge[lossless] there, or choose another `wire`"
    )


def lacks_engine(session: Session, error: EngineLackingError) -> LauncherError:
    """The agent cannot compute as its part of the plan needs."""
    return BadInputError(f"{where(session)} {error}")


def unintelligible(session: Session, reason: str) -> LauncherError:
    """A message from the agent's address cannot be read, or is not allowed now."""
    if session.state is SessionState.CONNECTING:
        return BadInputError(
            f"{where(session)} does not speak protocol {PROTOCOL} ({reason}): "
            "is a node-agent of this version running there?"
        )
    return RunFailedError(
        f"{where(session)} broke the protocol while {session.state.value}: {reason}"
    )


def lost(session: Session, state: SessionState, how: str, progress: str) -> LauncherError:
    """A node was lost after it had been reached."""
    return RunFailedError(f"{where(session)} was lost while {state.value}{progress}: {how}")


def failed(
    session: Session, state: SessionState, reason: str, progress: str, is_barred: bool = False
) -> LauncherError:
    """The agent reported a failure, `is_barred` because it and another node do not agree on
    their keys."""
    if is_barred:
        return BarredError(
            f"{where(session)}: {reason}. `launch cluster.yaml --make-keys` makes keys with "
            "which all nodes know each other; each node needs its own folder of them"
        )
    return RunFailedError(f"{where(session)} failed while {state.value}{progress}: {reason}")


def unloadable(said: str) -> LauncherError:
    """No engine of the nodes can load the model; `said` is what one reported."""
    return BadInputError(f"no node can run the model: {said}")


def suspect(session: Session, error: LauncherError) -> LauncherError:
    """A node is excluded because of its disputes with others."""
    return RunFailedError(
        f"{where(session)} is excluded for a while because of its disputes with others: {error}"
    )


def was_away(session: Session, away_s: float) -> LauncherError:
    """A node has to be greeted again because the launcher was stopped."""
    return RunFailedError(
        f"this launcher was stopped for {away_s:.0f} s, so {where(session)} is greeted again"
    )


def stalled(sessions: Iterable[Session], stall_s: float, progress: str) -> LauncherError:
    """No result comes although every agent answers."""
    firings = "; ".join(
        f"node {session.node!r}: {', '.join(str(count) for count in session.stats.firings)}"
        for session in sessions
        if session.stats is not None
    )
    return RunFailedError(
        f"no result has arrived for {stall_s:g} s{progress}, although every agent answers. The "
        f"frames that each phase has completed show where the run is stuck ({firings})"
    )


def exited(session: Session, event: AgentExited, progress: str) -> LauncherError:
    """The process of an agent that this launcher started has ended unexpectedly."""
    if session.state is SessionState.CONNECTING and event.code == AGENT_COULD_NOT_START:
        return could_not_start(session.node, event.stderr_tail)
    return lost(session, session.state, exit_description(event), progress)


def could_not_start(node: str, stderr_tail: str) -> BadInputError:
    """The agent that this launcher started has ended with `AGENT_COULD_NOT_START`."""
    why = stderr_tail.strip().removeprefix("node-agent: ")
    return BadInputError(f"node {node!r}: its agent could not start: {why}")


def exit_description(event: AgentExited) -> str:
    """Return a clause on how a process ended, with the end of its standard error."""
    code, kills = event.code, event.oom_kills
    if code == -signal.SIGKILL and kills:
        times = "once" if kills == 1 else f"{kills} times"
        how = (
            "its agent was ended by signal 9 (SIGKILL), most likely by the kernel for want of "
            f"memory, which has happened {times} on this machine since the agent was started. Set "
            "`memory` to what each node may use, or use more nodes"
        )
    elif code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        how = f"its agent was ended by signal {-code} ({name})"
    else:
        how = f"its agent ended with exit code {code}"
    words = event.stderr_tail.strip()
    return f"{how}; its last output:\n{words}" if words else f"{how} and wrote nothing"
