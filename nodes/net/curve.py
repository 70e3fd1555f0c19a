"""Encrypt and authenticate ZeroMQ connections by CURVE, and make key pairs (`node-agent keygen`).

With CURVE (ZeroMQ RFC 25 and 26), both ends prove that they own the secret of their public key, and
all that follows is encrypted and authenticated with session keys, which both ends forget when the
connection closes. Such a connection is called *guarded* here. The dialling end accepts one public
key only, that of the node which it dials. The listening end has the `Authenticator` check the
dialling end's key: a ZAP handler (ZeroMQ RFC 27), whose socket is in the agent's one poll instead
of a separate thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from nodes.host.folders import user_folder
from nodes.net.keys import LAUNCHERS, NODES, PUBLIC, Keyring, KeysError, write_secret
from nodes.protocol.addresses import host_of

STATUS_ADMITTED, STATUS_REFUSED = b"200", b"400"
OVERHEAD_BYTES = 64
"""Encryption makes a message longer by less than this."""

GREETING_BYTES, WELCOME_BYTES, ERROR_BYTES = 64, 170, 12
"""Bytes that a listening end sends before it admits the other end: its greeting, a WELCOME in
answer to HELLO (which needs the listening end's public key), and an ERROR for a key that is not
admitted. An admitted end receives READY instead, which is longer.
"""

HANDSHAKE_BYTES = 4096
"""The most bytes that a dialling end may send before it is admitted; agents and launchers send some
600."""


def new_pair() -> tuple[bytes, bytes]:
    """Return a new key pair (public, secret) of 32 bytes each.

    Raises `KeysError` if ZeroMQ was built without CURVE.
    """
    _require_curve()
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)


def public_of(secret: bytes) -> bytes:
    """Return the public key of a secret one; raises `KeysError` if ZeroMQ has no CURVE."""
    _require_curve()
    return z85.decode(zmq.curve_public(z85.encode(secret)))


def _require_curve() -> None:
    if not zmq.has("curve"):
        raise KeysError("this machine's ZeroMQ was built without CURVE: install pyzmq from PyPI")


def secure_listener(socket: zmq.Socket[Any], secret: bytes, port: str) -> None:
    """Make a listening socket take guarded connections only, from keys that are admitted.

    Call it before the socket is bound. `port` is the name of the port for the `Authenticator` of
    the socket's context; without an `Authenticator`, every connection is refused.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, port)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def secure_dialler(socket: zmq.Socket[Any], secret: bytes, server: bytes) -> None:
    """Make a dialling socket use this key, and connect only to the owner of the key `server`.

    Call it before the socket is connected.
    """
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public_of(secret))
    socket.setsockopt(zmq.CURVE_SERVERKEY, server)


def sender_key(part: zmq.Frame) -> bytes | None:
    """Return the public key of a part's sender; None if the connection is not guarded."""
    try:
        return bytes.fromhex(str(part.get("User-Id")))
    except (zmq.ZMQError, ValueError):
        return None


class Authenticator:
    """Decides which connections are admitted to the guarded sockets of its context.

    Create it before these sockets. `admits` is called with the port's name and a public key.
    """

    def __init__(self, context: zmq.Context[Any], admits: Callable[[str, bytes], bool]) -> None:
        self._admits = admits
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> list[str]:
        """Answer all requests that wait; return a sentence for each connection that is refused."""
        refused: list[str] = []
        while True:
            try:
                request = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return refused
            version, number, port, address, _, mechanism, *credentials = request
            key = credentials[0] if mechanism == b"CURVE" and len(credentials) == 1 else b""
            is_admitted = self._admits(port.decode("ascii", "replace"), key)
            status = STATUS_ADMITTED if is_admitted else STATUS_REFUSED
            name = key.hex().encode() if is_admitted else b""
            self.socket.send_multipart([version, number, status, b"", name, b""])
            if not is_admitted:
                refused.append(
                    f"{address.decode('ascii', 'replace')} dialled the {port.decode()} port with "
                    f"the key {key.hex()}, which is not admitted there"
                )

    def close(self) -> None:
        """Admit no further connection."""
        with contextlib.suppress(zmq.ZMQError):
            self.socket.close()


class Context:
    """The ZeroMQ context of one agent or one run; close it after all of its sockets.

    With a `keyring`, all TCP connections to its listening sockets are guarded, and the socket of
    its `authenticator` must also be polled. A context whose sockets only dial needs no keyring.
    """

    def __init__(self, keyring: Keyring | None = None) -> None:
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.keyring = keyring
        self.authenticator: Authenticator | None = None
        if keyring is not None:
            public_of(keyring.secret)
            self.authenticator = Authenticator(self.zmq, keyring.admits)

    def keys_for(self, address: str) -> Keyring | None:
        """Return the keyring if connections at this address are guarded, else None."""
        return None if host_of(address) is None else self.keyring

    def close(self) -> None:
        """Wait for lingering messages to be sent, and end ZeroMQ's own thread."""
        if self.authenticator is not None:
            self.authenticator.close()
        self.zmq.term()


def default_keys() -> Path:
    """Return the folder of an agent's keys unless `--keys` names another one."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "csdf-edge" / "keys"


def keygen(arguments: Sequence[str]) -> int:
    """Run `node-agent keygen`, which makes one key pair in a folder; return the exit code."""
    options = _parser().parse_args(arguments)
    folder: Path = options.out
    try:
        public, secret = new_pair()
        write_secret(folder, options.name, secret, public)
        for part in (LAUNCHERS, NODES):
            (folder / part).mkdir(mode=0o755, exist_ok=True)
    except (KeysError, OSError) as error:
        sys.stderr.write(f"node-agent keygen: {error}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps({"folder": str(folder), "public_key": public.hex()}) + "\n")
        return 0
    sys.stdout.write(
        f"made a key pair in {folder}\n"
        f"public key: {public.hex()}\n"
        f"Next: copy {folder / PUBLIC} to the launcher and the other nodes, as "
        f"{NODES}/{options.name}.pub in their folders of keys. Copy the launcher's public key to "
        f"{folder / LAUNCHERS}/launcher.pub, and those of the other nodes to "
        f"{folder / NODES}/NAME.pub, with NAME as in cluster.yaml.\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-agent keygen",
        description="Make a key pair for this machine. `launch cluster.yaml --make-keys` makes "
        "the keys of a whole cluster at once.",
        epilog="Exit codes: 0 if the pair was made, 2 if not, for example because the folder "
        "already has a secret key.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=default_keys(),
        metavar="DIR",
        help="folder for the keys; it is created if it is missing (default: %(default)s)",
    )
    parser.add_argument(
        "--name",
        default=os.uname().nodename,
        help="the node's name, written into the files as a comment (default: this machine's name)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the folder and the public key as a JSON object"
    )
    return parser
