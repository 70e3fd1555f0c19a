"""`launch up` while Triton's clients ask all the time, and its commands change what it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.service.server import Up, answers, frames, write_cluster, write_version

pytest.importorskip("tritonclient.grpc.aio", reason="needs tritonclient[grpc,http]")
from benchmarks.serving.clients import Clients

pytestmark = pytest.mark.slow

FRAMES = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in (1, 2):
        write_version(tmp_path, version)
    write_cluster(tmp_path, ("digits", 1))
    return tmp_path


@pytest.fixture
def up(folder: Path) -> Iterator[Up]:
    up = Up(folder, folder / "cluster.yaml")
    up.read_until("version 1 of digits serves")
    yield up
    if up.process.poll() is None:
        assert up.end() == 0


def clients(up: Up, model: str = "digits") -> Clients:
    wanted = {version: answers(up.folder / f"digits{version}.onnx", FRAMES) for version in (1, 2)}
    addresses = [("http", up.http), ("grpc", up.grpc)] * 4
    return Clients(addresses, model, frames(FRAMES), wanted, pause_s=0.2)


async def run(up: Up, *arguments: str) -> None:
    code, answer = await asyncio.to_thread(up.command, *arguments)
    assert code == 0, answer


def test_no_request_fails_and_each_is_answered_by_one_version_whatever_changes(up: Up) -> None:
    folder = up.folder
    cluster = str(folder / "cluster.yaml")

    async def change() -> Clients:
        async with clients(up) as asking:
            write_cluster(folder, ("digits", 2))
            await run(up, "apply", cluster)
            await run(up, "rollback")
            write_cluster(folder, ("digits", 1), ("other", 2))
            await run(up, "apply", cluster)
            async with clients(up, "other") as others:
                await run(up, "restart", "n0")
            assert (others.asked.errors, others.asked.wrong) == ({}, 0)
            assert {answer.version for answer in others.asked.answers} == {2}
            write_cluster(folder, ("digits", 1))
            await run(up, "apply", cluster)
        return asking

    asked = asyncio.run(change()).asked
    assert (asked.errors, asked.wrong) == ({}, 0)
    versions = [answer.version for answer in sorted(asked.answers, key=lambda a: a.sent_s)]
    assert set(versions) == {1, 2}
    assert (versions[0], versions[-1]) == (1, 1)
    code, status = up.command("status")
    assert (code, status["state"], status["generation"]) == (0, "ok", 5)
    assert [model["name"] for model in status["models"]] == ["digits"]
