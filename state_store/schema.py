"""Writes the JSON Schema of the views in a state store: `python -m sluicegate.state_store.schema [FILE]`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sluicegate.events.schemas import DIALECT, WithoutTitles, as_json
from sluicegate.state_store.port import StreamView

DEFAULT_FILE: Final = Path("docs/schemas/state_store/stream-view.schema.json")


def render() -> str:
    """Return the text of the schema: a hash in Redis has its properties as fields, absent ones are null."""
    schema = StreamView.model_json_schema(mode="serialization", schema_generator=WithoutTitles)
    return as_json({"$schema": DIALECT, **schema, "title": "StreamView"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; return the exit status of the command."""
    given = sys.argv[1:] if arguments is None else arguments
    file = Path(*given[:1]) if given else DEFAULT_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
