"""Decides about greetings, and keeps what came of them: which nodes are there, and which are not.

A launcher greets an agent (`Hello`), which answers by `Welcome` or `Refused`. One that refuses is
greeted again if that may help: in its own version of the protocol, if that is the one before; as
the successor of the launcher that has it, if that one is known to have ended; or at the next of the
node's slots. This rule holds for every greeting: for the roll before a plan, for a run's own
sessions, for the examination of a board and for its upgrade.

Where the launcher wants that, an agent that has answered is asked at once for what its board has
measured of itself (`GetFigures`), and is waited for until it has said that, or takes too long.

An agent that does not answer, or refuses for good, is absent, and so is one whose data port cannot
be reached, or that this launcher cannot authenticate. A run begins without the nodes that are lost,
for whatever reason, when its first frame streams, and those that have never answered. One that
comes in time for the first frame was not absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from launcher.core import sentences
from launcher.core.events import (
    Action,
    ClosedEarly,
    ControlConnected,
    Disconnected,
    DoorShut,
    MessageMalformed,
    MessageReceived,
    NodeEvent,
    NotAdmitted,
    Redial,
    Send,
)
from launcher.core.session import AWAY, Contact, Session, SessionState
from launcher.errors import LauncherError
from nodes.protocol.messages import (
    OLDEST_PROTOCOL,
    BoardFigures,
    Bye,
    Figures,
    GetFigures,
    Hello,
    Refused,
    Welcome,
    is_understood,
)
from nodes.protocol.schema import has_message


@dataclass(frozen=True, slots=True)
class Greeted:
    """What came of greeting a node: its agent's `welcome`, or the `error` that says why none came.

    `address` is that of the slot that was greeted last, and `host` the IP address from which it has
    answered. `cause` is the event that decided; None if nothing came in time. An absent node
    `stays` absent, however long one waits, until a user changes something, such as a key. `figures`
    are what its board has measured; without them, `no_figures` says why, unless nobody asked.
    """

    address: str = ""
    welcome: Welcome | None = None
    error: LauncherError | None = None
    cause: NodeEvent | None = None
    stays: bool = False
    host: str | None = None
    figures: BoardFigures | None = None
    no_figures: str = ""


@dataclass(frozen=True, slots=True)
class FiguresWanted:
    """For how many `threads` a board's figures are wanted; 0: for its own number, divided among the
    nodes that share its machine."""

    threads: int = 0
    sharing: int = 1

    def threads_on(self, welcome: Welcome) -> int:
        """Return the number of threads of a node whose agent has answered."""
        return self.threads or max(1, welcome.threads // self.sharing)


@dataclass(frozen=True, slots=True)
class Roll:
    """What came of greeting the nodes of a cluster, by their names."""

    greeted: Mapping[str, Greeted] = field(default_factory=dict)

    @property
    def welcomes(self) -> dict[str, Welcome]:
        """What the agents that have answered say of themselves."""
        return {
            node: each.welcome for node, each in self.greeted.items() if each.welcome is not None
        }

    @property
    def figures(self) -> dict[str, BoardFigures]:
        """What boards have measured of themselves, where it was asked for and they have."""
        return {
            node: each.figures for node, each in self.greeted.items() if each.figures is not None
        }

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the slots that have answered."""
        return {node: self.greeted[node].address for node in self.welcomes}

    @property
    def absent(self) -> dict[str, LauncherError]:
        """Why the other nodes are absent."""
        return {node: each.error for node, each in self.greeted.items() if each.error is not None}

    @property
    def hopeless(self) -> frozenset[str]:
        """The absent nodes that stay absent until a user changes something."""
        return frozenset(node for node, each in self.greeted.items() if each.stays)

    def of(self, nodes: Collection[str]) -> Roll:
        """Return the roll of some of the nodes."""
        return Roll({node: each for node, each in self.greeted.items() if node in nodes})


def greet(session: Session, hello: Hello) -> Send:
    """Greet an agent."""
    session.hello = hello
    return Send(session.node, hello)


def greet_again(
    session: Session, refused: Refused, hello: Hello, *, holder_has_ended: bool
) -> list[Action]:
    """Greet an agent that has refused again if that may help; do nothing if it may not.

    `hello` is the first greeting of every slot. `holder_has_ended` says whether the launcher that
    has the agent is known to have ended.
    """
    last = session.hello or hello
    if OLDEST_PROTOCOL <= refused.protocol < last.protocol:
        return [greet(session, replace(last, protocol=refused.protocol))]
    if holder_has_ended and refused.holder and last.succeeds != refused.holder:
        return [greet(session, replace(last, succeeds=refused.holder))]
    if session.try_next_slot():
        return [Redial(session.node), greet(session, hello)]
    return []


def greet_over_new_connection(session: Session, hello: Hello) -> list[Action]:
    """Repeat the greeting if its connection has closed without an answer: the agent was just
    starting or ending."""
    session.closes_early = False
    if session.state is not SessionState.CONNECTING or not session.greeting_is_lost:
        return []
    session.greeting_is_lost, session.was_greeted_again = False, True
    return [greet(session, hello)]


def _goodbye(event: NodeEvent) -> list[Action]:
    """Return what ends the session that an agent has opened, if it has opened one."""
    match event:
        case MessageReceived(node, Welcome()) | DoorShut(node):
            return [Send(node, Bye())]
        case _:
            return []


class RollCall:
    """Greets agents, each until it has answered or is absent.

    Their sessions are ended at once, unless the caller `keeps` them. Those in `wanted` are asked
    for the figures of their boards as well.
    """

    def __init__(
        self,
        contacts: Iterable[Contact],
        hello: Hello,
        *,
        keeps: bool = False,
        wanted: Mapping[str, FiguresWanted] = MappingProxyType({}),
    ) -> None:
        self.waiting = {contact.name: Session.of(contact) for contact in contacts}
        """The sessions of the agents that have not answered."""
        self._hello = hello
        self._keeps = keeps
        self._wanted = wanted
        self.measuring: dict[str, Greeted] = {}
        """The agents that have answered and whose figures are awaited."""
        self._found: dict[str, Greeted] = {}

    @property
    def roll(self) -> Roll:
        """What has come of the greetings so far."""
        return Roll(dict(self._found))

    def begin(self) -> list[Action]:
        """Greet every agent."""
        return [greet(session, self._hello) for session in self.waiting.values()]

    def handle(self, event: NodeEvent) -> list[Action]:
        """Return what follows from an event; nothing if the agent has answered already."""
        session = self.waiting.get(event.node)
        if session is None:
            return []
        if event.node in self.measuring:
            return self._take_figures(session, event)
        match event:
            case ClosedEarly():
                session.closes_early = True
            case Disconnected():
                session.greeting_is_lost = True
            case ControlConnected():
                return greet_over_new_connection(session, self._hello)
            case MessageReceived(_, Refused() as refused, _, ended) if again := greet_again(
                session, refused, self._hello, holder_has_ended=ended
            ):
                return again
            case _:
                return self._take(session, event)
        return []

    def _take(self, session: Session, event: NodeEvent) -> list[Action]:
        """Note what comes of the greeting, if the event decides that."""
        found = self._outcome(session, event)
        if found is None:
            return []
        wanted = self._wanted.get(session.node)
        if found.welcome is None or wanted is None:
            self._note(session, found)
            return [] if self._keeps and found.welcome is not None else _goodbye(event)
        self.measuring[session.node] = found
        if has_message(found.welcome.protocol, GetFigures):
            return [Send(session.node, GetFigures(wanted.threads_on(found.welcome)))]
        return self.settle(session.node, "its agent's version does not measure its board")

    def _take_figures(self, session: Session, event: NodeEvent) -> list[Action]:
        match event:
            case MessageReceived(node, Figures(figures, reason)):
                return self.settle(node, reason, figures)
            case DoorShut():
                return self._take(session, event)
            case MessageReceived(node) | MessageMalformed(node) | NotAdmitted(node):
                return self.settle(node, "its agent did not tell them")
            case Disconnected(node):
                return self.settle(node, "its connection broke while they were awaited")
            case _:
                return []

    def settle(self, node: str, why: str, figures: BoardFigures | None = None) -> list[Action]:
        """Note that an agent has answered with these figures or, for that reason, without any."""
        why = "" if figures is not None else why
        found = replace(self.measuring[node], figures=figures, no_figures=why)
        self._note(self.waiting[node], found)
        return [] if self._keeps else [Send(node, Bye())]

    def _outcome(self, session: Session, event: NodeEvent) -> Greeted | None:
        """Return what has come of a greeting; None if nothing has."""
        error: LauncherError
        stays, at = False, session.address
        match event:
            case MessageReceived(_, Welcome(protocol) as welcome, host):
                if is_understood(protocol):
                    return Greeted(at, welcome, cause=event, host=host)
                error, stays = sentences.other_protocol(session, protocol), True
            case MessageReceived(_, Refused(_, protocol) as refused):
                error = sentences.refused(session, refused, self._hello.process)
                stays = not is_understood(protocol)
            case MessageReceived(_, answer):
                error = sentences.unintelligible(session, f"it answered {type(answer).__name__}")
            case MessageMalformed(_, reason):
                error = sentences.unintelligible(session, reason)
            case DoorShut(_, tried):
                error = sentences.data_port_shut(session, tried)
            case NotAdmitted():
                error, stays = event.error, event.final
            case _:
                return None
        return Greeted(at, None, error, event, stays)

    def give_up(self, node: str, error: LauncherError, *, stays: bool = False) -> None:
        """Note that a node is absent because no answer has come, or none can."""
        session = self.waiting[node]
        self._note(session, Greeted(session.address, None, error, stays=stays))

    def _note(self, session: Session, greeted: Greeted) -> None:
        self._found[session.node] = greeted
        self.measuring.pop(session.node, None)
        del self.waiting[session.node]


@dataclass(frozen=True, slots=True)
class Absence:
    """A node that was absent at the start: why, in a sentence, and how many seconds after the
    beginning of the run it came; None if it did not come."""

    node: str
    reason: str
    came_s: float | None = None


class Absences:
    """The absences of one run, whose nodes have these `sessions`."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._began_s = 0.0
        self._found: dict[str, Absence] = {}

    @property
    def all(self) -> tuple[Absence, ...]:
        """All absences, in the order of the nodes."""
        return tuple(self._found[node] for node in self._sessions if node in self._found)

    def begin(self, now_s: float) -> None:
        """Note that the run begins."""
        self._began_s = now_s

    def note(self, session: Session, *, has_streamed: bool) -> None:
        """Note that a node is lost, or that the reason why it is lost is better known."""
        before = self._found.get(session.node)
        if before is not None and before.came_s is not None:
            return
        if not has_streamed or session.was_absent:
            self._found[session.node] = Absence(session.node, session.why_lost)

    def came(self, node: str, now_s: float) -> None:
        """Note that a node has come, or has come back."""
        absence = self._found.get(node)
        if absence is not None and absence.came_s is None:
            self._found[node] = replace(absence, came_s=now_s - self._began_s)

    def note_streaming(self) -> None:
        """Note that the first frame streams: who has come by now was not absent."""
        for node in list(self._found):
            if self._sessions[node].state not in AWAY:
                del self._found[node]
