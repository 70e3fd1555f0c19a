"""Which version a request is bound to, whatever changes while it is under way."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from launcher.run.feed import Feed
from launcher.serve import routes as module
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.routes import Routes, ServedVersion
from launcher.serve.tensors import ServedModel


def version(number: int) -> ServedVersion:
    live = cast(Feed, SimpleNamespace(ended=Future()))
    return ServedVersion(ServedModel("digits", {}, {}, str(number)), live)


def test_a_request_stays_with_the_version_that_it_was_bound_to() -> None:
    async def run() -> None:
        one, two = version(1), version(2)
        routes, idle = Routes([one]), []
        async with routes.bound("digits") as served:
            routes.route("digits", two)
            one.when_idle(lambda: idle.append(1))
            assert served is one
            assert not idle
            async with routes.bound("digits") as later:
                assert later is two
        assert idle == [1]

    asyncio.run(run())


def test_a_version_that_serves_again_is_not_reported_idle() -> None:
    async def run() -> None:
        one, idle = version(1), []
        routes = Routes([one])
        async with routes.bound("digits"):
            routes.route("digits", version(2))
            one.when_idle(lambda: idle.append(1))
            routes.route("digits", one)
        assert not idle

    asyncio.run(run())


def test_requests_wait_for_a_version_and_are_refused_if_none_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask(routes: Routes, held_bytes: int = 0) -> str:
        async with routes.bound("digits", "", held_bytes) as served:
            return served.model.version

    async def run() -> None:
        routes = Routes()
        routes.expect("digits")
        assert not routes.is_ready
        asked = [asyncio.create_task(ask(routes)) for _ in range(3)]
        await asyncio.wait(asked, timeout=0)  # they begin to wait
        monkeypatch.setattr(module, "MOST_WAITING", 3)
        with pytest.raises(RequestError, match="3 requests wait already") as raised:
            await ask(routes)
        assert raised.value.refusal is Refusal.UNAVAILABLE
        monkeypatch.undo()
        asked.append(asyncio.create_task(ask(routes, module.MOST_WAITING_BYTES)))
        await asyncio.wait(asked, timeout=0)
        with pytest.raises(RequestError, match="4 requests wait already"):
            await ask(routes, 1)
        routes.route("digits", version(2))
        assert await asyncio.gather(*asked) == ["2", "2", "2", "2"]
        assert routes.is_ready
        routes.route("digits", None)
        monkeypatch.setattr(module, "WAIT_S", 0.01)
        with pytest.raises(RequestError, match="try again later"):
            await ask(routes)

    asyncio.run(run())


def test_a_version_that_does_not_serve_is_not_found() -> None:
    async def run() -> None:
        routes = Routes([version(2)])
        for name, wanted in (("digits", "1"), ("cats", "")):
            with pytest.raises(RequestError) as raised:
                async with routes.bound(name, wanted):
                    pass
            assert raised.value.refusal is Refusal.NOT_FOUND

    asyncio.run(run())
