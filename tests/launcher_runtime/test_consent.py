"""SIGUSR1 is taken as consent while a run waits for it, and is harmless at any other time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from launcher.run.consent import hearing_consent

LATE = """
import os, signal
from launcher.commands import launch
from launcher.run.consent import hearing_consent

def perform(request, as_json):
    agree = lambda: os.kill(os.getpid(), signal.SIGUSR1)
    agree()
    with hearing_consent():
        agree()
    agree()
    return 0

launch._launch = perform
launch.main(["cluster.yaml"])
"""


def test_a_launcher_survives_consent_before_and_after_its_run() -> None:
    assert subprocess.run([sys.executable, "-c", LATE], check=False).returncode == 0


def test_consent_is_heard_and_what_was_before_is_restored() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with hearing_consent() as consent:
        assert not select.select([consent.descriptor], [], [], 0)[0]
        os.kill(os.getpid(), signal.SIGUSR1)
        assert select.select([consent.descriptor], [], [], 5)[0]
        consent.take()
    assert signal.getsignal(signal.SIGUSR1) is before
