"""What holds for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A shell ignores SIGINT for what it starts in the background, nohup ignores SIGHUP, and what is
# ignored stays so in all that is started from here; but both are among the things that are tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A change is judged by the same examples each time; `make properties` looks for new ones.
# How long an example takes says nothing on a busy machine.
BUSY = [HealthCheck.too_slow]
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=BUSY)
settings.register_profile("search", print_blob=True, deadline=None, suppress_health_check=BUSY)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _caches_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests begin with empty caches: kept times and plans depend on what ran here before."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))
