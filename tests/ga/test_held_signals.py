"""Signals wait while a study is written, and none is lost."""

import signal

import pytest

from ga.sweep.held_signals import HeldSignals


def test_a_signal_waits_until_it_may_interrupt() -> None:
    reached = []

    def write() -> None:
        with HeldSignals() as held:
            signal.raise_signal(signal.SIGINT)
            reached.append("held")
            with held.free():
                reached.append("free")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert reached == ["held"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_it_may_interrupt_it_does_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), HeldSignals() as held, held.free():
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_came_last_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), HeldSignals():
        signal.raise_signal(signal.SIGINT)


def test_a_signal_without_a_handler_keeps_its_default() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with HeldSignals():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
