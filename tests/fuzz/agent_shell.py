"""An agent's core between peers who say what they like and a shell that does what it should."""

from __future__ import annotations

from random import Random

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.agent import Agent
from nodes.protocol import messages as words
from nodes.protocol.messages import PROTOCOL, Deployed, Missing, Stored, Welcome

USAGE = ev.Usage(10**8, 10**8, 10**7, 1.0)


class AgentUnderFire:
    """`said` hands in a peer's event; what the core wants is done sooner or later."""

    def __init__(self, random: Random) -> None:
        self.agent = Agent(Welcome(PROTOCOL, "n0", "0", "tcp://h:1", "e", "m", 4, 10**8))
        self.now_s = 0.0
        self.fired = 0
        self.bugs: list[str] = []
        self._random = random
        self._deployment: words.Deployment | None = None
        self._due: list[ev.Event] = []
        self._names: dict[str, ev.Link] = {
            "launcher": b"launcher",
            "peer": b"peer",
            "host": b"host",
        }

    def peer(self, who: str) -> ev.Link:
        """The routing id of a peer's present connection."""
        return self._names[who]

    def hear(self, event: ev.Event) -> None:
        """An event from outside; a few answers of the shell may come before it."""
        while self._due and self._random.random() < 0.7:
            self._handle(self._due.pop(0))
        self._handle(event)

    def settle(self) -> None:
        """Let all that is under way come to its end."""
        for _ in range(1000):
            if not self._due:
                return
            self._handle(self._due.pop(0))
        raise AssertionError("it never comes to rest")

    def _handle(self, event: ev.Event) -> None:
        self.now_s += self._random.choice((0.0, 0.0, 0.1, 6.0))
        for action in self.agent.handle(event, self.now_s):
            self._perform(action)

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.CutOffPeer(peer=gone) | act.CutOffLink(link=gone):
                for who, name in self._names.items():
                    if name == gone and isinstance(name, bytes):
                        self._names[who] = name + b"+"
            case act.LookUp(peer, digests):
                self._due.append(ev.Answered(peer, Missing(digests)))
            case act.WriteChunk(peer, put):
                self._due.append(ev.Answered(peer, Stored(put.blob.digest, put.offset_bytes, True)))
            case act.LoadPhases(deployment):
                self._deployment = deployment
                seconds = tuple(0.1 for _ in deployment.phases)
                self._due.append(Deployed(deployment.epoch, seconds, 10**8))
            case act.Fire(epoch, phase, frame):
                assert self._deployment is not None
                self.fired += 1
                outputs = dict.fromkeys(self._deployment.phases[phase].outputs, b"12345678")
                encoded = {
                    channel.number: memoryview(b"1234")
                    for channel in self._deployment.channels
                    if channel.source_phase == phase and channel.encoding != "raw"
                }
                self._due.append(ev.FiringEnded(epoch, phase, frame, outputs, 0.1, encoded=encoded))
            case act.Unload(epoch):
                dropped = ev.FiringEnded | Deployed
                self._due = [event for event in self._due if not isinstance(event, dropped)]
                self._due.append(ev.Unloaded(epoch))
            case act.Measure(purpose):
                self._due.insert(0, ev.Measured(purpose, USAGE))
            case act.Log(_, text) if "bug" in text:
                self.bugs.append(text)
