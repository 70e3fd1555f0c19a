"""Options that several commands have."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else")]


class Objective(str, Enum):
    """What a search makes small first."""

    period = "period"
    memory = "memory"
    latency = "latency"
    energy = "energy"
