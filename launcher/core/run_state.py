"""Defines the states of a run and the transitions between them, as a table.

    PREPARING ──Start──▶ STREAMING ──last result taken: Stop──▶ STOPPING
        │ │               │     ▲
        │ │             Halt   Start
        │ │               ▼     │
        │ │ COMPLETE ◀── HALTING   ROLLOUT ◀──PlanReply── PLANNING ◀──▶ WAITING
        │ │                                                  ▲             ▲
        │ └──a node is missing, and all others have answered─┴─────────────┤
        └──a node is missing──▶ GATHERING ──all others have answered───────┘

An epoch is abandoned, and the stream halted, because a node is lost, because nodes accuse each
other or because there is a better plan. HALTING leads to COMPLETE if every result has arrived, to
ROLLOUT if there is a better plan, and otherwise to PLANNING, or to WAITING if too few nodes are
present. ROLLOUT leads back to one of these two if another node is lost.

A run may begin with the nodes that answer (`run.start: available`). A node that is missing or lost
before the first frame then leads from PREPARING to PLANNING or WAITING, through GATHERING if other
nodes have not answered the greeting yet. A run can end in every state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from nodes.protocol.errors import LocalProtocolError


class RunState(Enum):
    """The state of a run."""

    PREPARING = "no epoch has streamed yet"
    STREAMING = "frames stream"
    HALTING = "the epoch is abandoned, and the stream is being halted"
    COMPLETE = "every result had arrived when the stream was halted"
    WAITING = "too few nodes are present to continue"
    GATHERING = "a node is missing at the start, and others may still answer"
    PLANNING = "a plan is being searched for"
    ROLLOUT = "nodes receive and load their parts of the next plan"
    STOPPING = "the last result is taken, and nodes stop"
    ENDED = "the run has ended"


class RunStep(Enum):
    """A step that the supervisor takes; it changes the state."""

    START = "start all nodes, which are ready"
    GIVE_UP = "abandon the epoch and halt the stream"
    FINISH = "note that no frame is left to stream"
    GATHER = "wait until every node has answered the greeting, or is late"
    WAIT = "wait for nodes to come, or to come back"
    PLAN = "request a plan"
    ROLL_OUT = "deploy the next plan"
    STOP = "stop all nodes after the last result"
    END = "end the run"


_S, _T = RunState, RunStep

WITHOUT_PLAN = (_S.HALTING, _S.COMPLETE, _S.GATHERING, _S.WAITING, _S.PLANNING)
"""The epoch is abandoned, and there is no plan for the next one yet."""

DOWN = (*WITHOUT_PLAN, _S.ROLLOUT)
"""The epoch is abandoned, and the next one does not stream yet."""

RUN_TRANSITIONS: Mapping[tuple[RunState, RunStep], RunState] = {
    (_S.PREPARING, _T.START): _S.STREAMING,
    (_S.STREAMING, _T.GIVE_UP): _S.HALTING,
    (_S.STREAMING, _T.STOP): _S.STOPPING,
    (_S.STOPPING, _T.STOP): _S.STOPPING,  # again, after the loss of a node
    (_S.HALTING, _T.ROLL_OUT): _S.ROLLOUT,
    (_S.HALTING, _T.FINISH): _S.COMPLETE,
    (_S.COMPLETE, _T.FINISH): _S.COMPLETE,  # again, after another loss
    (_S.PLANNING, _T.ROLL_OUT): _S.ROLLOUT,
    (_S.ROLLOUT, _T.START): _S.STREAMING,
    **{
        (state, step): after
        for state in (
            *(_S.PREPARING, _S.GATHERING),
            *(_S.HALTING, _S.WAITING, _S.PLANNING, _S.ROLLOUT),
        )
        for step, after in ((_T.PLAN, _S.PLANNING), (_T.WAIT, _S.WAITING))
    },
    (_S.PREPARING, _T.GATHER): _S.GATHERING,
    **{(state, _T.END): _S.ENDED for state in _S if state is not _S.ENDED},
}
"""(state, step) → next state; a step that is missing is forbidden."""


class RunLife:
    """The state of one run, which its supervisor shares with the recoverer and the improver."""

    def __init__(self) -> None:
        self.state = RunState.PREPARING
        self.has_streamed = False
        """Whether frames have streamed in any epoch."""

    def step(self, step: RunStep) -> None:
        """Take a step; raises `LocalProtocolError` if the table has none."""
        following = RUN_TRANSITIONS.get((self.state, step))
        if following is None:
            raise LocalProtocolError(f"no {step} while {self.state}")
        self.state = following
        self.has_streamed |= following is RunState.STREAMING

    @property
    def is_down(self) -> bool:
        """Whether an epoch is abandoned and the next one does not stream yet."""
        return self.state in DOWN

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state is RunState.ENDED
