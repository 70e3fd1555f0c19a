"""A launcher tries the slots of a node in order, and greets again an agent that was just ending."""

from __future__ import annotations

import pytest

from launcher.config.load import load_cluster
from launcher.core.events import (
    Action,
    Begin,
    ControlConnected,
    Disconnected,
    End,
    Event,
    MessageReceived,
    Redial,
    Send,
)
from launcher.core.returns import REFUSED_S, SETTLE_S, Returns
from launcher.core.session import Contact, Session, SessionState
from launcher.core.supervisor import Supervisor
from launcher.errors import BadInputError
from nodes.protocol.messages import PROTOCOL, Hello, Query, Refused, Welcome
from tests.launcher_runtime.plans import blueprint_of, in_a_row
from tests.launcher_runtime.simulation import ENGINES, LIMITS

HELLO = Hello(PROTOCOL, "test", 10.0)
PLACES = tuple(f"tcp://10.0.0.1:{port}" for port in (5500, 5502, 5504))
TAKEN = Refused("launcher 'ben' is using this agent", PROTOCOL)
WELCOME = Welcome(PROTOCOL, "n0", "0", PLACES[1], "none", "a board", 1, 1, engines=ENGINES)


def begun(slots: int = 3) -> Supervisor:
    """A run on one node, which has been greeted at its first slot."""
    contacts = [Contact("n0", PLACES[0], started_by_us=False, others=PLACES[1:slots])]
    supervisor = Supervisor(blueprint_of(in_a_row(1), 100), contacts, 5, HELLO, LIMITS)
    assert Send("n0", HELLO) in supervisor.handle(Begin(), 0.0)
    return supervisor


def told(supervisor: Supervisor, *events: Event) -> list[Action]:
    return [action for event in events for action in supervisor.handle(event, 0.1)]


def heard(message: Refused | Welcome) -> MessageReceived:
    return MessageReceived("n0", message)


def test_a_slot_that_is_taken_is_followed_by_the_next() -> None:
    supervisor = begun()
    assert told(supervisor, heard(TAKEN)) == [Redial("n0"), Send("n0", HELLO)]
    assert any(isinstance(each, Send) for each in told(supervisor, heard(WELCOME)))
    assert supervisor.sessions["n0"].state is SessionState.QUERYING
    assert supervisor.sessions["n0"].address == PLACES[1]


def test_a_node_whose_slots_are_all_taken_is_named_with_the_last_refusal() -> None:
    supervisor = begun()
    actions = told(supervisor, heard(TAKEN), heard(TAKEN), heard(TAKEN))
    (end,) = [action for action in actions if isinstance(action, End)]
    assert isinstance(end.error, BadInputError)
    assert f"node 'n0' at {PLACES[2]} refused: all of its 3 slots are taken" in str(end.error)
    assert "launcher 'ben' is using this agent" in str(end.error)
    assert [action for action in actions if isinstance(action, Redial)] == [Redial("n0")] * 2


def test_a_node_without_slots_refuses_as_ever() -> None:
    (end,) = told(begun(slots=1), heard(TAKEN))
    assert isinstance(end, End)
    assert str(end.error) == f"node 'n0' at {PLACES[0]} refused: {TAKEN.reason}"


def test_a_greeting_whose_connection_closed_is_repeated_and_answered_once() -> None:
    supervisor = begun()
    assert told(supervisor, ControlConnected("n0")) == []
    assert told(supervisor, Disconnected("n0")) == []
    assert told(supervisor, ControlConnected("n0")) == [Send("n0", HELLO)]
    assert told(supervisor, ControlConnected("n0")) == []
    queries = [each for each in told(supervisor, heard(WELCOME)) if isinstance(each, Send)]
    assert isinstance(queries[0].message, Query)
    assert told(supervisor, heard(WELCOME)) == []


def test_a_node_that_returns_is_sought_in_all_slots_and_again_after_a_while() -> None:
    session = Session.of(Contact("n0", PLACES[0], started_by_us=False, others=PLACES[1:]))
    returns = Returns({"n0": session}, HELLO, lambda *_: None)
    session.lose("it is taken")
    returns.note_loss(session, 0.0, 7, 1.0, failed=False)
    assert returns.due(SETTLE_S + 0.1) == [Send("n0", HELLO)]
    for place in PLACES[1:]:
        actions = returns.receive(session, heard(TAKEN), 2.0)
        assert actions == [Redial("n0"), Send("n0", HELLO)]
        assert session.address == place
    assert returns.receive(session, heard(TAKEN), 2.0) == []
    assert returns.receive(session, heard(TAKEN), 2.0) == [], "it answers a repeated greeting"
    assert returns.deadline_s == 2.0 + REFUSED_S
    assert returns.due(2.1 + REFUSED_S) == [Send("n0", HELLO)]
    assert returns.receive(session, heard(TAKEN), 5.0)[0] == Redial("n0")


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ("{name: a, slots: 2}", "applies only to a node with an address"),
        ("{name: a, address: 'tcp://b:65533', slots: 2}", "would need ports up to 65536"),
        ("{name: a, address: 'tcp://b:5500', slots: 9}", "slots"),
    ],
)
def test_slots_that_cannot_be_are_refused(node: str, sentence: str, tmp_path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"model: builtin:tiny\nnodes:\n  - {node}\n")
    with pytest.raises(BadInputError, match=sentence):
        load_cluster(file)
