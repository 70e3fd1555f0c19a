"""Describes what a network finds to Home Assistant, by its MQTT discovery.

Home Assistant makes an entity from each retained message at
`PREFIX/COMPONENT/NODE/OBJECT/config` (home-assistant.io/integrations/mqtt, "MQTT discovery"). The
entities read the results that the sink publishes anyway, by templates; no other messages are needed
for their states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import Field, model_validator

from launcher.config.strict import StrictModel

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]+")
"""Characters that the parts of a discovery topic cannot have."""

_FOUND = "(value_json.predictions.objects | default(value_json.predictions.classes))"


class HomeAssistantConfig(StrictModel):
    """How a sink appears in Home Assistant: as a device. Its name may stand for the mapping."""

    name: Annotated[
        str, Field(min_length=1, max_length=100, description="Name of the device, such as Gate")
    ]
    id: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_-]{1,64}$",
            description="Name of the device in topics; by default made from its name",
        ),
    ] = None
    prefix: Annotated[
        str,
        Field(
            pattern=r"^[^+#\x00-\x1f]{1,200}$",
            description="The discovery prefix that Home Assistant is set to",
        ),
    ] = "homeassistant"

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @property
    def device(self) -> str:
        """The name of the device in topics."""
        return self.id or _as_id(self.name)


@dataclass(frozen=True, slots=True)
class Availability:
    """The topic that says whether the launcher is connected, and its messages."""

    topic: str
    online: str
    offline: str


def discovery_messages(
    keys: HomeAssistantConfig,
    labels: Sequence[str | int],
    state_topic: str,
    availability: Availability,
) -> dict[str, bytes]:
    """Return the messages that make the entities, by topic; they are to be retained.

    Each label has a number of objects (`sensor`), and whether there is one (`binary_sensor`).
    Without labels there is one sensor: the number of all objects, or the likeliest class.
    """
    common: dict[str, Any] = {
        "state_topic": state_topic,
        "availability_topic": availability.topic,
        "payload_available": availability.online,
        "payload_not_available": availability.offline,
        "device": {
            "identifiers": [f"csdf-edge-{keys.device}"],
            "name": keys.name,
            "manufacturer": "csdf-edge",
        },
        "origin": {"name": "csdf-edge", "sw_version": version("csdf-edge")},
    }
    return {
        f"{keys.prefix}/{component}/{keys.device}/{entity['unique_id']}/config": json.dumps(
            {**entity, **common}
        ).encode("ascii")
        for component, entity in _entities(keys.device, labels)
    }


def _entities(
    device: str, labels: Sequence[str | int]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the component and the own keys of each entity."""
    if not labels:
        likeliest = (
            "((value_json.predictions.classes | first | default({})).name | default('none'))"
        )
        count = "value_json.predictions.objects | count"
        known = "value_json.predictions.objects is defined"
        yield (
            "sensor",
            {
                "name": "Found",
                "unique_id": f"csdf-edge-{device}-found",
                "value_template": f"{{{{ {count} if {known} else {likeliest} }}}}",
            },
        )
    for number, label in enumerate(labels):
        own = f"csdf-edge-{device}-{number}-{_as_id(str(label))}"
        key = "class" if isinstance(label, int) else "name"
        count = f"{_FOUND} | selectattr('{key}', 'eq', {json.dumps(label)}) | list | count"
        yield (
            "sensor",
            {
                "name": f"{label} count",
                "unique_id": f"{own}-count",
                "state_class": "measurement",
                "value_template": f"{{{{ {count} }}}}",
            },
        )
        yield (
            "binary_sensor",
            {
                "name": str(label),
                "unique_id": own,
                "device_class": "occupancy",
                "value_template": f"{{{{ 'ON' if ({count}) > 0 else 'OFF' }}}}",
            },
        )


def _as_id(text: str) -> str:
    return _NOT_IN_AN_ID.sub("_", text)[:64].strip("_") or "device"
