"""Defines the sections `run` and `recovery` of `cluster.yaml`: timeouts, order, and recovery.

These models are the only declaration of these options and their defaults;
`launcher.run.runtime.RunOptions` and `launcher.core.watch.Limits` hold them unchanged. The core
must not import pydantic, so it declares the attributes that it reads by protocols.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from launcher.core.watch import Rebalance, Start
from nodes.protocol.messages import Order


class StrictModel(BaseModel):
    """A frozen mapping that refuses unknown keys, infinite numbers, and values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


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
            description="Which nodes a run begins with: those that answer (available), without "
            "which the others may have a plan; or all of the plan, else it ends (all)"
        ),
    ] = "available"
    start_wait_s: Annotated[
        float | None,
        Field(
            ge=0,
            le=86400,
            description="Seconds to wait for nodes before the first frame, if those that answer "
            "are too few; by default 30, and without a limit for launch serve and for sources",
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
    """How a run goes on without a node that is lost while frames stream. `true` or `false` may
    stand for the whole mapping."""

    enabled: Annotated[
        bool, Field(description="Whether a run goes on after a loss; false: the loss ends it")
    ] = True
    heartbeat_s: Annotated[
        float,
        Field(gt=0, description="Seconds after which a silent node is lost while frames stream"),
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
