"""Checkpoint locations as Spark leaves them, made without Spark."""

import json
from pathlib import Path

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted, Position
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from tests.integration.waiting import BACKSTOP

OFFSETS = 'v1\n{{"batchWatermarkMs":{mark}}}\n{{"logOffset":{batch}}}'
FILES = 'v1\n{{"path":"file:///in/{batch}","timestamp":1,"batchId":{batch}}}'


def plan(root: Path, *batches: int, query: str = "q7") -> None:
    """Plan batches, each of which reads one file."""
    for folder in ("offsets", "commits", "sources/0"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "metadata").write_text(json.dumps({"id": query}))
    for batch in batches:
        (root / "offsets" / str(batch)).write_text(OFFSETS.format(mark=batch * 1000, batch=batch))
        (root / "sources" / "0" / str(batch)).write_text(FILES.format(batch=batch))


def finish(root: Path, *batches: int) -> None:
    """Have Spark note batches as completed."""
    for batch in batches:
        (root / "commits" / str(batch)).write_text(f"own {batch}")


def position(root: Path, incarnation: str, batch: int) -> Position:
    """Return the position of a batch in a location."""
    return Position(
        incarnation=incarnation, checkpoint=batch, digest=CheckpointLocation(str(root)).digest(batch)
    )


def completion(root: Path, marker: IncarnationMarker, batch: int) -> CheckpointCompleted:
    """Return the completion of a batch without files."""
    checkpoint = CheckpointLocation(str(root))
    source = checkpoint.batch_source(batch)
    return CheckpointCompleted(
        events=(),
        predecessor=checkpoint.predecessor(marker, batch),
        source_digest=source.digest,
        source_offsets=source.offsets,
    )


def complete(root: Path, region: Region, marker: IncarnationMarker, *batches: int) -> None:
    """Complete batches without files, as the sink does, and have Spark note them."""
    for batch in batches:
        body = completion(root, marker, batch)
        event = region.event(EventType.CHECKPOINT_COMPLETED, marker.incarnation, body, checkpoint=batch)
        shared_publisher(region.kafka).publish(region.events_topic, [event], BACKSTOP)
        finish(root, batch)


def files(root: Path) -> dict[str, str]:
    """Return the content of every file of a location."""
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def told(error: BaseException | None) -> str:
    """The messages of an error and of its causes: Spark's own names no cause at the end of a batch."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or getattr(error, "_cause", None)
    return "\n".join(texts)
