"""Entry of the spool: the files of one attempt, where they go, and the events to publish after that."""

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import FilesWritten
from sluicegate.writer_hooks.region import DEFAULT_PREFIX, Attempt, Event, Region
from sluicegate.writer_hooks.upload.names import EntryName
from sluicegate.writer_hooks.upload.options import Uploads

if TYPE_CHECKING:
    from sluicegate.writer_hooks.upload.spool import Spool

VERSION: Final = 1
_OF_STORES: Final = ("AWS_", "GOOGLE_", "AZURE_")
"""Beginnings of the variables with which a process reaches an object store."""


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
class Connections:
    """Connections of a task to Kafka and to the store of its table. They may contain secrets."""

    created: int
    """Nanoseconds since the Unix epoch."""
    stream: str
    region: str
    storage: str
    """URI of the folder that the files go to."""
    log: tuple[tuple[str, str], ...] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    @property
    def deployment(self) -> tuple[str, str]:
        """Brokers and prefix of the topics. Two deployments may have equal names of streams and tables."""
        options = {name.lower(): value for name, value in self.log}
        return options.get("kafka.bootstrap.servers", ""), options.get("topic.prefix", DEFAULT_PREFIX)

    @property
    def key(self) -> str:
        """Digest of the deployment, the region and its store."""
        text = json.dumps([*self.deployment, self.stream, self.region, self.storage])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the connections as JSON."""
        return json.dumps({"version": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadEntry."""
        try:
            found = json.loads(text)
            if found.pop("version") != VERSION:
                raise BadEntry("they are of another release")
            return cls(**{**found, "log": tuple(map(tuple, found["log"]))})
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadEntry(f"these are no connections of a task: {error}") from error


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

    def connections(self, created: int) -> Connections:
        """Return the connections of its task."""
        about = self.about
        return Connections(
            created, about.stream, about.region, self.storage, self.uploads.log, self.environment
        )

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
            if not found["events"]:
                raise BadEntry("it has no events")
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


def read_entry(spool: "Spool", name: EntryName) -> Entry | None:
    """Return an entry of a spool; None if it is not there any more. Raises BadEntry."""
    text = spool.read(name)
    return None if text is None else Entry.from_json(text)
