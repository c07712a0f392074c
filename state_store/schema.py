"""The JSON Schema of the views in a state store."""

from sluicegate.events.schemas import DIALECT, DocumentedSchema, as_json
from sluicegate.state_store.port import StreamView


def render() -> str:
    """Return the text of the schema: a hash in Redis has its properties as fields, absent ones are null."""
    schema = StreamView.model_json_schema(mode="serialization", schema_generator=DocumentedSchema)
    return as_json({"$schema": DIALECT, **schema, "title": "StreamView"})
