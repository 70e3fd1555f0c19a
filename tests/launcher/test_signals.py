"""What has to be cleared up after SIGTERM is cleared up, however often it is sent."""

from __future__ import annotations

import os
import signal

import pytest

from launcher.signals import ENDING, stopping_on_signals, unwinding_on_signals


def told_to_end(first: signal.Signals, cleared_up: list[bool]) -> None:
    with unwinding_on_signals():
        try:
            os.kill(os.getpid(), first)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            cleared_up.append(True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unwinds_once_and_is_as_before_afterwards(number: signal.Signals) -> None:
    cleared_up: list[bool] = []
    with pytest.raises(SystemExit) as ended:
        told_to_end(number, cleared_up)
    assert cleared_up == [True]
    assert ended.value.code == 128 + number
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_stops_and_only_ctrl_c_counts_after_it(number: signal.Signals) -> None:
    stops: list[bool] = []
    with stopping_on_signals(lambda: stops.append(True)) as stopped:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert stops == [True]
    assert stopped.number == number
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_ctrl_c_may_call_something_else_the_second_time() -> None:
    interrupts: list[bool] = []
    with stopping_on_signals(lambda: None, again=lambda: interrupts.append(True)):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupts == [True]
