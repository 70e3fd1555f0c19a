"""A `node-agent` of the version before the present one: `python -m tests.nodes.older_agent`.

It is the present agent, whose protocol ends with the older version. An agent that was really built
from older code takes part in `tests/launcher_runtime/test_two_versions.py` as well, where its
program is named.
"""

from nodes.protocol import messages

messages.PROTOCOL = messages.OLDEST_PROTOCOL

from nodes.cli import main  # noqa: E402 - every module reads the version when it is imported

if __name__ == "__main__":
    main()
