"""Surroundings of the simulated processes: one partition of the log, the other topics, a table, a view."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluicegate.coordinator.core.state_record import Due, StateRecord
from sluicegate.coordinator.stream.state_records import recovery_record
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import Body, CheckpointCompleted, FileInfo, FilesWritten
from sluicegate.events.notifications import RegistrationAnswered
from tests.doubles.memory_group import MemoryCatalog
from tests.doubles.memory_lake import FORMAT, FORMAT_VERSION, MemorySnapshot, MemoryTable

STREAM: Final = "sim"
ANCHOR: Final = "sim"
"""Identifier of the stream's own table."""
FORGED: Final = "forged"
"""Beginning of the ids of events that somebody else than a driver or a coordinator appends."""
COMMIT_USER: Final = f"sluicegate-{STREAM}"

SPACING: Final = 10
"""Event time between two items of a shard."""

Item = tuple[str, int]
"""A shard of the source, and the number of an item of it."""


class Entry(NamedTuple):
    """A record of the log; its offset is its index. The account reads it even after its deletion."""

    offset: int
    time: int
    envelope: Envelope
    body: Body | None
    """None: nobody can read it."""

    @property
    def files(self) -> FilesWritten | None:
        """Return the files of the event; None if it has none."""
        return self.body.files if isinstance(self.body, CheckpointCompleted) else _files_of(self.body)

    @property
    def record(self) -> LogRecord:
        """Return the event as the core reads it."""
        body = None if isinstance(self.body, FilesWritten) else self.body
        if isinstance(body, CheckpointCompleted) and body.files is not None:
            body = body.model_copy(update={"events": (self.envelope.id,), "files": None})
        return LogRecord(self.offset, self.time, self.envelope, body)


def _files_of(body: Body | None) -> FilesWritten | None:
    return body if isinstance(body, FilesWritten) else None


@dataclass
class World:
    """Everything that outlives a process."""

    table: MemoryTable
    now: int = 1_000_000
    log: list[Entry] = field(default_factory=list)
    skew: int = 0
    """Error of the broker's clock, in milliseconds."""
    glitch: int = 0
    """Error of the next append time alone."""
    record: str | None = None
    """The newest state record, as JSON."""
    bases: dict[int, str] = field(default_factory=dict)
    """Base records, by the first offset of the log that they are for."""
    begin: int = 0
    """The first offset that was not deleted."""
    kept: int | None = None
    """The first offset of a backup of the topic, after somebody else than a coordinator deleted records."""
    unproven: set[int] = field(default_factory=set)
    """Decisions that name a head which their writer has not proven."""
    removed: set[str] = field(default_factory=set)
    """Paths of the files that the janitor has deleted."""
    released: int = 0
    """The group's offset."""
    commits: list[Due] = field(default_factory=list)
    announced: set[str] = field(default_factory=set)
    answers: dict[str, RegistrationAnswered] = field(default_factory=dict)
    view: StateRecord | None = None
    standing_in: MemoryTable | None = None
    """Another table under the stream's name."""
    rolled_back: list[MemorySnapshot] = field(default_factory=list)
    """The history before the newest rollback, until it is put back."""
    items: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    """By path of a file, the items whose rows it has."""
    table_of: dict[str, str] = field(default_factory=dict)
    """By path of a file, the name of its table; empty: the anchor."""
    further: dict[str, MemoryTable] = field(default_factory=dict)
    """By name, the further tables that the stream may have."""
    identifiers: dict[str, str] = field(default_factory=dict)
    """By name, the identifier that the table has in the catalog now."""
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    settings: dict[str, str] = field(default_factory=dict)
    """By name, the identifiers in the settings of coordinators that start from now on."""
    job_tables: tuple[str, ...] = ()
    """Names of the further tables that queries write to which start from now on."""
    away: set[str] = field(default_factory=set)
    """Names of further tables that cannot be read for a while."""
    former: dict[str, list[MemorySnapshot]] = field(default_factory=dict)
    """By name, the history of a further table before its newest rollback, until it is put right."""
    lost: dict[str, set[int]] = field(default_factory=dict)
    """By identity of a table, the decisions that a rollback has taken from it at any time."""
    raced: set[int] = field(default_factory=set)
    """Decisions with a rollback of the anchor between a question about them and the publication upon it."""
    given_up: dict[str, set[int]] = field(default_factory=dict)
    """By identity of a further table, those of them that an operator has given up."""
    coverage: Counter[str] = field(default_factory=Counter)
    story: list[str] | None = None
    _ids: int = 0

    def __post_init__(self) -> None:
        self.catalog.tables[ANCHOR] = self.table

    def has_table(self, name: str) -> bool:
        """True if a further table is in the catalog, and can be read."""
        return self.identifiers[name] in self.catalog.tables and name not in self.away

    def roll_back(self, table: MemoryTable, to: int) -> None:
        """Roll a table back, and note the decisions that it loses."""
        lost = {each.decision for each in table.history if each.id > to and is_of_stream(each)}
        self.lost.setdefault(table.identity, set()).update(lost)
        table.rollback(to)

    def new_id(self, kind: str) -> str:
        """Return a fresh id."""
        self._ids += 1
        return f"{kind}-{self._ids}"

    def tell(self, text: str, *what: object) -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.append(text.format(*what))

    def saw(self, what: str) -> None:
        """Count an occurrence."""
        self.coverage[what] += 1

    def append(self, envelope: Envelope, body: Body | None) -> int:
        """Append to the log; return the offset."""
        offset = len(self.log)
        self.log.append(Entry(offset, max(0, self.now + self.skew + self.glitch), envelope, body))
        self.glitch = 0
        if self.story is not None:
            shown = "unreadable"
            if body is not None:
                shown = body.model_dump_json(exclude_defaults=True, exclude={"files"})
            shown = "" if isinstance(body, FilesWritten) else shown
            at = f"{envelope.region} {envelope.incarnation}:{envelope.checkpoint}"
            self.story.append(f"offset {offset}: {envelope.type} {envelope.id} {at} {shown}")
        return offset

    def announce(self, due: Due) -> None:
        """Append to the commits topic."""
        self.commits.append(due)
        self.announced.add(due.id)
        if isinstance(due.body, RegistrationAnswered):
            self.answers[due.body.registration] = due.body
        if self.story is not None:
            self.story.append(f"announced: {due.type} {due.body.model_dump_json(exclude_defaults=True)}")

    def recovery(self) -> StateRecord | None:
        """Return the record from which a coordinator starts."""
        newest = StateRecord.model_validate_json(self.record) if self.record else None
        bases = {start: StateRecord.model_validate_json(base) for start, base in self.bases.items()}
        return recovery_record(newest, bases, self.begin)

    @property
    def visible_table(self) -> MemoryTable:
        """Return the table that is under the stream's name."""
        return self.standing_in or self.table

    def files_event(
        self, at: tuple[str, str, int], writer: str, attempt: str, items: tuple[Item, ...], table: str = ""
    ) -> tuple[Envelope, FilesWritten]:
        """Return a `files.written` of one new file with these items, not yet appended."""
        event = self.new_id("f")
        self.items[event], self.table_of[event] = items, table
        info = FileInfo(path=event, size=len(items), rows=len(items))
        body = FilesWritten(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            location=self.further[table].location if table else self.table.location,
            schema_id=0,
            files=(info,),
        )
        envelope = Envelope(
            event, EventType.FILES_WRITTEN, STREAM, *at, writer, attempt, 1, len(items), len(items), table
        )
        return envelope, body


def is_of_stream(snapshot: MemorySnapshot) -> bool:
    """True if a snapshot is a commit of the stream's coordinators."""
    return snapshot.commit_user == COMMIT_USER and bool(snapshot.digest)
