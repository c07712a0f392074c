"""Note in a checkpoint location of a batch that an earlier run has left to uploaders.

A run that ends before `upload.timeout` reports no loss. So the next runs measure the time of its newest batch
together: the first of them notes the batch, and the time stays until the batch is committed.
"""

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.writer_hooks.spark.checkpoint import (
    FOLDER,
    Checkpoint,
    IncarnationMarker,
    root_of,
    stream_of,
)
from sluicegate.writer_hooks.spark.location import Location


class Unsent(BaseModel):
    """Newest batch that was completed when a run began."""

    model_config = ConfigDict(frozen=True)

    incarnation: str
    batch: int
    since: float
    """Time of the note, in seconds since the Unix epoch."""


def inherited(uri: str, marker: IncarnationMarker, committed: int | None, now: float) -> Unsent | None:
    """Return the batch of earlier runs whose events may be missing; note it if it is a new one.

    `committed` is the newest committed batch of the incarnation, if it is known; `now` is in seconds since
    the Unix epoch. Raises BadCheckpointLocation.
    """
    location, stream = Location(root_of(uri)), stream_of(uri)
    name = f"{FOLDER}/unsent.json" if stream is None else f"{FOLDER}/unsent/{stream}.json"
    note, known = _read(location.read(name)), -1 if committed is None else committed
    if note is not None and note.incarnation == marker.incarnation and note.batch > known:
        return note
    newest = Checkpoint(uri).newest_completed()
    if newest is None or newest < marker.first or newest <= known:
        if note is not None:
            location.delete(name)
        return None
    note = Unsent(incarnation=marker.incarnation, batch=newest, since=now)
    location.write(name, note.model_dump_json().encode())
    return note


def _read(content: bytes | None) -> Unsent | None:
    try:
        return None if content is None else Unsent.model_validate_json(content)
    except ValidationError:
        return None  # Its time begins again.
