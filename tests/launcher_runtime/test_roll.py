"""One greeting: whatever an agent answers, and however a run and a roll call greet it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.core.events import (
    Action,
    Begin,
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
from launcher.core.roll import Question, RollCall
from launcher.core.session import Contact, Session, Step
from launcher.core.supervisor import Supervisor
from launcher.errors import BadInputError
from launcher.plan.boards import ThreadShare
from launcher.run import roll_call
from launcher.run.connections import Connections
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    BoardFigures,
    Bye,
    Figures,
    GetFigures,
    Hello,
    Pong,
    Refused,
    Welcome,
)
from tests.launcher_runtime.plans import blueprint_of, in_a_row
from tests.launcher_runtime.simulation import LIMITS

HELLO = Hello(PROTOCOL, "s", 5.0, "ana", "7")
HOLDER = "boot/ns-8-1"
PLACES = ("tcp://192.0.2.7:5500", "tcp://192.0.2.7:5502", "tcp://192.0.2.7:5504")
WELCOME = Welcome(PROTOCOL, "n0", "1", "tcp://192.0.2.7:5501", "none", "sim", 1, 1)
PROTOCOLS = range(OLDEST_PROTOCOL - 1, PROTOCOL + 2)


def contact(slots: int = 1) -> Contact:
    return Contact("n0", PLACES[0], started_by_us=False, others=PLACES[1:slots])


def begun(slots: int = 1, *, keeps: bool = False, wanted: Question | None = None) -> RollCall:
    asked = {} if wanted is None else {"n0": wanted}
    call = RollCall([contact(slots)], HELLO, keeps=keeps, wanted=asked)
    assert call.begin() == [Send("n0", HELLO)]
    return call


def refused(protocol: int = PROTOCOL, holder: str = "", *, ended: bool = False) -> MessageReceived:
    return MessageReceived("n0", Refused("busy", protocol, holder), holder_has_ended=ended)


def test_a_refused_hello_is_repeated_in_the_version_of_an_agent_that_is_one_behind() -> None:
    call = begun()
    again = replace(HELLO, protocol=OLDEST_PROTOCOL)
    assert call.handle(refused(OLDEST_PROTOCOL)) == [Send("n0", again)]
    assert call.handle(refused(OLDEST_PROTOCOL)) == [], "it is busy"
    assert not call.roll.greeted["n0"].stays


@pytest.mark.parametrize("theirs", [OLDEST_PROTOCOL - 1, PROTOCOL + 1])
@pytest.mark.parametrize("answers", [True, False])
def test_an_agent_of_another_protocol_stays_absent(theirs: int, answers: bool) -> None:
    call = begun()
    answer = replace(WELCOME, protocol=theirs)
    actions = call.handle(MessageReceived("n0", answer) if answers else refused(theirs))
    assert actions == [Send("n0", Bye())] * answers
    assert call.roll.hopeless == {"n0"}
    assert f"speaks protocol {theirs}" in str(call.roll.absent["n0"])


def test_a_launcher_says_once_that_the_one_before_has_ended() -> None:
    call = begun()
    again = replace(HELLO, succeeds=HOLDER)
    assert decode(encode(again)) == again
    assert call.handle(refused(holder=HOLDER, ended=True)) == [Send("n0", again)]
    assert call.handle(refused(holder=HOLDER, ended=True)) == []
    assert begun().handle(refused(holder=HOLDER)) == []


def test_the_next_slot_is_greeted_as_the_first() -> None:
    call = begun(slots=2)
    call.handle(refused(OLDEST_PROTOCOL))
    assert call.handle(refused(OLDEST_PROTOCOL)) == [Redial("n0"), Send("n0", HELLO)]
    assert call.handle(MessageReceived("n0", WELCOME, "192.0.2.7")) == [Send("n0", Bye())]
    assert call.roll.addresses == {"n0": PLACES[1]}
    assert call.roll.greeted["n0"].host == "192.0.2.7"


def test_a_session_that_is_kept_is_not_ended() -> None:
    call = begun(keeps=True)
    assert call.handle(MessageReceived("n0", WELCOME)) == []
    assert call.roll.welcomes == {"n0": WELCOME}
    assert not call.waiting


MEASURED = BoardFigures(2, *[1e-10] * 11)


@pytest.mark.parametrize(
    ("wanted", "threads"),
    [
        (ThreadShare().question, 4),
        (ThreadShare(threads=3).question, 3),
        (ThreadShare(sharing=2).question, 2),
        (ThreadShare(sharing=8).question, 1),
    ],
)
def test_an_agent_is_asked_for_the_figures_of_its_board(wanted: Question, threads: int) -> None:
    call = begun(wanted=wanted)
    welcome = replace(WELCOME, threads=4)
    assert call.handle(MessageReceived("n0", welcome)) == [Send("n0", GetFigures(threads))]
    assert call.waiting
    assert call.handle(MessageReceived("n0", Figures(MEASURED))) == [Send("n0", Bye())]
    assert (call.roll.figures, call.roll.welcomes) == ({"n0": MEASURED}, {"n0": welcome})


def test_an_agent_of_the_version_before_is_not_asked() -> None:
    call = begun(wanted=ThreadShare().question)
    welcome = replace(WELCOME, protocol=OLDEST_PROTOCOL)
    assert call.handle(MessageReceived("n0", welcome)) == [Send("n0", Bye())]
    assert call.roll.welcomes == {"n0": welcome}
    assert "version" in call.roll.greeted["n0"].no_figures


@pytest.mark.parametrize(
    "event",
    [
        MessageReceived("n0", Figures(None, "the board was suspended during the measurement")),
        MessageReceived("n0", Refused("no session", PROTOCOL)),
        MessageMalformed("n0", "garbage"),
        Disconnected("n0"),
    ],
    ids=str,
)
def test_a_board_without_figures_has_answered_and_says_why(event: NodeEvent) -> None:
    call = begun(wanted=ThreadShare().question)
    call.handle(MessageReceived("n0", WELCOME))
    assert call.handle(event) == [Send("n0", Bye())]
    assert call.roll.welcomes == {"n0": WELCOME}
    assert call.roll.figures == {}
    assert call.roll.greeted["n0"].no_figures


def test_a_board_that_measures_for_too_long_has_answered() -> None:
    call = begun(wanted=ThreadShare().question)
    call.handle(MessageReceived("n0", WELCOME))
    assert call.settle("n0", "it still measures") == [Send("n0", Bye())]
    assert call.roll.greeted["n0"].no_figures == "it still measures"
    assert call.handle(MessageReceived("n0", Figures(MEASURED))) == []


def test_figures_for_a_session_that_has_ended_are_no_answer_to_the_next_greeting() -> None:
    call = begun()
    assert call.handle(MessageReceived("n0", Figures(MEASURED))) == []
    assert call.handle(MessageReceived("n0", WELCOME)) == [Send("n0", Bye())]
    assert call.roll.welcomes == {"n0": WELCOME}


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_run_takes_no_offence_at_figures_for_the_roll_call_before_it(is_lost: bool) -> None:
    session = Session.of(Contact("n0", "tcp://192.0.2.7:5500", started_by_us=False))
    if is_lost:
        session.lose("its board was off")
        session.step(Step.GREET)
    before = session.state
    session.receive(Figures(MEASURED))
    assert session.state is before


class Silent:
    """Connections to agents that answer greetings and report no figures."""

    def __init__(self) -> None:
        self._arrivals: list[NodeEvent] = []

    def open_control(self, node: str, address: str) -> None:
        """See `Connections`."""

    def send(self, node: str, message: object) -> None:
        """See `Connections`."""
        if isinstance(message, Hello):
            self._arrivals.append(MessageReceived(node, WELCOME))

    def wait(self, _seconds: float) -> list[NodeEvent]:
        """See `Connections`."""
        arrived, self._arrivals = self._arrivals, []
        return arrived


def test_it_is_shown_how_many_boards_have_measured_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roll_call, "MEASURING_S", 0.01)
    monkeypatch.setattr(roll_call, "SHOWN_AFTER_S", 0.0)
    shown: list[tuple[int, int]] = []
    found = roll_call.call_roll(
        cast(Connections, Silent()),
        [contact()],
        HELLO,
        1.0,
        wanted={"n0": ThreadShare().question},
        show=lambda done, total: shown.append((done, total)),
    )
    assert set(shown) == {(0, 1)}
    assert found.greeted["n0"].no_figures


def test_a_greeting_whose_connection_closed_is_repeated() -> None:
    call = begun()
    assert call.handle(ControlConnected("n0")) == []
    assert call.handle(Disconnected("n0")) == []
    assert call.handle(ControlConnected("n0")) == [Send("n0", HELLO)]


REFUSALS = st.builds(
    refused,
    st.sampled_from(PROTOCOLS),
    st.sampled_from(["", HOLDER, "x/y-1-1"]),
    ended=st.booleans(),
)
EVENTS = st.one_of(
    REFUSALS,
    st.builds(
        lambda protocol: MessageReceived("n0", replace(WELCOME, protocol=protocol)),
        st.sampled_from(PROTOCOLS),
    ),
    st.sampled_from(
        [
            MessageReceived("n0", Pong()),
            MessageReceived("n0", Figures(MEASURED)),
            MessageReceived("n0", Figures(None, "why")),
            MessageMalformed("n0", "garbage"),
            ClosedEarly("n0"),
            ControlConnected("n0"),
            Disconnected("n0"),
            DoorShut("n0", ("tcp://192.0.2.7:1",)),
            NotAdmitted("n0", BadInputError("no key"), final=True),
        ]
    ),
)


@given(
    events=st.lists(EVENTS, max_size=12),
    slots=st.integers(1, 3),
    keeps=st.booleans(),
    wanted=st.none()
    | st.builds(ThreadShare, st.integers(0, 3), st.integers(1, 3)).map(
        lambda share: share.question
    ),
)
def test_an_agent_has_answered_or_is_absent_and_every_session_ends(
    events: list[NodeEvent], slots: int, keeps: bool, wanted: Question | None
) -> None:
    call = begun(slots, keeps=keeps, wanted=wanted)
    opened = ended = 0
    for event in events:
        is_awaited = "n0" in call.waiting
        is_measuring = "n0" in call.measuring
        actions = call.handle(event)
        assert is_awaited or not actions
        welcome = isinstance(event, MessageReceived) and isinstance(event.message, Welcome)
        is_open = welcome or isinstance(event, DoorShut)
        opened += is_awaited and not is_measuring and is_open
        ended += sum(action == Send("n0", Bye()) for action in actions)
        roll = call.roll
        assert ("n0" in call.waiting) + ("n0" in roll.welcomes) + ("n0" in roll.absent) == 1
    is_kept = keeps and "n0" in call.roll.welcomes
    assert opened - ended == (is_kept or "n0" in call.measuring)
    assert call.roll.hopeless <= call.roll.absent.keys()


@given(events=st.lists(REFUSALS, max_size=12), slots=st.integers(1, 3))
def test_a_run_greets_an_agent_as_a_roll_call_does(
    events: list[MessageReceived], slots: int
) -> None:
    supervisor = Supervisor(blueprint_of(in_a_row(1), 100), [contact(slots)], 5, HELLO, LIMITS)
    supervisor.handle(Begin(), 0.0)
    call = begun(slots)
    for event in events:
        assert _greetings(supervisor.handle(event, 0.1)) == call.handle(event)


def _greetings(actions: list[Action]) -> list[Action]:
    return [
        action
        for action in actions
        if isinstance(action, Redial)
        or (isinstance(action, Send) and isinstance(action.message, Hello))
    ]
