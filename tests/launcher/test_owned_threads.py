"""Threads whose end somebody owns: what they return or raise reaches whoever started them."""

from __future__ import annotations

import threading

import pytest

from launcher.threads import Repeated, in_thread


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3)])
def test_what_a_thread_raises_is_raised_where_it_is_awaited(raised: BaseException) -> None:
    def call() -> None:
        raise raised

    assert in_thread(call, "test").exception(20.0) is raised


def test_a_thread_that_runs_cannot_be_cancelled() -> None:
    go = threading.Event()
    thread = in_thread(lambda: go.wait(20.0), "test")
    assert not thread.cancel()
    go.set()
    assert thread.result(20.0)


def test_a_call_is_repeated_until_its_context_ends() -> None:
    calls: list[int] = []
    thrice, in_progress = threading.Event(), threading.Event()

    def call() -> None:
        in_progress.set()
        calls.append(len(calls))
        if len(calls) == 3:
            thrice.set()
        in_progress.clear()

    with Repeated(call, lambda: 0.0, "test"):
        assert thrice.wait(20.0)
    assert not in_progress.is_set()


def test_an_error_ends_the_repetition_and_is_raised_at_the_end_of_the_context() -> None:
    called = threading.Event()

    def call() -> None:
        assert not called.is_set(), "it is repeated after its error"
        called.set()
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"), Repeated(call, lambda: 0.0, "test"):
        assert called.wait(20.0)


def test_the_end_of_a_context_waits_for_a_call_that_hangs_as_long_as_it_may() -> None:
    go, begun = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go.wait(20.0)

    with Repeated(call, lambda: 0.0, "test", patience_s=0.0):
        assert begun.wait(20.0)
    assert not go.is_set(), "the context has ended before the call"
    go.set()
