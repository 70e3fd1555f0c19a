"""Home Assistant finds a sink by discovery messages, and reads its results by their templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.config.ends.sink import Predictions
from launcher.sinks.home_assistant import HomeAssistantConfig
from launcher.sinks.mqtt import MqttConfig
from launcher.sinks.result_json import result_text
from launcher.tasks.predictions import ImageClasses, ScoredClass
from tests.sinks.test_filtering import found, seen

jinja2 = pytest.importorskip("jinja2")  # the language of Home Assistant's templates

KNOWN = {
    *("availability_topic", "device", "device_class", "name", "origin", "payload_available"),
    *("payload_not_available", "state_class", "state_topic", "unique_id", "value_template"),
}
"""Keys of home-assistant.io/integrations/sensor.mqtt and binary_sensor.mqtt that are used."""


def entities(*labels: str | int, **keys: Any) -> dict[str, dict[str, Any]]:
    config = MqttConfig(
        host="a",
        topic="gate/found",
        labels=labels,
        home_assistant=HomeAssistantConfig.model_validate(keys or {"name": "The gate"}),
    )
    *discovery, (birth_topic, birth) = config.greetings.items()
    assert (birth_topic, birth) == ("gate/found/availability", b"online")
    return {topic: json.loads(payload) for topic, payload in discovery}


def value(template: str, predictions: Predictions) -> str:
    """What Home Assistant makes of a result by a template."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    shown = environment.from_string(template).render(
        value_json=json.loads(result_text(seen(predictions)))
    )
    return str(shown)


def test_each_label_is_a_number_and_whether_there_is_one() -> None:
    made = entities("person", 2)
    assert [topic.rpartition("/")[0] for topic in made] == [
        "homeassistant/sensor/The_gate/csdf-edge-The_gate-0-person-count",
        "homeassistant/binary_sensor/The_gate/csdf-edge-The_gate-0-person",
        "homeassistant/sensor/The_gate/csdf-edge-The_gate-1-2-count",
        "homeassistant/binary_sensor/The_gate/csdf-edge-The_gate-1-2",
    ]
    two_people = found((0, 0.9), (0, 0.5), (1, 0.8))
    values = [value(entity["value_template"], two_people) for entity in made.values()]
    assert values == ["2", "ON", "0", "OFF"]
    for topic, entity in made.items():
        assert topic.endswith("/config")
        assert entity.keys() <= KNOWN
        assert entity["state_topic"] == "gate/found"
        assert (entity["payload_available"], entity["payload_not_available"]) == (
            "online",
            "offline",
        )
        assert entity["device"]["name"] == "The gate"
    assert len({entity["unique_id"] for entity in made.values()}) == len(made)
    assert len({json.dumps(entity["device"]) for entity in made.values()}) == 1


def test_without_labels_it_is_all_objects_or_the_likeliest_class() -> None:
    ((_, entity),) = entities().items()
    template = entity["value_template"]
    assert value(template, found((0, 0.9), (2, 0.8))) == "2"
    assert value(template, found()) == "0"
    cat = ImageClasses((ScoredClass(3, "cat", 0.9), ScoredClass(1, "dog", 0.1)))
    assert value(template, cat) == "cat"
    assert value(template, ImageClasses(())) == "none"


def test_labels_of_a_classifier_are_counted_among_its_classes() -> None:
    cat = ImageClasses((ScoredClass(3, "cat", 0.9), ScoredClass(1, "dog", 0.1)))
    _, present = entities("cat").values()
    assert value(present["value_template"], cat) == "ON"
    assert value(present["value_template"], ImageClasses(())) == "OFF"


def test_any_label_and_name_make_valid_topics_and_templates() -> None:
    labels = ("it's", 'a "b"', "\\", "{{ 7 }}", "große Ente", "+/#")
    made = entities(*labels, name="Tür / 1")
    for topic, entity in made.items():
        assert not set(topic) & set("+# ")
        assert topic.isascii()
        assert value(entity["value_template"], found((0, 0.9))) in ("0", "OFF")
    assert len(made) == 2 * len(labels)


@pytest.mark.parametrize("written", ["Gate", {"name": "Gate", "id": "gate1", "prefix": "ha"}])
def test_a_name_may_stand_for_the_mapping(written: object) -> None:
    config = HomeAssistantConfig.model_validate(written)
    assert (config.name, config.device, config.prefix) in (
        ("Gate", "Gate", "homeassistant"),
        ("Gate", "gate1", "ha"),
    )
