"""Decides about greetings, and keeps their outcomes: which nodes have answered, and which have not.

A launcher greets an agent (`Hello`), which answers by `Welcome` or `Refused`. An agent that refuses
is greeted again if that may help: in its own version of the protocol, if that is one older; as the
successor of the launcher that has the agent, if that launcher is known to have ended; or at the
next of the node's slots. This rule holds for every greeting: for the roll call before a plan, for a
run's own sessions, for the examination of a board and for its upgrade.

If the launcher wants the figures of a board, it asks the agent for them as soon as that has
answered (`GetFigures`), and waits until the agent has replied or takes too long.

An agent is absent if it does not answer, if it refuses and no other greeting may help, if its data
port cannot be reached, or if this launcher cannot authenticate it. A run begins without the nodes
that have never answered, and without those that are lost when its first frame streams. A node that
answers in time to have a part in the plan of the first frame was not absent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from launcher.core import sentences
from launcher.core.events import (
    Action,
    Disconnected,
    DoorShut,
    MessageMalformed,
    MessageReceived,
    NodeEvent,
    NotAdmitted,
    Send,
)
from launcher.core.session import AWAY, Contact, Session
from launcher.errors import LauncherError
from nodes.protocol.messages import (
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

MEASURES_STILL = "its board still measures itself"

Question = Callable[[Welcome], GetFigures]
"""Asks an agent that has answered for its board's figures."""


@dataclass(frozen=True, slots=True)
class Greeted:
    """The outcome of greeting a node: its agent's `welcome`, or an `error` that says why it is
    absent.

    `address` is that of the slot that was greeted last, and `host` the IP address from which it has
    answered. `cause` is the event that decided, or None if none arrived in time. An absent node
    that `stays` absent can be used only after the user has changed something, such as a key.
    `figures` are what its board has measured. If they were wanted and are missing, `no_figures`
    says why.
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
class Roll:
    """The outcomes of greeting the nodes of a cluster, by their names."""

    greeted: Mapping[str, Greeted] = field(default_factory=dict)

    @property
    def welcomes(self) -> dict[str, Welcome]:
        """The answers of the agents that have answered."""
        return {
            node: each.welcome for node, each in self.greeted.items() if each.welcome is not None
        }

    @property
    def figures(self) -> dict[str, BoardFigures]:
        """The boards' own measurements, of those that were asked and have reported them."""
        return {
            node: each.figures for node, each in self.greeted.items() if each.figures is not None
        }

    @property
    def still_measuring(self) -> frozenset[str]:
        """The nodes whose boards were still measuring themselves when the roll call ended."""
        return frozenset(n for n, each in self.greeted.items() if each.no_figures == MEASURES_STILL)

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the slots that have answered."""
        return {node: self.greeted[node].address for node in self.welcomes}

    @property
    def absent(self) -> dict[str, LauncherError]:
        """The errors of the absent nodes."""
        return {node: each.error for node, each in self.greeted.items() if each.error is not None}

    @property
    def hopeless(self) -> frozenset[str]:
        """The absent nodes that stay absent until a user changes something."""
        return frozenset(node for node, each in self.greeted.items() if each.stays)

    def of(self, nodes: Collection[str]) -> Roll:
        """Return the roll of some of the nodes."""
        return Roll({node: each for node, each in self.greeted.items() if node in nodes})


def _goodbye(event: NodeEvent) -> list[Action]:
    """Return the actions that end the session that an agent has opened, if any."""
    match event:
        case MessageReceived(node, Welcome()) | DoorShut(node):
            return [Send(node, Bye())]
        case _:
            return []


class RollCall:
    """Greets agents, each until it has answered or is absent.

    Their sessions are ended at once, unless the caller `keeps` them. Agents in `wanted` are also
    asked for the figures of their boards.
    """

    def __init__(
        self,
        contacts: Iterable[Contact],
        hello: Hello,
        *,
        keeps: bool = False,
        wanted: Mapping[str, Question] = MappingProxyType({}),
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
        """The outcomes of the greetings so far."""
        return Roll(dict(self._found))

    def begin(self) -> list[Action]:
        """Greet every agent."""
        return [session.greet(self._hello) for session in self.waiting.values()]

    def handle(self, event: NodeEvent) -> list[Action]:
        """Return the actions that follow from an event; none if the agent has already answered."""
        session = self.waiting.get(event.node)
        if session is None:
            return []
        if event.node in self.measuring:
            return self._take_figures(session, event)
        again = session.repeat_greeting(event, self._hello)
        return self._take(session, event) if again is None else again

    def _take(self, session: Session, event: NodeEvent) -> list[Action]:
        """Note the outcome of the greeting, if the event decides it."""
        found = self._outcome(session, event)
        if found is None:
            return []
        wanted = self._wanted.get(session.node)
        if found.welcome is None or wanted is None:
            self._note(session, found)
            return [] if self._keeps and found.welcome is not None else _goodbye(event)
        self.measuring[session.node] = found
        if has_message(found.welcome.protocol, GetFigures):
            return [Send(session.node, wanted(found.welcome))]
        return self.settle(session.node, "its agent's version does not measure its board")

    def _take_figures(self, session: Session, event: NodeEvent) -> list[Action]:
        match event:
            case MessageReceived(node, Figures(figures, reason)):
                return self.settle(node, reason, figures)
            case DoorShut():
                return self._take(session, event)
            case MessageReceived(node) | MessageMalformed(node) | NotAdmitted(node):
                return self.settle(node, "its agent did not report them")
            case Disconnected(node):
                return self.settle(node, "its agent's connection broke during the measurement")
            case _:
                return []

    def settle(self, node: str, why: str, figures: BoardFigures | None = None) -> list[Action]:
        """Note that an agent has answered; without `figures`, `why` says why they are missing."""
        why = "" if figures is not None else why
        found = replace(self.measuring[node], figures=figures, no_figures=why)
        self._note(self.waiting[node], found)
        return [] if self._keeps else [Send(node, Bye())]

    def _outcome(self, session: Session, event: NodeEvent) -> Greeted | None:
        """Return the outcome of a greeting if the event decides it, else None."""
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
            case MessageReceived(_, Figures()):  # for the former session, of a slow board
                return None
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
        """Note that a node is absent because it has not answered, or cannot."""
        session = self.waiting[node]
        self._note(session, Greeted(session.address, None, error, stays=stays))

    def _note(self, session: Session, greeted: Greeted) -> None:
        self._found[session.node] = greeted
        self.measuring.pop(session.node, None)
        del self.waiting[session.node]


@dataclass(frozen=True, slots=True)
class Absence:
    """A node that was absent at the start, and why, in a sentence.

    `came_s` is the time from the beginning of the run to its arrival, or None if it stayed absent.
    """

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
        """Note that a node is lost, or the better reason why it is lost."""
        before = self._found.get(session.node)
        if before is not None and before.came_s is not None:
            return
        if not has_streamed or session.was_absent:
            self._found[session.node] = Absence(session.node, session.why_lost)

    def came(self, node: str, now_s: float) -> None:
        """Note that a node has arrived or returned."""
        absence = self._found.get(node)
        if absence is not None and absence.came_s is None:
            self._found[node] = replace(absence, came_s=now_s - self._began_s)

    def note_streaming(self, planned: Collection[str]) -> None:
        """Note that the first frame streams: nodes with a part in the plan were not absent.

        A node that has arrived after the plan was made does not compute the first frames.
        """
        for node in self._found.keys() & set(planned):
            if self._sessions[node].state not in AWAY:
                del self._found[node]
