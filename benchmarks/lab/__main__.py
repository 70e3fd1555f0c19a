"""Runs the command `python -m benchmarks.lab`."""

from benchmarks.lab.cli import main

if __name__ == "__main__":
    main()
