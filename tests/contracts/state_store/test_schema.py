"""The published schema of views is that of the code, and has what a view has."""

import json
from pathlib import Path

from sluicegate.state_store import StreamView
from sluicegate.state_store.schema import DEFAULT_FILE, main, render

PUBLISHED = Path(__file__).parents[3] / DEFAULT_FILE


def test_the_published_schema_is_current() -> None:
    text = PUBLISHED.read_text(encoding="utf-8")
    assert text == render(), "run python -m sluicegate.state_store.schema"


def test_it_has_each_field_with_its_meaning() -> None:
    schema = json.loads(render())
    assert set(schema["properties"]) == set(StreamView.model_fields)
    region = schema["$defs"]["RegionView"]["properties"]
    assert region["watermark"]["description"] == "Watermark at the committed position."


def test_it_is_written_where_it_is_told(tmp_path: Path) -> None:
    assert main([str(tmp_path / "new" / "view.json")]) == 0
    assert (tmp_path / "new" / "view.json").read_text(encoding="utf-8") == render()
