"""The simulated surroundings: one partition of the log, the state and commits topics, a table, a view."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluicegate.coordinator.core.state import Due, StateRecord
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CutCommitted, FileInfo, FilesWritten, OpeningAnswered
from sluicegate.events.naming import attempt_digest
from sluicegate.lakes.memory import FORMAT, FORMAT_VERSION, MemorySnapshot, MemoryTable
from sluicegate.simulator.words import entry_in_words, notice_in_words

STREAM: Final = "sim"
COMMIT_USER: Final = f"sluicegate-{STREAM}"
REFUSED: Final = "the table is refused for a while"

Item = tuple[str, int]
"""A shard of the source, and which of its items."""


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
    skew: int = 0
    """By how much the broker's clock differs from the true time, in milliseconds."""
    glitch: int = 0
    """By how much the next append time alone is wrong."""
    carries: bool = False
    """Whether old events are appended again."""
    jumped: bool = False
    """Whether the broker's clock was ever wrong."""
    appended: list[int] = field(default_factory=list)
    """The true time of each record of the log."""
    log_start: int = 0
    """Retention has removed what stands before this offset."""
    record: str | None = None
    """The stream's newest record in the state topic, as JSON."""
    commits: list[Due] = field(default_factory=list)
    view: StateRecord | None = None
    newer: set[int] = field(default_factory=set)
    """Offsets of records that only a newer release reads."""
    upgraded: bool = False
    """Whether coordinators that boot now are of that newer release."""
    group_offset: int = 0
    ranges: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    """What each source digest stands for."""
    reached: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Until which event time the shards of a region have been read after (region, lineage, checkpoint)."""
    coverage: Counter[str] = field(default_factory=Counter)
    story: list[str] | None = None
    """What happens, in plain words, if somebody wants to read it."""
    joined: str | None = None
    """Why all writers of the table are one region, if they are."""
    standing_in: MemoryTable | None = None
    """Another table in the place of the stream's own."""
    rolled_back: bool = False
    """That is the stream's own, as it was before some of its commits."""
    backup: list[MemorySnapshot] = field(default_factory=list)
    """Snapshots that expired too early, and can be restored."""
    answers: dict[str, OpeningAnswered] = field(default_factory=dict)
    stalls: dict[str, int] = field(default_factory=dict)
    """Where in `commits` the last stall of each region stands."""
    newest: CutCommitted | None = None
    """The highest decision that was told to be committed."""
    _ids: int = 0

    def new_id(self, kind: str) -> str:
        """A fresh event id."""
        self._ids += 1
        return f"{kind}-{self._ids}"

    def tell(self, text: str, *what: object) -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.append(text.format(*what))

    def saw(self, what: str) -> None:
        """Count that something happened."""
        self.coverage[what] += 1

    def append(self, envelope: Envelope, body: Body) -> int:
        """Append to the log; returns the offset."""
        offset = len(self.log)
        self.log.append(Entry(offset, max(0, self.now + self.skew + self.glitch), envelope, body))
        self.glitch = 0
        self.appended.append(self.now)
        if self.story is not None:
            self.story.append(f"offset {offset}: {entry_in_words(envelope, body)}")
        return offset

    def announce(self, due: Due) -> None:
        """Append to the commits topic."""
        self.commits.append(due)
        if isinstance(due.body, OpeningAnswered):
            self.answers[due.body.opening] = due.body
        elif isinstance(due.body, CutCommitted):
            if self.newest is None or due.body.decision > self.newest.decision:
                self.newest = due.body
        elif due.type is EventType.STREAM_STALLED and due.region:
            self.stalls[due.region] = len(self.commits) - 1
        if self.story is not None:
            self.story.append(f"told: {notice_in_words(due.body)}")

    def answer(self, opening: str) -> OpeningAnswered | None:
        """The coordinator's newest answer to an opening, once it is there."""
        return self.answers.get(opening)

    @property
    def visible_table(self) -> MemoryTable:
        """The table that is found under the stream's name."""
        return self.standing_in or self.table

    def files_event(
        self, at: tuple[str, str, int], writer: str, attempt: str
    ) -> tuple[Envelope, FilesWritten]:
        """A `files.written` of one new file, not yet appended."""
        region, lineage, checkpoint = at
        event = self.new_id("f")
        digest = attempt_digest(STREAM, *at, writer, attempt)
        path = f"{region}/{lineage}/{checkpoint}/{writer}/data-{digest}-{event}"
        body = FilesWritten(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            location=self.table.location,
            schema_id=0,
            files=(FileInfo(path=path, size=1, rows=1),),
        )
        envelope = Envelope(
            event, EventType.FILES_WRITTEN, STREAM, region, lineage, checkpoint, writer, 1, attempt
        )
        return envelope, body
