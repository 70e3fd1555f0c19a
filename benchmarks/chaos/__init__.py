"""Faults on real agents, and whether a single frame is lost: `python -m benchmarks.chaos`.

`bed` has the boards, the plan and the stream; `ledger` counts what came of it; `faults` and
`strangers` do harm, `proxy` harms bytes on their way; `cases` says what is done when, and what must
come of it.
"""
