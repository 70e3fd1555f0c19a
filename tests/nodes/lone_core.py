"""An agent's core without a shell, with a clock of the test's own."""

from collections.abc import Iterable

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.agent import Agent
from nodes.core.lifecycle import Stage
from nodes.protocol.codec import encode
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    BlobInfo,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Hello,
    PeerSpec,
    PhaseSpec,
    Start,
    Stop,
    TensorHeader,
    Welcome,
)

LAUNCHER, STRANGER, HOST_LINK = b"launcher", b"stranger", b"host"
BLOB = BlobInfo("a" * 64, 10)
USAGE = ev.Usage(100, 200, 50, 1.5)

PHASE = PhaseSpec("p", BLOB, None, ("x",), ("y",))
FROM_HOST = ChannelSpec(0, "x", "float32", (2,), HOST, None, "n0", (0,), 2)
TO_NEXT = ChannelSpec(1, "y", "float32", (2,), "n0", 0, "n1", (0,), 2)
HEADER = TensorHeader(7, 0, 0, "float32", (2,))
DEPLOYMENT = Deployment(
    7, "n0", "pipelined", (PHASE,), (FROM_HOST, TO_NEXT), (PeerSpec("n1", "tcp://n1:1"),)
)


class LoneCore:
    """An agent's core and its clock; every method returns the actions that the core decides on."""

    def __init__(self, *, obeys_shutdown: bool = False) -> None:
        self.core = Agent(
            Welcome(PROTOCOL, "n0", "1", "tcp://n0:2", "engine", "machine", 4, 100),
            obeys_shutdown=obeys_shutdown,
        )
        self.now_s = 0.0

    def happens(self, event: ev.Event) -> list[act.Action]:
        actions = self.core.handle(event, self.now_s)
        for action in actions:
            if isinstance(action, act.Reply | act.SendData):
                encode(action.message)
        return actions

    def says(self, message, peer=LAUNCHER) -> list[act.Action]:
        return self.happens(ev.ControlReceived(peer, message))

    def data(self, link, message, payload=None, size=0) -> list[act.Action]:
        return self.happens(ev.DataReceived(link, message, payload, size))

    def at(self, stage: Stage):
        """Bring a new agent to this stage of epoch 7."""
        self.says(Hello(PROTOCOL, "s", 5.0))
        if stage is Stage.EMPTY:
            return self
        self.says(Deploy(DEPLOYMENT))
        if stage is Stage.LOADING:
            return self
        self.happens(Deployed(7, (0.1,), 100))
        if stage is Stage.READY:
            return self
        self.says(Start(7))
        self.happens(ev.Measured("start", USAGE))
        if stage is Stage.UNLOADING:
            self.says(Stop(7))
            self.happens(ev.Measured("stop", USAGE))
        assert self.core.life.stage is stage
        return self

    def streaming(self):
        """A running agent, attached on both sides."""
        self.at(Stage.RUNNING)
        self.data(HOST_LINK, Attach(7, HOST))
        self.data("n1", Credit(7, 1, 2))
        return self


def replies(actions: Iterable[act.Action], kind: type) -> list:
    return [a.message for a in actions if isinstance(a, act.Reply) and isinstance(a.message, kind)]


def only(actions: Iterable[act.Action], kind: type):
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def has(actions: Iterable[act.Action], kind: type) -> bool:
    return any(isinstance(action, kind) for action in actions)
