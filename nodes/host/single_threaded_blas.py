"""Keep NumPy's linear algebra to one thread; import this module before NumPy.

OpenBLAS starts a thread per CPU when NumPy is imported. Landlock would not restrict these threads,
because they run already when the agent calls it (`nodes.host.sandbox`), and an agent does not need
them: its engine computes.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
