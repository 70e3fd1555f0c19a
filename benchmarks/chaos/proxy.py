"""Runs a TCP proxy that damages the bytes it passes on: `python -m benchmarks.chaos.proxy --help`.

It listens at one address and passes everything to another, at each of the ports. After a line on
standard input it damages what goes through one of the ports, in both directions: it can `flip` a
bit of every piece, `cut` the connection in the middle of a message, `drop` a few bytes of every
piece, or `add` some. It ends when its standard input is closed.
"""

import argparse
import contextlib
import random
import socket
import sys
import threading

PIECE = 1 << 16


class Harm:
    """Changes pieces once it is switched on."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._random = kind, random.Random(seed)
        self.on = False

    def __call__(self, piece: bytes) -> bytes | None:
        """What is passed on instead; None: the connection ends here."""
        if not self.on:
            return piece
        at = self._random.randrange(len(piece))
        match self._kind:
            case "flip":
                flipped = bytes((piece[at] ^ (1 << self._random.randrange(8)),))
                return piece[:at] + flipped + piece[at + 1 :]
            case "cut":
                return None
            case "drop":
                return piece[:at] + piece[at + 3 :]
            case _:
                return piece[:at] + self._random.randbytes(5) + piece[at:]


def listen(at: str, to: str, port: int, harm: Harm | None) -> None:
    """Pass on what comes to a port of `at` to the same port of `to`, from now on."""
    server = socket.create_server((at, port))

    def accept() -> None:
        while True:
            near, _ = server.accept()
            try:
                far = socket.create_connection((to, port), 2.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for source, other in ((near, far), (far, near)):
                threading.Thread(target=_pass, args=(source, other, harm), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _pass(source: socket.socket, to: socket.socket, harm: Harm | None) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            changed = piece if harm is None else harm(piece)
            if changed is None:
                to.sendall(piece[: len(piece) // 2])
                break
            to.sendall(changed)
    for end in (source, to):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("at", help="address to listen at")
    parser.add_argument("to", help="address to pass on to")
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--harm", choices=("flip", "cut", "drop", "add"), required=True)
    parser.add_argument("--on", type=int, required=True, help="the port that is harmed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    harm = Harm(options.harm, options.seed)
    for port in options.ports:
        listen(options.at, options.to, port, harm if port == options.on else None)
    print("ready", flush=True)
    for _ in sys.stdin:
        harm.on = True


if __name__ == "__main__":
    main()
