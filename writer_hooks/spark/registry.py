"""What the sink's workers and the listener, in other processes of the driver's machine, tell each other.

A folder of the session, readable by its user alone: options may hold passwords. Nothing depends on it
but heartbeats and the number of repeated openings; losing it loses no data.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4


class Registry:
    """The queries of one session, by their ids."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def put(self, query: str, options: Mapping[str, str]) -> None:
        """Record that a run of the query has been announced, with the options of its sink."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._file(query)
        draft = target.with_suffix(f".{uuid4().hex}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(dict(options), stream)
        draft.replace(target)

    def options(self, query: str) -> dict[str, str] | None:
        """The options of the sink in the query's current run, None before it has been announced."""
        try:
            found = json.loads(self._file(query).read_text())
        except FileNotFoundError:
            return None
        return {str(name): str(value) for name, value in found.items()}

    def announced(self, query: str) -> bool:
        """Whether the current run of the query has been announced."""
        return self._file(query).exists()

    def new_run(self, query: str) -> None:
        """A new run of the query begins."""
        self._file(query).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, query: str) -> Path:
        return self._folder / f"{query}.json"
