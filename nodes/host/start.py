"""Run a module as `python -m` does, but never from the current folder.

`python /…/nodes/host/start.py MODULE ARGUMENT…` (`nodes.host.process.python_command`). `python -m`
searches the current folder first, which may be a stranger's: a `json.py` there would be run.
(`python -P` does not, but Python 3.10 does not know it.) The module's package is the one that this
file is in, also where Python would find another.
"""

import sys

if not getattr(sys.flags, "safe_path", False):  # or else this file's own folder is not there
    del sys.path[0]

import os
import runpy
from importlib.util import find_spec

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _is_found() -> bool:
    """Return whether Python finds this very file's package."""
    spec = find_spec("nodes")
    places = spec.submodule_search_locations if spec is not None else None
    return any(os.path.samefile(place, _PACKAGE) for place in places or ())


if __name__ == "__main__":
    if not _is_found():
        sys.path.insert(0, os.path.dirname(_PACKAGE))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
