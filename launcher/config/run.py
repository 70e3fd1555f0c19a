"""How patient a run is, and how it gets over losses: the sections `run` and `recovery`.

These models are the one declaration of these options and their defaults. `cluster.yaml` is read
into them, and `launcher.run.runtime.RunOptions` and `launcher.core.watch.Limits` hold them as they
are. The core cannot import pydantic: it says by protocols what it reads of them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from launcher.config.units import StrictModel
from launcher.core.watch import Rebalance
from nodes.protocol.messages import Order


class RunConfig(StrictModel):
    """How long to wait for what, in seconds, and the order in which phases fire."""

    connect_timeout_s: Annotated[
        float, Field(gt=0, description="For every agent to answer at its address")
    ] = 10.0
    deploy_timeout_s: Annotated[float, Field(gt=0, description="For every agent to load")] = 300.0
    silence_timeout_s: Annotated[
        float, Field(gt=0, description="After which a silent agent counts as lost")
    ] = 10.0
    lease_s: Annotated[
        float,
        Field(ge=1, le=86400, description="After which an agent that hears nothing is free again"),
    ] = 15.0
    order: Annotated[Order, Field(description="strict: frame by frame, for comparison; slower")] = (
        "pipelined"
    )


class RecoveryConfig(StrictModel):
    """How a run goes on without a node that is lost while frames stream. `true` or `false` may
    stand for the whole mapping."""

    enabled: Annotated[bool, Field(description="false: the loss of a node ends the run")] = True
    heartbeat_s: Annotated[
        float, Field(gt=0, description="After which a silent node is lost while it streams")
    ] = 2.0
    recovery_s: Annotated[
        float,
        Field(gt=0, description="For a new plan, and then for each node to turn to its part of it"),
    ] = 10.0
    wait_s: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            description="For nodes to come back where the run cannot go on without them",
        ),
    ] = 180.0
    rebalance: Annotated[
        Rebalance,
        Field(
            description="A node that comes back is used when that is worth a pause (auto), when "
            "you say so (ask), or once another one is lost (never)"
        ),
    ] = "auto"
    adapt: Annotated[
        bool,
        Field(
            description="Whether nodes that are slower than planned get less to do while frames "
            "stream (never where a saved plan is run)"
        ),
    ] = True
