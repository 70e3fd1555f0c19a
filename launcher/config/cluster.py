"""Declares the keys of `cluster.yaml`, their defaults and their meaning, as strict frozen models.

The JSON schema for editors is made from these models (`launcher.config.schema`). Paths are text
here and relative to the file; `launcher.config.load` reads the file and resolves them. Each section
has its own module.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from launcher.config.ends.kinds import Sinks
from launcher.config.network import RANDOM, Input, InputConfig, ModelConfig, Models
from launcher.config.node import NodeConfig
from launcher.config.run import Overload, Pace, ReconnectConfig, RecoveryConfig, RunConfig
from launcher.config.serve import ServeConfig
from launcher.config.strict import StrictModel, short_form
from launcher.config.task import Task
from launcher.config.tuning import GaConfig
from launcher.config.units import BatchSize, Bytes, Duration, LinkRate, Share
from launcher.quantities import MOST_FRAMES, MOST_SEED
from partition.objective import DEFAULT_OBJECTIVE, Objective
from partition.wire import Wire


class JournalConfig(StrictModel):
    """The folder that keeps results and progress. Its name may stand for the whole mapping."""

    folder: Annotated[
        str, Field(min_length=1, description="The folder; it is created if it is missing")
    ]
    keep: Annotated[
        Bytes,
        Field(
            description="Maximum size of the folder on disk, such as 10GB; the oldest results "
            "beyond it are removed",
        ),
    ] = None


class ClusterConfig(StrictModel):
    """One network or several, the nodes that they run on, and what is streamed through them."""

    model_config = ConfigDict(title="cluster.yaml")

    model: Annotated[
        Models,
        Field(description="The network that is run, or a list of networks that run side by side"),
    ]
    nodes: Annotated[tuple[NodeConfig, ...], Field(min_length=1, description="The devices")]
    batch: Annotated[
        BatchSize,
        Field(
            description="Number of frames that a node computes at once; auto: the fastest number "
            "by the profile within max_latency"
        ),
    ] = 1
    max_latency: Annotated[
        Duration,
        Field(
            description="Longest time that a frame may take from its source to its result, such "
            "as 200ms; plans that are predicted to take longer are refused"
        ),
    ] = None
    launcher_link: Annotated[
        LinkRate,
        Field(
            description="Rate of the launching machine's network interface, which all frames "
            "cross, such as 1Gbit/s"
        ),
    ] = None
    wire: Annotated[
        Wire,
        Field(
            description="How float32 tensors between nodes are encoded: fp32 as they are; "
            "lossless; fp16, bf16, int8, which change results; auto, as slow links need and "
            "tolerance allows"
        ),
    ] = "fp32"
    strategy: Annotated[
        str, Field(min_length=1, description="How layers are divided among the nodes")
    ] = "auto"
    ga: Annotated[
        GaConfig,
        Field(description="Parameters of the genetic strategies, which ga sweep can find"),
    ] = GaConfig()
    objective: Annotated[
        Objective,
        Field(description="What the strategy minimises first"),
    ] = DEFAULT_OBJECTIVE
    within: Annotated[
        Share | None,
        Field(
            description="For the objectives both and paper: by how much the period may exceed the "
            "shortest, such as 10% or 0.1 (default: 10%)"
        ),
    ] = None
    input: Annotated[
        Input,
        Field(description="The frames: globs of files, random, or a source such as a camera"),
    ] = InputConfig(files=(RANDOM,))
    inputs: Annotated[
        dict[str, Input],
        Field(description="Frames of each network by its name; those not named here use input"),
    ] = {}
    frames: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_FRAMES,
            description="Number of frames to stream; the inputs are repeated if there are fewer",
        ),
    ] = None
    rate: Annotated[
        float | None,
        Field(
            gt=0, le=1e6, description="Frames per second that the source makes, as a camera does"
        ),
    ] = None
    on_overload: Annotated[
        Overload,
        Field(
            description="With rate or a source: what happens to a new frame if queue_frames wait "
            "already; by default block, or drop-oldest for a live source"
        ),
    ] = "block"
    queue_frames: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="With rate or a source: number of frames that may wait; by default 8, or "
            "1 for a live source",
        ),
    ] = 8
    pins: Annotated[
        dict[str, str],
        Field(description="Per layer, or glob of layers: the node that must run it"),
    ] = {}
    journal: Annotated[
        JournalConfig | None,
        short_form("folder", str, schema=str | JournalConfig | None),
        Field(description="Folder that keeps results and progress, for --resume"),
    ] = None
    labels: Annotated[
        str | None, Field(description="Text file with the name of one class per line, from class 0")
    ] = None
    truth: Annotated[
        str | None, Field(description="Text file with the number of one input's class per line")
    ] = None
    profile: Annotated[
        str | None,
        Field(
            description="File with measured times for the search, which csdf-edge partition "
            "profile writes"
        ),
    ] = None
    keys: Annotated[
        str | None,
        Field(
            description="Folder of keys that launch --make-keys made; by default `keys` in "
            "the folder of this file"
        ),
    ] = None
    insecure: Annotated[
        bool,
        Field(description="Use no keys: everybody who reaches the nodes can run networks on them"),
    ] = False
    seed: Annotated[
        int, Field(ge=0, le=MOST_SEED, description="Seed of the search and of random input")
    ] = 0
    slack_frames: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="Room in each channel, in frames, beyond what the period needs",
        ),
    ] = 1
    verify: Annotated[
        bool, Field(description="Whether results are compared with the whole model's")
    ] = True
    verify_every: Annotated[
        int | None,
        Field(
            ge=1,
            description="With a source: every n-th result is compared with the whole model's at "
            "the end; by default none",
        ),
    ] = None
    tolerance: Annotated[
        float | None,
        Field(
            ge=0,
            description="Largest relative difference from the whole model's results; by default it "
            "follows from the precision of the network's numbers",
        ),
    ] = None
    check: Annotated[
        Literal["results", "phases", "none"],
        Field(
            description="Where to look for NaN and infinity; with phases, a node whose results "
            "contain them has failed"
        ),
    ] = "results"
    run: Annotated[RunConfig, Field(description="Timeouts and order")] = RunConfig()
    recovery: Annotated[
        RecoveryConfig,
        short_form("enabled", bool, schema=bool | RecoveryConfig),
        Field(description="How a run continues without a lost node"),
    ] = RecoveryConfig()
    sinks: Annotated[
        Sinks, Field(description="Where results are delivered: files, brokers, web servers, videos")
    ] = ()
    reconnect: Annotated[
        ReconnectConfig,
        Field(description="When to retry a lost source or sink"),
    ] = ReconnectConfig()
    task: Annotated[
        Task | None,
        Field(
            description="What the outputs mean: its kind, or a mapping; by default as the model "
            "says"
        ),
    ] = None
    tasks: Annotated[
        dict[str, Task],
        Field(description="With several networks: the task of each, by its name"),
    ] = {}
    serve: Annotated[
        ServeConfig, Field(description="Where launch serve answers requests, and from whom")
    ] = ServeConfig()

    @property
    def has_source(self) -> bool:
        """Whether frames come from a source such as a camera, and not from files."""
        return self.input.source is not None

    @property
    def pace(self) -> Pace | None:
        """The rate at which the source makes frames; None if it waits for the nodes."""
        if self.rate is None:
            return None
        return Pace(self.rate, self.on_overload, self.queue_frames)

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """All networks."""
        return self.model if isinstance(self.model, tuple) else (self.model,)
