"""One event and one notification of each type, with every field set."""

from typing import Final

from sluicegate.events.envelope import Envelope, EventType
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
    FilesOfSize,
    FilesWritten,
    FurtherTable,
    Planned,
    Position,
    Predecessor,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
    TableSummary,
    TableVersion,
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
from sluicegate.events.problems import Cause, CauseCode, Code, Problem

TIME: Final = 1_234_567_890_042
POSITION: Final = Position(incarnation="q1.0", checkpoint=6, digest="range-6")
OTHER: Final = Position(incarnation="q2.0", checkpoint=10**18 - 1, digest="range-x")
HEAD: Final = SnapshotRef(id=2**63 - 1, identity="snap-7")
SUMMARY: Final = CommitSummary(
    table="file:/t",
    files=2,
    rows=3,
    bytes=15,
    partitions=2,
    touched=({"dt": "2013-01-01", "n": None}, {"dt": "2013-01-02", "n": "é"}),
    sizes=(
        (FilesOfSize(below=8, files=2, bytes=11),),
        (FilesOfSize(below=4, files=1, bytes=3), FilesOfSize(below=2**62, files=1, bytes=2**61)),
    ),
    tables={"items": TableSummary(table="file:/i", files=1, rows=7, bytes=9, partitions=1)},
    moved=("EWR", "JFK"),
    forced=True,
    previous=SnapshotRef(id=-4, identity="snap-6"),
    first_event=TIME - 40,
    sealed=TIME - 30,
    decided=TIME - 20,
    visible=TIME,
)
FILES: Final = FilesWritten(
    format="paimon",
    format_version=1,
    location="file:/t",
    schema_id=3,
    spec_id=2,
    table_identity="24ffb3c4-8f1e-4a53-8a6a-6dd3ba2a3d2a",
    schema_digest="5e884898da28047151d0e56f8dc62927",
    files=(
        FileInfo(
            path="m=1/a-0f-é.parquet",
            size=10,
            rows=2,
            partition={"m": "1", "n": None},
            min_event_time=-1,
            max_event_time=1_234,
            metadata=b"\xfa\xfb\xff",
        ),
        FileInfo(path="b.parquet", size=5, rows=1),
    ),
    facts={"b.parquet": {"verdict": "clean"}},
)
BODIES: Final[dict[EventType, Body]] = {
    EventType.REGION_REGISTERED: RegionRegistered(
        base=POSITION,
        replaces="q0.0",
        planned=(Planned(checkpoint=8, digest="range-8"), Planned(checkpoint=7, digest="range-7")),
        assignment=Assignment(number=1, regions=("EWR", "JFK"), after=4),
        table="file:/t",
        tables=("items",),
        bounded=True,
        offsets_kind="kafka",
        probe=True,
        rests=True,
    ),
    EventType.FILES_WRITTEN: FILES,
    EventType.CHECKPOINT_COMPLETED: CheckpointCompleted(
        events=("6f0c", "ünï"),
        predecessor=POSITION,
        source_digest="range-7",
        watermark=-(2**63),
        listeners={"partitions": '{"done": []}'},
        source_offsets='{"p0": 17}',
    ),
    EventType.CHECKPOINT_FAILED: CheckpointFailed(
        outcome="declined", run="run-1", code="task-failed", reason="no space left"
    ),
    EventType.REGION_HEARTBEAT: RegionHeartbeat(idle=True, after=7, interval=5_000, run="run-1"),
    EventType.REGION_CLOSED: RegionClosed(final=7, run="run-1"),
    EventType.STREAM_POLICY: StreamPolicy(
        number=2,
        partial="allow",
        max_consecutive_fallbacks=5,
        max_failure_ratio=0.5,
        regions=("EWR", "JFK"),
        allowed_locations=("file:/t",),
        future_limit=3_600_000,
        file_names="unchecked",
        single_region="fixed-buckets",
        tables={
            "items": FurtherTable(
                identifier="shop.items", identity="t-2", location="file:/i", allowed_locations=("file:/i",)
            )
        },
    ),
    EventType.STREAM_COMMAND: StreamCommand(
        command="revert",
        region="EWR",
        number=1,
        decision=5,
        name="upgrade",
        head=HEAD,
        offset=17,
        digest="d17",
        table="items",
        known=4,
    ),
    EventType.CUT_DECIDED: CutDecided(
        decision=5, cut={"EWR": POSITION, "JFK": OTHER}, digest="d5", head=HEAD
    ),
    EventType.CUT_COMMITTED: CutCommitted(
        decision=5,
        digest="d5",
        table="t-1",
        snapshot=HEAD,
        tables={"items": HEAD, "taxes": None},
        left_out=("fees",),
        summary=SUMMARY,
    ),
    EventType.CUT_REVERTED: CutReverted(decision=5, digest="r5", table="t-1", snapshot=None),
    EventType.CUT_ABANDONED: CutAbandoned(decision=6, attempt=2, kind="ratio", regions=("JFK",)),
}
CARRIED: Final = CheckpointCompleted(
    files=FILES, predecessor=Predecessor(checkpoint=6), source_offsets='{"p0": 17}', watermark=TIME
)
"""A completion that carries its files, and leaves out what it may."""
PROBLEM: Final = Problem(
    code=Code.BASE_DIFFERS,
    region="EWR",
    incarnation="q1.0",
    checkpoint=6,
    other=5,
    number=4,
    event="6f0c",
    table="items",
    names=("a", "b"),
    cause=Cause(
        code=CauseCode.OTHER_WRITER,
        snapshot=-4,
        expected=3,
        stray=1,
        oldest=2,
        number=7,
        other=8,
        partition=9,
        region="JFK",
        problem="other-format",
        names=("a-user",),
    ),
    detail="from outside",
)
OUTCOMES: Final[dict[NotificationType, Body]] = {
    NotificationType.REGISTRATION_ANSWERED: RegistrationAnswered(
        registration="6f0c",
        accepted=False,
        problem=PROBLEM,
        reason="a sentence",
        committed=POSITION,
        source_offsets='{"p0": 17}',
        unresolved=5,
        live="q1.0",
        run="6f0b",
        decision=5,
    ),
    NotificationType.COMMITTED: Committed(
        decision=5,
        cut={"EWR": POSITION},
        snapshot=HEAD,
        watermark=1_234,
        files=2,
        tables={"items": TableVersion(decision=4, snapshot=HEAD), "taxes": TableVersion()},
        summary=SUMMARY,
    ),
    NotificationType.PARTIALLY_COMMITTED: Committed(
        decision=5,
        cut={"EWR": POSITION},
        fallbacks={"EWR": POSITION, "JFK": None},
        listeners={"EWR": {"partitions": "s"}},
        snapshot=None,
        watermark=None,
        files=0,
    ),
    NotificationType.ABANDONED: CutAbandoned(decision=6, attempt=1, kind="forced", regions=("JFK",)),
    NotificationType.REVERTED: CutReverted(decision=5, digest="r5", table="t-1", snapshot=HEAD),
    NotificationType.PARTITION_DONE: PartitionDone(
        table="file:/t",
        partition="dt=2013-01-01/n",
        values={"dt": "2013-01-01", "n": None},
        start=TIME - 90,
        end=TIME - 50,
        decision=7,
        snapshot=2**63 - 1,
        watermark=TIME - 40,
        reason="watermark",
        late=True,
        number=2,
    ),
    NotificationType.SAVEPOINT_TAKEN: SavepointTaken(
        name="upgrade",
        drained=True,
        decision=5,
        cut={"EWR": POSITION},
        snapshot=HEAD,
        tables={"items": TableVersion(decision=4, snapshot=HEAD)},
        watermark=9,
        discarded=("JFK",),
    ),
    NotificationType.ENDED: IncarnationsEnded(incarnations={"EWR": "q1.0", "JFK": "q2.0"}),
    NotificationType.ADOPTED: StreamAdopted(decision=5, snapshot=HEAD),
    NotificationType.STALLED: Stalled(problem=PROBLEM, reason="a sentence", ended=True),
}


CARRYING: Final = Envelope(
    "id-carried", EventType.CHECKPOINT_COMPLETED, "flights", "EWR", "q1.0", 7, "part-3", "a1", 2, 3, 15
)
"""Attributes of the completion that carries its files."""


def envelope_of(kind: EventType) -> Envelope:
    """Return the attributes of the example of a type."""
    plain = Envelope(f"id-{kind}", kind, "flights")
    regional = plain._replace(region="EWR", incarnation="q1.0")
    counted = regional._replace(checkpoint=7)
    written = counted._replace(writer="part-3", attempt="a1", files=2, rows=3, bytes=15)
    return {
        EventType.FILES_WRITTEN: written,
        EventType.CHECKPOINT_COMPLETED: counted,
        EventType.CHECKPOINT_FAILED: counted,
        EventType.REGION_REGISTERED: regional,
        EventType.REGION_HEARTBEAT: regional,
        EventType.REGION_CLOSED: regional,
    }.get(kind, plain)


def notification_of(kind: NotificationType) -> Notification:
    """Return the example of a notification."""
    answer = kind is NotificationType.REGISTRATION_ANSWERED
    region = "EWR" if answer or kind is NotificationType.STALLED else ""
    return Notification(f"id-{kind}", kind, "flights", region, "q1.0" if answer else "", OUTCOMES[kind])
