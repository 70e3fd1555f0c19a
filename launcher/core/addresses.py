"""Addresses as the transport writes them: `tcp://HOST:PORT` and `ipc://PATH`."""

from __future__ import annotations

from nodes.protocol.addresses import host_of, is_loopback

__all__ = ["data_address", "host_of", "is_loopback"]


def data_address(offered: str, reached: str | None) -> str:
    """The address at which peers reach a data port that its agent offers as `offered`.

    A host of `0.0.0.0`, `*` or `::` there becomes `reached`, the host at which the agent itself was
    reached.
    """
    if reached is None or host_of(offered) not in ("0.0.0.0", "*", "::"):  # noqa: S104 - no binding
        return offered
    _, _, port = offered.rpartition(":")
    return f"tcp://[{reached}]:{port}" if ":" in reached else f"tcp://{reached}:{port}"
