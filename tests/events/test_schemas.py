"""The published schemas are those of the code."""

import json
from pathlib import Path

import pytest

from sluicegate.events import BODIES, EventType
from sluicegate.events.schemas import main, render, stale_files, write

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas"


def test_the_published_schemas_are_current() -> None:
    assert stale_files(PUBLISHED) == [], "run python -m sluicegate.events.schemas"


def test_every_event_has_a_schema_with_all_its_fields() -> None:
    files = render()
    for event_type in EventType:
        schema = json.loads(files[f"sluicegate.{event_type}.v1.schema.json"])
        assert set(schema["properties"]) == set(BODIES[event_type].model_fields)
        assert f"sluicegate.{event_type}.v1" in files["README.md"]


def test_what_is_stale_is_named_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    (tmp_path / "README.md").write_text("changed")
    (tmp_path / "attributes.schema.json").unlink()
    (tmp_path / "sluicegate.gone.v1.schema.json").write_text("{}")
    assert main(["--check", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "README.md, attributes.schema.json, sluicegate.gone.v1.schema.json" in printed
    write(tmp_path)
    assert stale_files(tmp_path) == []
