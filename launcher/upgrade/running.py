"""Performs an upgrade: the steps that the core asks for, by ssh and by greeting the agents."""

from __future__ import annotations

import asyncio
import shlex
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from launcher.config.access import Access
from launcher.errors import BadInputError, LauncherError
from launcher.progress import Say
from launcher.upgrade.boards import SshBoard
from launcher.upgrade.core import (
    Event,
    Perform,
    StepFailed,
    StepSucceeded,
    Upgrade,
    UpgradeEnded,
    UpgradeStep,
)
from launcher.upgrade.greeting import ask, wait_until_healthy
from launcher.upgrade.layout import Command, InstallLayout, is_version
from launcher.upgrade.ssh import BoardError, BoardShell, connected

SHORT_S = 60.0
"""How long a command may take that changes a few files."""

TRIAL_S = 180.0
"""How long a trial may take: some engines build for a minute what they compute."""

LONG_S = 1800.0
"""How long installing may take: some boards have slow cards, and wheels are large."""


@dataclass(frozen=True)
class UpgradeSettings:
    """How boards are upgraded.

    `restart` restarts a board's agents, and returns when they are ready or have failed.
    """

    layout: InstallLayout
    access: Access
    restart: Command
    patience_s: float


@dataclass
class _Looked:
    """The state of a board before the upgrade."""

    former: str
    as_root: bool
    in_use: dict[str, bool] = field(default_factory=dict)


async def upgrade(boards: Sequence[SshBoard], settings: UpgradeSettings, say: Say) -> UpgradeEnded:
    """Upgrade boards one after the other; `say` takes a sentence about each step.

    Boards are examined side by side, before any of them is changed.
    """
    by_name = {board.name: board for board in boards}
    core = Upgrade(tuple(by_name))
    performer = _Performer(by_name, settings, say)
    events: deque[Event] = deque()
    actions = core.begin()
    while True:
        performs: list[Perform] = []
        for action in actions:
            if isinstance(action, UpgradeEnded):
                return action
            performs.append(action)
        events.extend(await asyncio.gather(*(performer.perform(each) for each in performs)))
        actions = core.handle(events.popleft())


class _Performer:
    """Performs steps, and remembers the boards' former states."""

    def __init__(self, boards: dict[str, SshBoard], settings: UpgradeSettings, say: Say) -> None:
        self._boards = boards
        self._settings = settings
        self._say = say
        self._looked: dict[str, _Looked] = {}

    async def perform(self, action: Perform) -> Event:
        """Do one step; whatever fails is an event."""
        board, step = self._boards[action.board], action.step
        if step is not UpgradeStep.LOOK:
            self._say(f"{board.name}: {step.value}")
        try:
            is_upgraded = await self._step(board, step)
        except LauncherError as error:
            self._say(f"{board.name}: could not {step.value}: {error}")
            return StepFailed(board.name, step, str(error))
        return StepSucceeded(board.name, step, is_upgraded)

    async def _step(self, board: SshBoard, step: UpgradeStep) -> bool:
        if step is UpgradeStep.CHECK_BACK:
            await self._check(board, "")
            return False
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(connected(board.ssh))
            if step is UpgradeStep.LOOK:
                return await self._look(board, BoardShell(connection))
            shell = BoardShell(connection, self._looked[board.name].as_root)
            await self._change(board, step, shell)
        return False

    async def _look(self, board: SshBoard, shell: BoardShell) -> bool:
        layout = self._settings.layout
        try:
            former = (await shell.run(layout.look(), SHORT_S)).strip()
        except BoardError as error:
            raise BoardError(
                f"{layout.current} does not exist; install the agent once as deploy/README.md "
                f"says ({error})"
            ) from error
        if not is_version(former):
            raise BoardError(f"{layout.current} points to {former!r}, not to versions/…")
        may_write = await shell.succeeds(("test", "-w", str(layout.prefix)), SHORT_S)
        looked = _Looked(former, as_root=not may_write)
        if looked.as_root and not await shell.succeeds(("sudo", "-n", "true"), SHORT_S):
            raise BoardError(
                f"the user may not write {layout.prefix}, nor use sudo without a password; log in "
                "as another user (`ssh: USER@HOST` of the node), or allow sudo"
            )
        for node, address in board.nodes:
            health = await asyncio.to_thread(ask, node, address, self._settings.access)
            if health.fault:
                raise BoardError(f"its agent does not work before the upgrade: {health.fault}")
            looked.in_use[node] = health.in_use
        self._looked[board.name] = looked
        return former == layout.target

    async def _change(self, board: SshBoard, step: UpgradeStep, shell: BoardShell) -> None:
        layout, looked = self._settings.layout, self._looked[board.name]
        match step:
            case UpgradeStep.COPY:
                await self._copy(shell)
            case UpgradeStep.BUILD:
                for command in layout.build():
                    await shell.run(command, LONG_S)
            case UpgradeStep.TRY:
                await self._try(shell)
            case UpgradeStep.SWITCH | UpgradeStep.SWITCH_BACK:
                target = layout.target if step is UpgradeStep.SWITCH else looked.former
                for command in layout.switch(target):
                    await shell.run(command, SHORT_S)
            case UpgradeStep.RESTART | UpgradeStep.RESTART_BACK:
                await shell.run(self._settings.restart, self._settings.patience_s)
            case UpgradeStep.CHECK:
                await self._check(board, layout.wheel.version)
                await shell.run(layout.find_process(), SHORT_S)
            case UpgradeStep.PRUNE:
                listed = await shell.run(layout.list_versions(), SHORT_S)
                if (removal := layout.prune(listed, looked.former)) is not None:
                    await shell.run(removal, SHORT_S)
            case UpgradeStep.DISCARD:
                await shell.run(layout.discard(), SHORT_S)
            case _:
                raise AssertionError(step)

    async def _copy(self, shell: BoardShell) -> None:
        layout = self._settings.layout
        for command in layout.make_folder():
            await shell.run(command, SHORT_S)
        await shell.run(layout.receive(), LONG_S, layout.wheel.path.read_bytes())
        digest = (await shell.run(layout.digest(), SHORT_S)).split()
        if digest[:1] != [layout.wheel.digest]:
            raise BoardError("the wheel arrived with another digest")

    async def _try(self, shell: BoardShell) -> None:
        layout = self._settings.layout
        await shell.run(layout.describe(), SHORT_S)
        said = (await shell.run(layout.say_version(), SHORT_S)).strip()
        if said != f"node-agent {layout.wheel.version}":
            raise BoardError(
                f"the wheel is version {layout.wheel.version}, its agent says {said!r}"
            )
        await shell.run(layout.compute(), TRIAL_S)

    async def _check(self, board: SshBoard, version: str) -> None:
        """Wait until all agents of a board work as they did before."""
        looked, settings = self._looked[board.name], self._settings
        for node, address in board.nodes:
            fault = await asyncio.to_thread(
                wait_until_healthy,
                node,
                address,
                settings.access,
                version,
                looked.in_use[node],
                settings.patience_s,
            )
            if fault:
                raise BoardError(fault)


def restart_command(text: str) -> Command:
    """Return the words of `--restart`; raises `BadInputError`."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise BadInputError(f"--restart {text!r}: {error}") from error
    if not words:
        raise BadInputError("--restart: name a command, such as 'systemctl restart node-agent'")
    return words
