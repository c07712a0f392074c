"""The schema of views has what a view has."""

import json

from sluicegate.state_store import StreamView
from sluicegate.state_store.schema import render


def test_it_has_each_field_with_its_meaning() -> None:
    schema = json.loads(render())
    assert set(schema["properties"]) == set(StreamView.model_fields)
    region = schema["$defs"]["RegionView"]["properties"]
    assert region["watermark"]["description"] == "Watermark at the committed position."
