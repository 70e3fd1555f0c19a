"""Defines the sections `run`, `recovery` and `reconnect` of `cluster.yaml`, and a source's pace.

These models are the only declaration of these options and their defaults;
`launcher.run.runtime.RunOptions` and `launcher.core.watch.Limits` hold them unchanged. The core
must not import pydantic, so it declares the attributes that it reads by protocols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from launcher.config.strict import StrictModel
from launcher.core.watch import Rebalance, Start
from nodes.core.pauses import pause_s
from nodes.protocol.messages import Order


class RunConfig(StrictModel):
    """Timeouts of a run, in seconds, and the order in which phases fire."""

    connect_timeout_s: Annotated[
        float, Field(gt=0, description="Seconds within which every agent must answer")
    ] = 10.0
    deploy_timeout_s: Annotated[
        float, Field(gt=0, description="Seconds within which every agent must have loaded its part")
    ] = 300.0
    silence_timeout_s: Annotated[
        float, Field(gt=0, description="Seconds after which a silent agent counts as lost")
    ] = 10.0
    lease_s: Annotated[
        float,
        Field(
            ge=1,
            le=86400,
            description="Seconds without a message from the launcher after which an agent is free "
            "for another one",
        ),
    ] = 15.0
    order: Annotated[
        Order,
        Field(
            description="pipelined: phases work on different frames at once; strict: one frame "
            "after the other, which is slower and serves comparisons"
        ),
    ] = "pipelined"
    start: Annotated[
        Start,
        Field(
            description="Which nodes a run begins with: those that answer, if a plan for them "
            "exists (available), or all nodes of the plan, without which the run ends "
            "(all)"
        ),
    ] = "available"
    start_wait_s: Annotated[
        float | None,
        Field(
            ge=0,
            le=86400,
            description="Seconds to wait for nodes before the first frame, if too few answer; by "
            "default 30, and no limit for launch serve and for sources",
        ),
    ] = None
    batch_wait_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds for which a frame waits for the others of its batch; frames from "
            "files wait until the batch is complete",
        ),
    ] = 0.05


class RecoveryConfig(StrictModel):
    """How a run continues without a node that is lost while frames stream. `true` or `false` may
    stand for the whole mapping."""

    enabled: Annotated[
        bool,
        Field(
            description="Whether a run continues after the loss of a node; false: the loss ends it"
        ),
    ] = True
    heartbeat_s: Annotated[
        float,
        Field(
            gt=0, description="Seconds after which a silent node counts as lost while frames stream"
        ),
    ] = 2.0
    recovery_s: Annotated[
        float,
        Field(
            gt=0,
            description="Seconds for making a new plan, and then for each node to load its part",
        ),
    ] = 10.0
    wait_s: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            description="Seconds to wait for nodes to come back if the run needs them",
        ),
    ] = 180.0
    rebalance: Annotated[
        Rebalance,
        Field(
            description="When to use a node that came back: if that is worth a pause (auto), when "
            "you agree (ask), or once another one is lost (never)"
        ),
    ] = "auto"
    adapt: Annotated[
        bool,
        Field(
            description="Whether a node that is slower than planned gets fewer layers while frames "
            "stream (never with a saved plan)"
        ),
    ] = True


class ReconnectConfig(StrictModel):
    """When a source or sink that was lost is tried again."""

    first_s: Annotated[
        float,
        Field(
            gt=0, le=3600, description="Seconds until the first attempt; each later wait is doubled"
        ),
    ] = 0.5
    most_s: Annotated[
        float, Field(gt=0, le=3600, description="Maximum number of seconds between two attempts")
    ] = 30.0
    tries: Annotated[
        int | None,
        Field(
            ge=1,
            description="Number of consecutive failures that end the run; without it, "
            "attempts never end",
        ),
    ] = None

    def wait_s(self, failures: int) -> float | None:
        """Return the seconds to wait after that many failures in a row; None if they were enough.

        >>> [ReconnectConfig(most_s=3.0).wait_s(failures) for failures in (1, 2, 3, 4)]
        [0.5, 1.0, 2.0, 3.0]
        """
        if self.tries is not None and failures >= self.tries:
            return None
        return pause_s(failures, self.first_s, self.most_s)


Overload = Literal["block", "drop-oldest", "drop-newest"]
"""The rule of `launcher.streaming.overload` for a full queue."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A source's `rate` in frames per second; at most `queue_frames` frames wait, and
    `on_overload` says what happens to more."""

    rate: float
    on_overload: Overload = "block"
    queue_frames: int = 8
