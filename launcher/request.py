"""What the user asks of `launch` on the command line. Light to import, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launcher.core.watch import Rebalance
from nodes.core.messages import Order

MOST_FRAMES = 1_000_000_000
MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Request:
    """What the user asks of `launch`; None leaves it to `cluster.yaml`."""

    target: Path
    frames: int | None = None
    inputs: tuple[str, ...] = ()
    output: Path | None = None
    strategy: str | None = None
    seed: int | None = None
    plan_only: bool = False
    save: Path | None = None
    order: Order | None = None
    verify: bool | None = None
    tolerance: float | None = None
    top: int = 5
    profile: Path | None = None
    trace: Path | None = None
    make_keys: bool = False
    journal: Path | None = None
    resume: bool = False
    rebalance: Rebalance | None = None
