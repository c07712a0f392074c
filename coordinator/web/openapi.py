"""The OpenAPI document of the HTTP interface, made from its models.

`python -m sluicegate.coordinator.web.openapi [FILE]` writes it.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sluicegate.coordinator.web.model import Checkpoints, Cuts, DeadLetters, Problem, Streams, StreamState
from sluicegate.events.schemas import WithoutTitles, as_json

DEFAULT_FILE: Final = Path("docs/schemas/http/openapi.json")
_MODELS: Final = (Streams, StreamState, Cuts, Checkpoints, DeadLetters, Problem)
_REFERENCE: Final = "#/components/schemas/{model}"
_STREAM: Final = {"name": "stream", "in": "path", "required": True, "schema": {"type": "string"}}
_LAST: Final = {
    "name": "last",
    "in": "query",
    "description": "Number of cuts, the newest ones.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 50, "default": 50},
}


def document() -> dict[str, Any]:
    """Return the document as JSON values."""
    _, schemas = models_json_schema(
        [(model, "serialization") for model in _MODELS],
        ref_template=_REFERENCE,
        schema_generator=WithoutTitles,
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate",
            "version": "1",
            "description": "State and history of streams. It only reads. Fields may be added.",
        },
        "paths": {
            "/api/v1/streams": _get("The streams of the deployment.", Streams),
            "/api/v1/streams/{stream}": _get("One stream.", StreamState, _STREAM),
            "/api/v1/streams/{stream}/cuts": _get("Its newest cuts, the oldest first.", Cuts, _STREAM, _LAST),
            "/api/v1/streams/{stream}/checkpoints": _get(
                "Its checkpoints: those that wait, and the newest ones of decisions, from its coordinator.",
                Checkpoints,
                _STREAM,
            ),
            "/api/v1/dead-letters": _get("The newest dead letters, the oldest first.", DeadLetters),
        },
        "components": {"schemas": schemas["$defs"]},
    }


def _get(summary: str, model: type[BaseModel], *parameters: Mapping[str, Any]) -> dict[str, Any]:
    refused = {"description": "The reason.", **_content(Problem)}
    failures = {"404": refused} if _STREAM in parameters else {}
    failures |= {"400": refused} if _LAST in parameters else {}
    answer = {"200": {"description": summary, **_content(model)}, **failures}
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": answer}}


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; return the exit status of the command."""
    given = sys.argv[1:] if arguments is None else arguments
    file = Path(*given[:1]) if given else DEFAULT_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_json(document()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
