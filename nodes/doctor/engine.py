"""Checks the engine of an agent: which engines can be used, and whether one computes correctly.

The engine computes in a separate process (`nodes.doctor.engine_trial`), because a broken driver may
crash or hang it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodes.core.engines import AUTO, EngineLackingError, resolve
from nodes.doctor.findings import Finding, Severity
from nodes.doctor.setup import AgentSetup
from nodes.executors.base import ExecutorError
from nodes.executors.registry import offers
from nodes.host.process import install_command, python_command
from nodes.protocol.messages import EngineChoice, EngineOffer

TRIAL_S = 60.0
"""How long the trial may take: TensorRT builds an engine, and a Jetson loads CUDA for 10 s."""

LATE = f"it has not ended within {TRIAL_S:g} s, so it hangs, or this machine is very slow or busy"


@dataclass(frozen=True, slots=True)
class EngineReading:
    """The engines that are offered, the one that an agent would take, and how its trial ended.

    `lacking` says why no engine fits the options; then nothing was tried. `failure` is why the
    trial failed, empty if it computed correctly; `LATE` if it was ended after `TRIAL_S`.
    """

    offers: tuple[EngineOffer, ...]
    asked: EngineChoice
    chosen: EngineChoice | None
    lacking: str = ""
    failure: str = ""


def read_engine(engine: str, device: str) -> EngineReading:
    """Find the engine for these options, and have it compute a tiny network."""
    asked = EngineChoice(engine, device, AUTO)
    try:
        found = offers(engine)
    except ExecutorError as error:
        return EngineReading((), asked, None, str(error))
    try:
        chosen = resolve(asked, found)
    except EngineLackingError as error:
        return EngineReading(found, asked, None, f"this machine {error}")
    return EngineReading(found, asked, chosen, failure=_trial(chosen))


def _trial(chosen: EngineChoice) -> str:
    """Return why an engine fails to compute; empty if it computes correctly."""
    with subprocess.Popen(
        _trial_command(chosen),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TRIAL_S)
        except subprocess.TimeoutExpired:
            return LATE
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode < 0:
        return f"the engine crashed ({signal.Signals(-process.returncode).name})"
    try:
        return str(json.loads(output)["failure"])
    except (ValueError, KeyError, TypeError):
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"the engine's process ended with exit code {process.returncode}: {' '.join(last)}"


def _trial_command(chosen: EngineChoice) -> list[str]:
    module = "nodes.doctor.engine_trial"
    return python_command(module, chosen.engine, chosen.device, chosen.precision)


def judge_engine(reading: EngineReading) -> Iterator[Finding]:
    """Yield what is wrong with the engine."""
    if reading.chosen is None:
        yield Finding(
            Severity.ERROR,
            f"engine {reading.asked.engine}, device {reading.asked.device}",
            f"It cannot be used: {reading.lacking}.",
            _install(reading.asked.engine, reading.offers),
        )
        return
    if reading.failure:
        chosen = reading.chosen
        yield Finding(
            Severity.ERROR,
            f"engine {chosen.engine} on {chosen.device}",
            f"It failed to compute a network of one layer: {reading.failure}.",
            # By hand, without a limit, the trial shows which of both it is.
            shlex.join(_trial_command(chosen))
            if reading.failure == LATE
            else _reinstall(chosen.engine),
        )


PACKAGES = {
    "onnxruntime": "csdf-edge[cpu]",
    "openvino": "csdf-edge[openvino]",
    "tensorrt": "csdf-edge[tensorrt]",
    "tvm": "csdf-edge[tvm]",
}
"""The pip requirement that installs each engine."""


def _install(engine: str, found: Sequence[EngineOffer]) -> str:
    """Return the command that installs the engine, or shows the alternatives."""
    if engine in PACKAGES:
        return install_command(PACKAGES[engine])
    if engine == AUTO and all(offer.missing for offer in found):
        return install_command(PACKAGES["onnxruntime"])
    return "node-agent --describe"


def _reinstall(engine: str) -> str:
    package = {"tvm": "apache-tvm"}.get(engine, engine if engine in PACKAGES else "onnxruntime")
    return install_command("--force-reinstall", package)


def check_engine(setup: AgentSetup) -> Iterable[Finding]:
    """Check the engine of an agent with these options."""
    return judge_engine(read_engine(setup.engine, setup.device))
