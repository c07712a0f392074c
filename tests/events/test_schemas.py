"""The JSON Schemas describe what the code sends."""

import json

import pytest

from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import BODIES, EventType, wire_type
from sluicegate.events.notifications import NOTIFICATION_BODIES
from sluicegate.events.schemas import attribute_schema, render
from tests.events.examples import BODIES as EXAMPLES
from tests.events.examples import TIME, envelope_of


@pytest.mark.slow
def test_every_type_has_a_schema_with_all_its_fields() -> None:
    files = render()
    events = {wire_type(kind).decode(): body for kind, body in BODIES.items()}
    outcomes = {wire_type(kind).decode(): body for kind, body in NOTIFICATION_BODIES.items()}
    for wire, body in (events | outcomes).items():
        schema = json.loads(files[f"{wire}.schema.json"])
        assert set(schema["properties"]) == set(body.model_fields)


@pytest.mark.parametrize("kind", EventType)
def test_the_attributes_of_a_type_are_described(kind: EventType) -> None:
    schema = attribute_schema()
    names = {name for name, _ in encode_event(envelope_of(kind), EXAMPLES[kind], TIME).headers}
    needed = set(schema["required"])
    for condition in schema["allOf"]:
        if wire_type(kind).decode() in condition["if"]["properties"]["ce_type"]["enum"]:
            needed |= set(condition["then"]["required"])
    assert needed <= names <= set(schema["properties"])
    assert names - needed <= {"ce_time", "ce_files", "ce_rows", "ce_bytes"}
