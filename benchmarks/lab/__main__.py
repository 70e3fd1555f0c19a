"""Runs the command `python -m benchmarks.lab`."""

import sys

from benchmarks.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
