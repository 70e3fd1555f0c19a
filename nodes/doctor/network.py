"""Checks the machine's network interfaces: their MTU, rate, duplex and errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodes.doctor.findings import Finding, Severity

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
        state = _text(folder / "operstate")
        if folder.name == "lo" or state not in ("up", "unknown") or not _number(folder / "mtu"):
            continue
        speed = _number(folder / "speed")
        counters = folder / "statistics"
        found.append(
            NetworkInterface(
                folder.name,
                _number(folder / "mtu"),
                speed if speed > 0 else None,
                _text(folder / "duplex"),
                _number(counters / "rx_packets") + _number(counters / "tx_packets"),
                sum(
                    _number(counters / name)
                    for name in ("rx_crc_errors", "rx_frame_errors", "tx_carrier_errors")
                ),
            )
        )
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:  # the file exists, but this kind of interface has no such value
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else 0


def judge_interfaces(interfaces: tuple[NetworkInterface, ...]) -> list[Finding]:
    """Return what is wrong with the interfaces."""
    found = []
    for each in interfaces:
        if each.mtu < SMALLEST_MTU:
            found.append(
                Finding(
                    Severity.WARNING,
                    each.name,
                    f"Its MTU is {each.mtu} bytes, so every tensor takes many packets.",
                    f"sudo ip link set dev {each.name} mtu 1500",
                )
            )
        if each.duplex == "half" or (each.speed_mbit or SLOW_MBIT) < SLOW_MBIT:
            found.append(
                Finding(
                    Severity.WARNING,
                    each.name,
                    f"The link runs at {each.speed_mbit or '?'} Mbit/s, {each.duplex} duplex: a "
                    "bad cable, or an old switch.",
                    f"sudo ethtool {each.name}",
                )
            )
        if each.packets > FEW_PACKETS and each.errors > BAD_SHARE * each.packets:
            found.append(
                Finding(
                    Severity.WARNING,
                    each.name,
                    f"{each.errors} of {each.packets} packets had errors on the wire: change the "
                    "cable or the port of the switch.",
                    f"ip -s link show dev {each.name}",
                )
            )
    return found


def check_network(_: object = None) -> list[Finding]:
    """Check this machine's network interfaces."""
    return judge_interfaces(read_interfaces())
