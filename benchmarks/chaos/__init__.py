"""Injects faults into real agents, and counts lost frames: `python -m benchmarks.chaos`.

`bed` has the boards, the plan and the stream; `ledger` counts the results; `faults` and `strangers`
inject faults, `proxy` damages bytes on their way; `cases` lists the faults of each case with the
outcome that it must have.
"""
