"""What holds for all tests."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A shell ignores SIGINT for what it starts in the background, nohup ignores SIGHUP, and what is
# ignored stays so in all that is started from here; but both are among the things that are tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests and modules stay until the end, so no garbage is looked for while they are collected.
gc.disable()

# A change is judged by the same examples each time; `make properties` looks for new ones.
# How long an example takes says nothing on a busy machine.
# Examples may share the folder of their test.
ALLOWED = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
]
COMMON = settings(deadline=None, suppress_health_check=ALLOWED)
settings.register_profile("repeatable", COMMON, derandomize=True, max_examples=30)
settings.register_profile("search", COMMON, print_blob=True)
settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two workers for each CPU for `auto`, since slow tests often wait for processes, and
    one for `logical`."""
    cpus = os.cpu_count() or 1
    return 2 * cpus if config.option.numprocesses == "auto" else cpus


def pytest_collection_finish() -> None:
    """Keep tests and modules, which stay until the end, out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _caches_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests begin with empty caches: kept times and plans depend on what ran here before."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Each test begins with the usual umask; an agent that runs in this process narrows it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def quick_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies in this process search for a moment only, where any plan will do."""
    from tests.quick_searches import QUICK  # noqa: PLC0415 - few tests need all strategies

    monkeypatch.setattr("ga.strategies.STRATEGIES", QUICK)
