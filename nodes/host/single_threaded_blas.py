"""Keeps NumPy's linear algebra to one thread; to be imported before NumPy.

Landlock holds for the thread that asks for it and what that starts (`nodes.host.sandbox`). OpenBLAS
starts a thread per CPU when NumPy is imported, so these would stay outside, and an agent has no use
for them: its engine computes.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
