"""Entry of the spool: the files of one attempt, where they go, and the events to publish after that."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Self

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import FilesWritten
from sluicegate.writer_hooks.region import Attempt, Event, Region
from sluicegate.writer_hooks.upload.options import Uploads

VERSION: Final = 1
_NAME: Final = re.compile(r"(\d{20})\.([0-9a-f]{16})\.(\d{1,19})\.(\d{1,19})\.([0-9a-f]{32})")
_OF_STORES: Final = ("AWS_", "GOOGLE_", "AZURE_")
"""Beginnings of the variables with which a process reaches an object store."""


class EntryName(NamedTuple):
    """Name of an entry, which has what the limits of a spool count. Names are in the order of their times."""

    created: int
    """Nanoseconds since the Unix epoch."""
    region: str
    """Digest of stream, region and incarnation."""
    checkpoint: int
    size: int
    """Bytes of its files."""
    attempt: str

    def __str__(self) -> str:
        return f"{self.created:020d}.{self.region}.{self.checkpoint}.{self.size}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "EntryName | None":
        """Read a name; None if it is not that of an entry."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        created, region, checkpoint, size, attempt = found.groups()
        return cls(int(created), region, int(checkpoint), int(size), attempt)


def store_variables() -> dict[str, str]:
    """Return the variables with which this process reaches object stores."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_STORES)}


def region_key(region: Region, incarnation: str) -> str:
    """Return the digest of one incarnation of a region that names of entries have."""
    text = json.dumps([region.stream, region.name, incarnation])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class SpooledFile(NamedTuple):
    """A file of an entry."""

    name: str
    """Relative to the target storage, and to the folder of the attempt."""
    size: int
    digest: str
    """SHA-256 of its content."""


class BadEntry(ValueError):
    """The text is no entry that this release can read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Files of one attempt, with everything that an uploader needs for them."""

    storage: str
    """URI of the folder that the files go to."""
    files: tuple[SpooledFile, ...]
    events: tuple[Event, ...]
    uploads: Uploads
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables with which the task reached the object store. They may contain a secret."""
    path: tuple[str, ...] = ()
    """Folders in which the task found its modules."""

    @classmethod
    def of_task(
        cls, storage: str, files: Sequence[SpooledFile], events: Sequence[Event], uploads: Uploads
    ) -> Self:
        """Return the entry of a task that runs in this process."""
        path = tuple(part or os.getcwd() for part in sys.path)
        return cls(storage, tuple(files), tuple(events), uploads, store_variables(), path)

    @property
    def about(self) -> Envelope:
        """Attributes of its first event, which has the stream, the region and the checkpoint of all."""
        return self.events[0].envelope

    def to_json(self) -> str:
        """Return the entry as JSON."""
        events = [
            {"envelope": event.envelope._asdict(), "body": event.body.model_dump_json()}
            for event in self.events
        ]
        return json.dumps(
            {
                "version": VERSION,
                "storage": self.storage,
                "files": [file._asdict() for file in self.files],
                "events": events,
                "uploads": asdict(self.uploads),
                "environment": dict(self.environment),
                "path": self.path,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadEntry."""
        try:
            found = json.loads(text)
            if found["version"] != VERSION:
                raise BadEntry(f"it has version {found['version']}, and this release reads {VERSION}")
            uploads = {**found["uploads"], "log": tuple(map(tuple, found["uploads"]["log"]))}
            return cls(
                found["storage"],
                tuple(SpooledFile(**file) for file in found["files"]),
                tuple(_event(event) for event in found["events"]),
                Uploads(**uploads),
                found["environment"],
                tuple(found["path"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadEntry(f"this is no entry of a spool: {error}") from error


def _event(found: Mapping[str, Any]) -> Event:
    envelope = Envelope(**{**found["envelope"], "type": EventType(found["envelope"]["type"])})
    return Event(envelope, FilesWritten.model_validate_json(found["body"]))


def name_of(region: Region, attempt: Attempt, files: Sequence[SpooledFile], created: int) -> EntryName:
    """Return the name of the entry of an attempt."""
    size = sum(file.size for file in files)
    return EntryName(created, region_key(region, attempt.incarnation), attempt.checkpoint, size, attempt.id)
