"""Agents and connections to them, all of which end with the test that has asked for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq

from tests.nodes.deploying import Launcher
from tests.nodes.speaker import AgentProcess, Speaker

AnySpeaker = TypeVar("AnySpeaker", bound=Speaker)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(tmp_path: Path, stack: ExitStack) -> Callable[..., AgentProcess]:
    """Starts agents, which share one cache."""

    def start(*arguments: str, **options: Any) -> AgentProcess:
        agent = AgentProcess(tmp_path / "cache", *arguments, **options)
        stack.callback(agent.end)
        return agent

    return start


@pytest.fixture
def context(stack: ExitStack) -> zmq.Context[Any]:
    context = zmq.Context()
    stack.callback(context.destroy, 0)
    return context


@pytest.fixture
def dial(context: zmq.Context[Any], stack: ExitStack) -> Callable[..., AnySpeaker]:
    """Connects to a port of an agent, by default as a launcher."""

    def dial(address: str, kind: type[AnySpeaker] = Launcher, **options: Any) -> AnySpeaker:
        speaker = kind(context, address, **options)
        stack.callback(speaker.close)
        return speaker

    return dial
