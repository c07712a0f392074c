"""Documents for other programs, made from the models: JSON Schemas, AsyncAPI with a conversation, OpenAPI.

They are not committed. `setup.py` adds them to the wheel as `sluicegate/schemas`, and `tools/docs` to the
site as `schemas`. `python -m sluicegate.documents DIR` writes them anywhere."""

import sys
from pathlib import Path

from sluicegate.coordinator.web import model as openapi
from sluicegate.events import asyncapi, schemas
from sluicegate.events.examples import conversation_document
from sluicegate.events.schemas import as_json
from sluicegate.state_store import schema


def render() -> dict[str, str]:
    """Return the text of each document by its path."""
    return {
        **schemas.render(),
        "asyncapi.json": as_json(asyncapi.document()),
        "conversation.json": as_json(conversation_document()),
        "http/openapi.json": as_json(openapi.document()),
        "state_store/stream-view.schema.json": schema.render(),
    }


def write(folder: Path) -> None:
    """Write all documents below a folder."""
    for name, text in render().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
