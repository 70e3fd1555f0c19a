"""Checks the machine's network interfaces: their MTU, rate, duplex and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.doctor.findings import Finding, Severity
from nodes.host.kernel_files import number_of, text_of

SMALLEST_MTU = 1280
"""The least that IPv6 needs; below it, many networks do not work at all."""

SLOW_MBIT = 100

BAD_SHARE = 1e-3
"""The share of packets with errors from which a cable or a socket is suspect."""

FEW_PACKETS = 10_000


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """A network interface that is up, as in /sys/class/net.

    `speed_mbit` and `duplex` are None and empty where the interface has none (WLAN, virtual ones).
    """

    name: str
    mtu: int
    speed_mbit: int | None
    duplex: str
    packets: int
    errors: int


def read_interfaces(sys: Path = Path("/sys")) -> tuple[NetworkInterface, ...]:
    """Read the interfaces that are up, without loopback."""
    found = []
    for folder in sorted((sys / "class/net").glob("*")):
        state = text_of(folder / "operstate")
        if folder.name == "lo" or state not in ("up", "unknown") or not number_of(folder / "mtu"):
            continue
        speed = number_of(folder / "speed")
        counters = folder / "statistics"
        found.append(
            NetworkInterface(
                folder.name,
                number_of(folder / "mtu"),
                speed if speed > 0 else None,
                text_of(folder / "duplex"),
                number_of(counters / "rx_packets") + number_of(counters / "tx_packets"),
                sum(
                    number_of(counters / name)
                    for name in ("rx_crc_errors", "rx_frame_errors", "tx_carrier_errors")
                ),
            )
        )
    return tuple(found)


def judge_interfaces(interfaces: tuple[NetworkInterface, ...]) -> Iterator[Finding]:
    """Yield what is wrong with the interfaces."""
    for each in interfaces:
        if each.mtu < SMALLEST_MTU:
            yield Finding(
                Severity.WARNING,
                each.name,
                f"Its MTU is {each.mtu} bytes, so every tensor takes many packets.",
                f"sudo ip link set dev {each.name} mtu 1500",
            )
        if each.duplex == "half" or (each.speed_mbit or SLOW_MBIT) < SLOW_MBIT:
            yield Finding(
                Severity.WARNING,
                each.name,
                f"The link runs at {each.speed_mbit or '?'} Mbit/s, {each.duplex} duplex: a "
                "bad cable, or an old switch.",
                f"sudo ethtool {each.name}",
            )
        if each.packets > FEW_PACKETS and each.errors > BAD_SHARE * each.packets:
            yield Finding(
                Severity.WARNING,
                each.name,
                f"{each.errors} of {each.packets} packets had errors on the wire: change the "
                "cable or the port of the switch.",
                f"ip -s link show dev {each.name}",
            )


def check_network(_: object = None) -> Iterable[Finding]:
    """Check this machine's network interfaces."""
    return judge_interfaces(read_interfaces())
