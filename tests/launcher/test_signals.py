"""What has to be cleared up after SIGTERM is cleared up, however often it is sent."""

from __future__ import annotations

import os
import signal

import pytest

from launcher.signals import unwinding_on_signals


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
