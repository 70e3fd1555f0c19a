"""A `node-agent` behind forwarded ports: `python -m tests.nodes.forwarded_agent ANNOUNCED …`.

It is the present agent, and announces a data address that is that of its own machine, as one in a
container or behind NAT does: nobody else finds its data port there.
"""

import sys

from nodes import cli
from nodes.net.wire import Wire


class Inside(Wire):
    """The connections of an agent that knows only its own machine's numbers."""

    announced = ""

    def listen_data(self, address: str, descriptor: int | None = None) -> str:
        """Open the data port, and return the address that others are told."""
        super().listen_data(address, descriptor)
        return self.announced


def main() -> int:
    """Run the agent that the arguments describe, the first of which is what it announces."""
    Inside.announced = sys.argv.pop(1)
    cli.Wire = Inside  # type: ignore[misc]
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
