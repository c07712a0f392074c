"""Examples of messages: a whole conversation of a writer with the coordinator, and one message of each type.

Documents for writers in other languages have them (`about/documents.py`). A client that reads and makes the
conversation's messages keeps the wire contract.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sluicegate.events.encoding import Message, encode_event, encode_notification
from sluicegate.events.envelope import Envelope, EventType, with_counts
from sluicegate.events.files import attempt_label
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CommitSummary,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    FileInfo,
    FilesWritten,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    Notification,
    NotificationType,
    PartitionDone,
    RegistrationAnswered,
    SavepointTaken,
    Stalled,
    StreamAdopted,
)
from sluicegate.events.problems import Code, Problem

_STREAM: Final = "flights"
_REGION: Final = "EWR"
_TABLE: Final = "file:///lake/flights"
_WRITER: Final = "w-0"
_KIND: Final = "numbered-rows"
_START: Final = 1_767_225_600_000
"""Time of the first message in milliseconds: 2026-01-01T00:00:00Z."""
_FIRST: Final = "1f0c6a52d7e84b3c9a615e2f7d804c91"
_SECOND: Final = "c3d1e70b45f94a2688b07c9ae15fd362"
_LATE: Final = "7a95b3c2e0d14f86a1d29be4c05f7e38"
"""Incarnations of the first process, of the one after its crash, and of one that asks too late."""
_ASSIGNMENT: Final = Assignment(number=0, regions=(_REGION,))
_SNAPSHOT: Final = SnapshotRef(id=8_412_303_511_290_551_117, identity="8412303511290551117")


class Step(NamedTuple):
    """A message of the conversation."""

    topic: str
    """Topic without its prefix: `events` or `commits`."""
    meaning: str
    message: Message


class _Conversation:
    """Maker of the messages, each a second after the one before."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def event(self, kind: EventType, incarnation: str, body: Body, meaning: str, checkpoint: int = -1) -> str:
        """Add an event of the writer; return its id."""
        number = len(self.steps) + 1
        own = Envelope(f"e-{number}", kind, _STREAM, _REGION, incarnation, checkpoint)
        files = body.files if isinstance(body, CheckpointCompleted) else body
        if isinstance(files, FilesWritten):
            own = with_counts(own._replace(writer=_WRITER, attempt=_attempt(incarnation, checkpoint)), files)
        message = encode_event(own, body, _START + 1_000 * number)
        self.steps.append(Step("events", meaning, message))
        return own.id

    def outcome(self, kind: NotificationType, body: Body, meaning: str, incarnation: str = "") -> None:
        """Add a message of the coordinator."""
        number = len(self.steps) + 1
        region = _REGION if incarnation else ""
        found = Notification(f"n-{number}", kind, _STREAM, region, incarnation, body)
        self.steps.append(Step("commits", meaning, encode_notification(found, _START + 1_000 * number)))

    def checkpoint(self, incarnation: str, number: int, rows: range, before: Position | None) -> Position:
        """Add the event of a checkpoint, which carries its file; return its position."""
        files = _files(incarnation, number, len(rows))
        position = Position(incarnation=incarnation, checkpoint=number, digest=_digest(rows))
        body = CheckpointCompleted(
            files=files,
            predecessor=before,
            source_digest=position.digest,
            source_offsets=_offsets(rows.stop),
        )
        meaning = (
            f"Checkpoint {number} is complete, with its file, which is durable. The writer continues, and "
            "does not wait for the commit."
        )
        self.event(EventType.CHECKPOINT_COMPLETED, incarnation, body, meaning, number)
        return position

    def checkpoint_of_parts(
        self, incarnation: str, number: int, rows: range, before: Position | None
    ) -> Position:
        """Add the two events of a checkpoint that names the event of its file; return its position."""
        files = self.event(
            EventType.FILES_WRITTEN,
            incarnation,
            _files(incarnation, number, len(rows)),
            f"The file of checkpoint {number}, which is durable.",
            number,
        )
        position = Position(incarnation=incarnation, checkpoint=number, digest=_digest(rows))
        body = CheckpointCompleted(
            events=(files,),
            predecessor=before,
            source_digest=position.digest,
            source_offsets=_offsets(rows.stop),
        )
        meaning = f"Checkpoint {number} is complete. The writer continues, and does not wait for the commit."
        self.event(EventType.CHECKPOINT_COMPLETED, incarnation, body, meaning, number)
        return position


def _attempt(incarnation: str, checkpoint: int) -> str:
    return f"{incarnation[:8]}-{checkpoint}"


def _digest(rows: range) -> str:
    return f"rows:{rows.start}-{rows.stop}"


def _offsets(following: int) -> str:
    return f'{{"next":{following}}}'


def _files(incarnation: str, checkpoint: int, rows: int) -> FilesWritten:
    attempt = _attempt(incarnation, checkpoint)
    label = attempt_label(_STREAM, _REGION, incarnation, checkpoint, _WRITER, attempt)
    path = f"data/region={_REGION}/data-{label}-0.parquet"
    file = FileInfo(path=path, size=1_873, rows=rows, partition={"region": _REGION})
    return FilesWritten(format="iceberg", location=_TABLE, schema_id=0, files=(file,))


def _registration(end: int) -> RegionRegistered:
    return RegionRegistered(
        takes_over=end, assignment=_ASSIGNMENT, table=_TABLE, bounded=True, offsets_kind=_KIND
    )


def _committed(decision: int, position: Position, files: int) -> Committed:
    return Committed(
        decision=decision, cut={_REGION: position}, snapshot=_SNAPSHOT, watermark=None, files=files
    )


def conversation() -> list[Step]:
    """Return a whole conversation: two checkpoints, a crash, a restart, a refusal, and the end."""
    talk = _Conversation()
    run = talk.event(
        EventType.REGION_REGISTERED,
        _FIRST,
        _registration(17),
        "The writer starts: 17 is the end of the stream's partition of the events topic.",
    )
    accepted = RegistrationAnswered(registration=run, accepted=True, live=_FIRST, run=run)
    talk.outcome(
        NotificationType.REGISTRATION_ANSWERED,
        accepted,
        "Accepted. Nothing is committed: the writer begins with row 0, and its first predecessor is null.",
        _FIRST,
    )
    beat = RegionHeartbeat(interval=5_000, run=run)
    talk.event(EventType.REGION_HEARTBEAT, _FIRST, beat, "Every 5 seconds.")
    zero = talk.checkpoint(_FIRST, 0, range(100), None)
    talk.outcome(NotificationType.COMMITTED, _committed(1, zero, 1), "Rows 0 to 99 are committed.")
    talk.checkpoint(_FIRST, 1, range(100, 200), zero)
    run = talk.event(
        EventType.REGION_REGISTERED,
        _SECOND,
        _registration(23),
        "The process was killed; it has no state. A new one takes over, with a new incarnation and end.",
    )
    talk.outcome(
        NotificationType.REGISTRATION_ANSWERED,
        RegistrationAnswered(
            registration=run,
            accepted=True,
            committed=zero,
            source_offsets=_offsets(100),
            live=_SECOND,
            run=run,
            decision=1,
        ),
        "Accepted. The former incarnation has ended, and its checkpoint 1 is discarded: row 100 is next.",
        _SECOND,
    )
    one = talk.checkpoint_of_parts(_SECOND, 1, range(100, 250), zero)
    late = talk.event(
        EventType.REGION_REGISTERED,
        _LATE,
        _registration(22),
        "A frozen process continues: it has fetched its end before the registration of the other one.",
    )
    problem = Problem(code=Code.TAKEN_OVER_SINCE, region=_REGION, number=23, other=22)
    talk.outcome(
        NotificationType.REGISTRATION_ANSWERED,
        RegistrationAnswered(
            registration=late,
            accepted=False,
            problem=problem,
            reason="another process has registered since",
            committed=zero,
            source_offsets=_offsets(100),
            live=_SECOND,
            run=run,
            decision=1,
        ),
        "Refused: the process stops. The one that works is not disturbed.",
        _LATE,
    )
    talk.event(
        EventType.REGION_CLOSED, _SECOND, RegionClosed(final=1, run=run), "The source has ended with row 249."
    )
    talk.outcome(NotificationType.COMMITTED, _committed(2, one, 1), "All rows are committed, each once.")
    return talk.steps


CONVERSATION: Final = conversation()


def _others() -> dict[EventType | NotificationType, Body]:
    """Return bodies of the types that the conversation lacks."""
    position = Position(incarnation=_FIRST, checkpoint=0, digest=_digest(range(100)))
    cut = {_REGION: position}
    stalled = Problem(code=Code.TABLE_REPLACED)
    return {
        EventType.CHECKPOINT_FAILED: CheckpointFailed(
            outcome="declined", run="e-1", code="disk-full", reason="no space left on device"
        ),
        EventType.STREAM_POLICY: StreamPolicy(number=1, allowed_locations=(_TABLE,)),
        EventType.STREAM_COMMAND: StreamCommand(command="remove", region=_REGION, number=0),
        EventType.CUT_DECIDED: CutDecided(decision=1, cut=cut, digest="5e1f"),
        EventType.CUT_COMMITTED: CutCommitted(
            decision=1,
            digest="5e1f",
            table="24ffb3c4-8f1e-4a53-8a6a-6dd3ba2a3d2a",
            snapshot=_SNAPSHOT,
            summary=CommitSummary(table=_TABLE, rows=100, bytes=1_873, moved=(_REGION,), visible=_START),
        ),
        EventType.CUT_REVERTED: CutReverted(
            decision=1, digest="9a02", table="24ffb3c4-8f1e-4a53-8a6a-6dd3ba2a3d2a", snapshot=_SNAPSHOT
        ),
        EventType.CUT_ABANDONED: CutAbandoned(decision=2, attempt=1, kind="forced", regions=(_REGION,)),
        NotificationType.PARTIALLY_COMMITTED: Committed(
            decision=1, cut=cut, fallbacks={"JFK": None}, snapshot=_SNAPSHOT, watermark=None, files=1
        ),
        NotificationType.ABANDONED: CutAbandoned(decision=2, attempt=1, kind="forced", regions=(_REGION,)),
        NotificationType.REVERTED: CutReverted(decision=1, digest="9a02", table="t-1", snapshot=_SNAPSHOT),
        NotificationType.SAVEPOINT_TAKEN: SavepointTaken(
            name="upgrade", drained=False, decision=1, cut=cut, snapshot=_SNAPSHOT, watermark=None
        ),
        NotificationType.PARTITION_DONE: PartitionDone(
            table=_TABLE,
            partition="day=2026-01-01",
            values={"day": "2026-01-01"},
            start=_START,
            end=_START + 86_400_000,
            decision=1,
            snapshot=_SNAPSHOT.id,
            watermark=_START + 86_400_000,
            reason="watermark",
            late=False,
            number=1,
        ),
        NotificationType.ENDED: IncarnationsEnded(incarnations={_REGION: _FIRST}),
        NotificationType.ADOPTED: StreamAdopted(decision=1, snapshot=_SNAPSHOT),
        NotificationType.STALLED: Stalled(problem=stalled, reason="the table was replaced"),
    }


def _examples() -> dict[str, Message]:
    found: dict[str, Message] = {}
    for step in CONVERSATION:
        found.setdefault(dict(step.message.headers)["ce_type"].decode(), step.message)
    for kind, body in _others().items():
        if isinstance(kind, EventType):
            own = Envelope("e-99", kind, _STREAM)
            if kind is EventType.CHECKPOINT_FAILED:
                own = own._replace(region=_REGION, incarnation=_FIRST, checkpoint=1)
            message = encode_event(own, body, _START)
        else:
            message = encode_notification(Notification("n-99", kind, _STREAM, "", "", body), _START)
        found[dict(message.headers)["ce_type"].decode()] = message
    return found


EXAMPLES: Final[Mapping[str, Message]] = _examples()
"""One message of each type, by the value of `ce_type`."""


def conversation_document() -> dict[str, Any]:
    """Return the conversation for JSON: values of headers are texts, and so are those of messages."""
    return {
        "title": "A conversation of a writer with the coordinator",
        "description": "Messages in the order of their appends. The value of a message is its body, as bytes "
        "of UTF-8: another notation of the same JSON is as good.",
        "messages": [
            {
                "topic": step.topic,
                "meaning": step.meaning,
                "key": step.message.key.decode(),
                "headers": {name: value.decode() for name, value in step.message.headers},
                "value": step.message.value.decode(),
            }
            for step in CONVERSATION
        ],
    }
