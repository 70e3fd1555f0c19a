"""Runs the parent process of a node's slots: waits, starts agents, passes signals on.

`nodes.core.slots` decides. The parent accepts no connection and reads nothing from the network: it
sees only that a connection waits at a port. It sleeps in one poll of the ports whose agents do not
run, the agents' reports and the signals.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time

from nodes.core import slots as core
from nodes.core.reactor import Reactor
from nodes.host.systemd import ALIVE, READY, ServiceManager
from nodes.slots.agent_process import STDIN, AgentProcess
from nodes.slots.ports import SlotPorts
from nodes.slots.settings import Settings

SILENCE_S = 120.0
"""How long an agent may be silent, unless systemd's watchdog of the service says otherwise."""

LONGEST_NAME = 190
"""Characters of the node's name in those of its agents, which may have 200."""

LEVELS = {"info": logging.INFO, "warning": logging.WARNING}

log = logging.getLogger("node-agent")


class Parent:
    """The parent of the agents of all slots; `run` returns the exit code."""

    def __init__(self, settings: Settings, ports: list[SlotPorts]) -> None:
        self._settings = settings
        self._ports = {each.number: each for each in ports}
        self._agents: dict[int, AgentProcess] = {}
        self._manager = ServiceManager()
        self._silence_s = self._manager.limit_s or SILENCE_S
        self._core = core.Slots(settings.slots, self._silence_s)
        self._reactor: Reactor[core.Event, core.Action] = Reactor(
            self._core.handle, self._perform, time.monotonic
        )
        self._signals: list[int] = []
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._exit: core.NodeEnded | None = None

    def run(self) -> int:
        """Serve until a signal or, if the settings say so, the end of standard input."""
        self._handle_signals()
        self._take(core.PortsOpened())
        while self._exit is None:
            self._turn()
            if self._core.is_ready:
                self._manager.alive(time.monotonic())
        if self._settings.json:
            starts = [{"slot": slot, "starts": n} for slot, n in self._core.starts.items()]
            said = {"name": self._settings.name, "why": self._exit.why, "slots": starts}
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
        return self._exit.code

    def _handle_signals(self) -> None:
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if self._settings.rereads_keys:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            signal.signal(number, lambda number, _: self._signals.append(number))
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)

    def _take(self, event: core.Event) -> None:
        self._reactor.take(event)

    def _turn(self) -> None:
        """Wait for events, and handle them."""
        poll = select.poll()
        callers = {self._ports[slot].control.fileno(): slot for slot in self._core.callable}
        reports = [agent.reports.fileno() for agent in self._agents.values()]
        watched = [self._wake, *reports, *callers]
        if self._settings.exits_with_parent:
            watched.append(STDIN)
        for descriptor in watched:
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._patience_ms())}
        if self._wake in ready:
            os.read(self._wake, 4096)
        self._take_signals()
        # An agent's reports before it ended, or before this process was late, come first.
        self._take_reports()
        self._take_ends()
        if STDIN in ready and not os.read(STDIN, 4096):
            self._take(core.StopWanted("its parent process has ended"))
        for descriptor in ready & callers.keys():
            self._take(core.Called(callers[descriptor]))
        due_s = self._core.deadline_s
        if due_s is not None and time.monotonic() >= due_s:
            self._take(core.TimeIsUp())

    def _patience_ms(self) -> float | None:
        watchdog_s = self._manager.deadline_s if self._core.is_ready else None
        due = (self._core.deadline_s, watchdog_s)
        first_s = min((at_s for at_s in due if at_s is not None), default=None)
        return None if first_s is None else max(0.0, (first_s - time.monotonic()) * 1000 + 1)

    def _take_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGHUP:
                self._take(core.KeysChanged())
            elif number != signal.SIGCHLD:
                self._take(core.StopWanted(signal.Signals(number).name))

    def _take_reports(self) -> None:
        for slot, agent in tuple(self._agents.items()):
            for text in agent.take_reports():
                if text == READY:
                    self._take(core.Said(slot, "ready"))
                elif text == ALIVE:
                    self._take(core.Said(slot, "alive"))

    def _take_ends(self) -> None:
        for slot, agent in tuple(self._agents.items()):
            code = agent.exit_code()
            if code is not None:
                del self._agents[slot]
                self._take(core.AgentEnded(slot, code))

    # ------------------------------------------------------------ actions

    def _perform(self, action: core.Action) -> None:
        match action:
            case core.StartAgent(slot):
                self._start(slot)
            case core.Signal(slot, what):
                self._signal(slot, what)
            case core.Ready():
                self._say_ready()
            case core.LogLine(level, text):
                log.log(LEVELS[level], "%s", text)
            case core.NodeEnded():
                self._exit = action

    def _start(self, slot: int) -> None:
        settings, ports = self._settings, self._ports[slot]
        name = f"{settings.name[:LONGEST_NAME]}/{slot}"
        command = [
            *settings.command,
            *("--slots", "1", "--listen", ports.address, "--name", name),
            *("--exit-idle", str(settings.idle_s), "--exit-with-parent"),
        ]
        watchdog = {"WATCHDOG_USEC": str(int(self._silence_s * 1e6))}
        try:
            self._agents[slot] = AgentProcess(command, ports, {**os.environ, **watchdog})
        except OSError as error:
            log.warning("the agent of slot %d cannot be started: %s", slot, error)
            self._take(core.AgentEnded(slot, core.FAILED))

    def _signal(self, slot: int, what: str) -> None:
        agent = self._agents.get(slot)
        numbers = {"end": signal.SIGTERM, "reread": signal.SIGHUP, "kill": signal.SIGKILL}
        if agent is not None:
            agent.signal(numbers[what])

    def _say_ready(self) -> None:
        self._manager.ready()
        places = ", ".join(ports.address for ports in self._ports.values())
        settings = self._settings
        sys.stderr.write(
            f"node-agent {settings.version} {settings.name!r} ready: {settings.slots} slots at "
            f"{places}\n"
        )
        sys.stderr.flush()
