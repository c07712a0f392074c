"""Split a `files.written` into parts that fit into Kafka messages."""

from collections.abc import Iterator
from typing import Final

from pydantic import TypeAdapter

from sluicegate.events.models import FileInfo, FilesWritten

HEADROOM: Final = 4096
"""Bytes of a message reserved for key, headers and framing. In practice these take under 2,000."""

_FILE: Final = TypeAdapter(FileInfo)


class FileTooLarge(ValueError):
    """The description of a single file exceeds a message, so no split helps."""


def split_files(body: FilesWritten, limit: int) -> list[FilesWritten]:
    """Split a body so that each encoded part is at least `HEADROOM` bytes smaller than `limit`.

    `limit` is the topic's `max.message.bytes`. The parts list the same files in the same order; each needs an
    event id of its own. A body without files is one part. Raises FileTooLarge.
    """
    frame = len(body.model_copy(update={"files": ()}).model_dump_json().encode())
    room = limit - HEADROOM - frame
    return [
        body.model_copy(update={"files": body.files[start:end]}) for start, end in _ranges(body, room, limit)
    ]


def _ranges(body: FilesWritten, room: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part. Each file is encoded once, to measure its size."""
    start, used = 0, 0
    for index, file in enumerate(body.files):
        size = len(_FILE.dump_json(file))
        if size > room:
            raise FileTooLarge(
                f"the description of {file.path} takes {size} bytes, and a message of at most {limit} bytes "
                f"has room for {max(room, 0)}; raise max.message.bytes of the events topic, or collect "
                "statistics on fewer columns"
            )
        with_comma = size + (index > start)
        if used + with_comma > room:
            yield start, index
            start, used, with_comma = index, 0, size
        used += with_comma
    yield start, len(body.files)
