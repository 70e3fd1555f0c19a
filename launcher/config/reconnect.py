"""Defines the section `reconnect` of `cluster.yaml`: when a lost source or sink is tried again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from launcher.config.run import StrictModel
from nodes.core.pauses import pause_s


class ReconnectConfig(StrictModel):
    """When a source or sink that was lost is tried again."""

    first_s: Annotated[
        float,
        Field(
            gt=0, le=3600, description="Seconds until the first attempt; each later wait is doubled"
        ),
    ] = 0.5
    most_s: Annotated[
        float, Field(gt=0, le=3600, description="Seconds between two attempts at most")
    ] = 30.0
    tries: Annotated[
        int | None,
        Field(
            ge=1, description="Failures in a row that end the run; without it, attempts never end"
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
