"""Read SDF3 XML of type `fsmsadf`: scenario graphs, and a state machine that chooses among them.

A `scenariograph` is what the graph of a file of type `csdf` is. A `scenario` names the one that it
executes; its properties count before the default ones. A `state` of the `fsm` names its scenario
and has a `transition` for each state that may follow. Each scenario must be consistent by itself
(strongly consistent graphs).
"""

from __future__ import annotations

from pathlib import Path

from csdf.errors import GraphError
from csdf.formats import safe_xml
from csdf.formats.safe_xml import Element
from csdf.formats.sdf3 import GraphReader, ReadError, Sdf3Error, contents, get
from csdf.model.graph import Graph
from csdf.model.scenarios import Scenarios


def read_scenarios(path: str | Path, processor: str | None = None) -> Scenarios:
    """Return the scenarios in an SDF3 file of type `fsmsadf`; see `parse`.

    Raises `Sdf3Error`, which starts with the path.

    >>> found = read_scenarios("tests/fixtures/scenarios/decoder.xml")
    >>> list(found.graphs), found.transitions["S"]
    (['intra', 'skipped'], ('S', 'I'))
    """
    return parse(contents(path), str(path), processor)


def parse(data: bytes, origin: str = "SDF3 XML", processor: str | None = None) -> Scenarios:
    """Return the scenarios in `data`; `processor` is as in `csdf.formats.sdf3.parse`.

    Raises `Sdf3Error`, whose message starts with `origin`.
    """
    try:
        return _scenarios(safe_xml.parse(data), processor)
    except safe_xml.NotXmlError as error:
        raise Sdf3Error(f"{origin}: is not SDF3 XML of type fsmsadf: it {error}") from None
    except (safe_xml.XmlError, GraphError, ReadError) as error:
        raise Sdf3Error(f"{origin}: {error}") from None


def _scenarios(root: Element, processor: str | None) -> Scenarios:
    if root.tag != "sdf3" or root.attributes.get("type") != "fsmsadf":
        raise ReadError(root, "the root element is not 'sdf3' of type 'fsmsadf'")
    application = _only(root, "applicationGraph")
    body = _only(application, "fsmsadf")
    properties = _only(application, "fsmsadfProperties")
    bodies = _named(body.all("scenariograph"), "name")
    defaults = [one for each in properties.all("defaultProperties") for one in each.children]
    graphs: dict[str, Graph] = {}
    for name, scenario in _named(_only(properties, "scenarios").all("scenario"), "name").items():
        graph = get(scenario, "graph")
        if graph not in bodies:
            raise ReadError(scenario, f"scenario {name!r} names {graph!r}, not a scenariograph")
        reader = GraphReader(bodies[graph], _properties(scenario, defaults), processor)
        graphs[name] = reader.graph()
        for error in reader.untimed.values():
            raise error
    machine = _only(application, "fsm")
    states = _named(machine.all("state"), "name")
    return Scenarios(
        body.attributes.get("name", ""),
        graphs,
        {name: get(state, "scenario") for name, state in states.items()},
        {
            name: tuple(get(one, "destination") for one in state.all("transition"))
            for name, state in states.items()
        },
        get(machine, "initialstate"),
    )


def _properties(scenario: Element, defaults: list[Element]) -> Element:
    """Return the scenario's properties, and the default ones of all actors that it leaves out."""
    own = {one.attributes.get("actor") for one in scenario.all("actorProperties")}
    kept = [
        one
        for one in defaults
        if one.tag != "actorProperties" or one.attributes.get("actor") not in own
    ]
    return Element(scenario.tag, {}, scenario.line, [*kept, *scenario.children])


def _only(parent: Element, tag: str) -> Element:
    found = parent.all(tag)
    if len(found) != 1:
        raise ReadError(parent, f"has {len(found)} elements {tag!r} instead of one")
    return found[0]


def _named(elements: list[Element], attribute: str) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for element in elements:
        name = get(element, attribute)
        if name in found:
            raise ReadError(element, f"two elements {element.tag!r} are called {name!r}")
        found[name] = element
    return found
