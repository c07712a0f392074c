"""The published schemas are those of the code."""

import json
from pathlib import Path

import pytest

from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import BODIES, EventType, wire_type
from sluicegate.events.notifications import NOTIFICATION_BODIES
from sluicegate.events.schemas import DEFAULT_FOLDER, attribute_schema, main, render, stale_files
from tests.events.examples import BODIES as EXAMPLES
from tests.events.examples import TIME, envelope_of

PUBLISHED = Path(__file__).parents[2] / DEFAULT_FOLDER


def test_the_published_schemas_are_current() -> None:
    assert stale_files(PUBLISHED) == [], "run python -m sluicegate.events.schemas"


@pytest.mark.slow
def test_every_type_has_a_schema_with_all_its_fields() -> None:
    files = render()
    events = {wire_type(kind).decode(): body for kind, body in BODIES.items()}
    outcomes = {wire_type(kind).decode(): body for kind, body in NOTIFICATION_BODIES.items()}
    for wire, body in (events | outcomes).items():
        schema = json.loads(files[f"{wire}.schema.json"])
        assert set(schema["properties"]) == set(body.model_fields)
        assert wire in files["README.md"]


@pytest.mark.parametrize("kind", EventType)
def test_the_attributes_of_a_type_are_described(kind: EventType) -> None:
    schema = attribute_schema()
    names = {name for name, _ in encode_event(envelope_of(kind), EXAMPLES[kind], TIME).headers}
    needed = set(schema["required"])
    for condition in schema["allOf"]:
        if wire_type(kind).decode() in condition["if"]["properties"]["ce_type"]["enum"]:
            needed |= set(condition["then"]["required"])
    assert needed <= names <= set(schema["properties"])
    assert names - needed <= {"ce_time", "ce_rows", "ce_bytes"}


@pytest.mark.slow
def test_what_is_stale_is_named_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    (tmp_path / "README.md").write_text("changed")
    (tmp_path / "sluicegate.gone.v2.schema.json").write_text("{}")
    assert main(["--check", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "README.md, sluicegate.gone.v2.schema.json; run python -m sluicegate.events.schemas" in printed
    assert main([str(tmp_path)]) == 0
    assert stale_files(tmp_path) == []
