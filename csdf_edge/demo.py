"""`csdf-edge demo`: run the example of handwritten digits, which the wheel contains.

So a wheel shows what the project does without a checkout:

    uvx --from './csdf_edge-0.1.0-py3-none-any.whl[launch,cpu]' csdf-edge demo

`launch` starts the three agents on this machine, divides a trained network over them, streams 360
images through it and compares the results with those of the whole model.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = (HERE / "digits", HERE.parent / "examples" / "digits")
"""Where a wheel has the example, and where a checkout has it."""


USAGE = """\
usage: csdf-edge demo [OPTION...]

Classifies 360 handwritten digits: starts three agents on this machine, divides a trained network
over them, and compares the results with the whole model's. Options are those of `launch`, such as
--verbose, --json or --strategy sequential; launch --help lists them.
"""


def main() -> int:
    """Run `launch` on the example, with the options of the command line, and exit as it does."""
    if any(each in sys.argv[1:] for each in ("--help", "-h")):
        sys.stdout.write(USAGE)
        return 0
    folder = next((each for each in FOLDERS if (each / "cluster.yaml").is_file()), None)
    if folder is None:
        sys.stderr.write(
            f"demo: {FOLDERS[0]} is missing: this installation is not complete; "
            "install csdf-edge again\n"
        )
        return 2
    from launcher.commands.launch import main as launch  # noqa: PLC0415 - slow to import

    launch([str(folder / "cluster.yaml"), *sys.argv[1:]])
    return 0
