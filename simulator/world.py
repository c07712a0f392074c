"""The simulated surroundings: one partition of the log, the state and commits topics, a table, a view."""

from dataclasses import dataclass, field
from typing import NamedTuple

from sluicegate.coordinator.core.state import Due, StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, FileInfo, FilesWritten, OpeningAnswered
from sluicegate.lakes.memory import FORMAT, FORMAT_VERSION, MemoryTable

STREAM = "sim"
REFUSED = "the table is refused for a while"


class Entry(NamedTuple):
    """A record of the log; its offset is its index."""

    offset: int
    time: int
    envelope: Envelope
    body: Body


@dataclass
class World:
    """Everything that outlives a process."""

    table: MemoryTable
    now: int = 1_000_000
    log: list[Entry] = field(default_factory=list)
    record: str | None = None
    """The stream's newest record in the state topic, as JSON."""
    commits: list[Due] = field(default_factory=list)
    view: StateRecord | None = None
    newer: set[int] = field(default_factory=set)
    """Offsets of records that only a newer release reads."""
    upgraded: bool = False
    """Whether coordinators that boot now are of that newer release."""
    group_offset: int = 0
    _ids: int = 0

    def new_id(self, kind: str) -> str:
        """A fresh event id."""
        self._ids += 1
        return f"{kind}-{self._ids}"

    def append(self, envelope: Envelope, body: Body) -> int:
        """Append to the log; returns the offset."""
        self.log.append(Entry(len(self.log), self.now, envelope, body))
        return len(self.log) - 1

    def answer(self, opening: str) -> OpeningAnswered | None:
        """The coordinator's answer to an opening, once it is there."""
        for due in self.commits:
            if isinstance(due.body, OpeningAnswered) and due.body.opening == opening:
                return due.body
        return None

    def files_event(self, at: tuple[str, str, int], writer: str) -> tuple[Envelope, FilesWritten]:
        """A `files.written` of one new file, not yet appended."""
        region, lineage, checkpoint = at
        event = self.new_id("f")
        path = f"{region}/{lineage}/{checkpoint}/{writer}/{event}"
        body = FilesWritten(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            location=self.table.location,
            schema_id=0,
            files=(FileInfo(path=path, size=1, rows=1),),
        )
        envelope = Envelope(
            event, EventType.FILES_WRITTEN, STREAM, region, lineage, checkpoint, writer, files=1
        )
        return envelope, body
