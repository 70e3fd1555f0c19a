"""The options of an agent that its checks depend on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodes.core.engines import AUTO
from nodes.protocol.addresses import is_exposed
from nodes.quotas import Quotas


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """An agent as its command line describes it.

    `version` is that of this package. `data` is None if it follows from `listen`. `keys` is the
    folder of keys that it uses or would use, None with `--insecure`.
    """

    name: str
    version: str
    listen: str
    data: str | None
    keys: Path | None
    cache: Path
    quotas: Quotas
    engine: str = AUTO
    device: str = AUTO

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that it listens on, as far as they are known before it does."""
        if self.data is not None:
            return self.listen, self.data
        if self.listen.startswith("ipc://"):
            return self.listen, f"{self.listen}.data"
        host, _, port = self.listen.rpartition(":")
        return (self.listen,) if port == "0" else (self.listen, f"{host}:{int(port) + 1}")

    @property
    def is_exposed(self) -> bool:
        """Whether other machines may reach it."""
        return any(map(is_exposed, self.addresses))
