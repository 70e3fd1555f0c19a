"""Reads the address of an MQTT broker in the forms in which people write it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

_WITH_TLS = ("mqtts", "ssl")
_WITHOUT_TLS = ("mqtt", "tcp")
"""Schemes by which other programs write the address of a broker."""


def address_keys(host: str) -> dict[str, object]:
    """Return the keys that a host stands for; raises `ValueError` for an address of another kind.

    >>> address_keys("mqtts://broker.local:8884")
    {'host': 'broker.local', 'tls': True, 'port': 8884}
    """
    if "://" not in host:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdecimal() or (":" in name and not name.startswith("[")):
            return {"host": host}  # without a port; an address of IPv6 has colons
        return {"host": name.strip("[]"), "port": int(port)}
    try:
        parts = urlsplit(host)
        found: dict[str, object] = {"host": parts.hostname or "", "tls": parts.scheme in _WITH_TLS}
        if parts.port is not None:
            found["port"] = parts.port
    except ValueError:
        raise ValueError("host is not an address such as mqtt://broker.local:1883") from None
    if parts.scheme not in (*_WITH_TLS, *_WITHOUT_TLS):
        raise ValueError(f"host: {parts.scheme}:// is not mqtt:// or mqtts://; write one of these")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("host is the address of the broker alone; the topic is the key topic")
    if parts.username is not None:
        found["username"] = unquote(parts.username)
    if parts.password is not None:
        found["password"] = unquote(parts.password)
    return found
