"""Content of a query's checkpoint location: identity of the query, source ranges of batches, openings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.events.models import Assignment, Parent
from sluicegate.writer_hooks.errors import BadCheckpointLocation, NotOurs
from sluicegate.writer_hooks.opening import Planned
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.ranges import Offsets, json_object, range_digest, read_offsets

FOLDER: Final = "sluicegate"
LINEAGE_FILE: Final = f"{FOLDER}/lineage.json"


class LineageMarker(BaseModel):
    """Incarnation of the query's batch numbering; a rewind raises the generation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str
    generation: int = 0
    first: int = 0
    """First batch of this generation. It has no predecessor in the incarnation."""
    parents: tuple[Parent, ...] = ()
    rewinding: bool = False
    """True during a rewind of the location. No batch may run until the rewind is finished."""
    former: "LineageMarker | None" = None
    """During a rewind: the marker that is restored if the new incarnation is refused."""

    @property
    def lineage(self) -> str:
        """Name of the incarnation."""
        return f"{self.query}.{self.generation}"


class OpenedMarker(BaseModel):
    """An opening that the coordinator accepted. Later batches with equal values need not ask again."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stream: str
    region: str
    assignment: Assignment
    bounded: bool
    sink: str = "independent"
    owned: bool = True
    topic_prefix: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Source range of a batch."""

    digest: str
    """Equal for every replay of the batch, different for another range of the sources."""
    watermark: int | None
    """Milliseconds since the Unix epoch; None if the query has no watermark or it has not advanced yet."""


class Checkpoint:
    """A query's checkpoint location. Every method may raise BadCheckpointLocation."""

    def __init__(self, uri: str) -> None:
        self._location = Location(uri)

    def query_id(self) -> str | None:
        """Return the id of the query, None before Spark has written it."""
        content = self._location.read("metadata")
        if content is None:
            return None
        found = json_object(content, "metadata").get("id")
        if not isinstance(found, str):
            raise BadCheckpointLocation(f"{self._location.uri}/metadata names no query id")
        return found

    def lineage(self, parents: Callable[[], tuple[Parent, ...]] = tuple) -> LineageMarker:
        """Return the incarnation of the query, and record it if this is the query's first batch.

        A location with batches but without a record of its incarnation is refused: its numbering may belong
        to another sink, or the record was lost. Raises NotOurs before any batch is planned, as in a
        continuous query.
        """
        marker = self.known_lineage()
        if marker is not None and marker.rewinding:
            raise BadCheckpointLocation(
                f"the checkpoint location {self._location.uri} is being set back and that is not finished; "
                "repeat the command `sluicegate rewind`, then start the query again"
            )
        if marker is not None:
            return marker
        newest = self.newest_planned()
        if newest is None:
            raise NotOurs(
                f"the query in {self._location.uri} has planned no batch; a continuous trigger is not "
                "supported: use a micro-batch trigger (processingTime, availableNow)"
            )
        if newest > 0:
            raise BadCheckpointLocation(
                f"the checkpoint location {self._location.uri} has batches up to {newest}, but no "
                f"{LINEAGE_FILE}. If another sink wrote them, record where this one begins with "
                f"sluicegate.writer_hooks.start_lineage(location, first={newest}); "
                "if the file was deleted, restore it"
            )
        return self.begin_lineage(first=0, parents=parents())

    def begin_lineage(self, first: int, parents: tuple[Parent, ...] = ()) -> LineageMarker:
        """Record that the incarnation begins at a batch, after checkpoints of other incarnations."""
        query = self.query_id()
        if query is None:
            raise BadCheckpointLocation(
                f"{self._location.uri}/metadata does not exist where Python looks for it; give the "
                "checkpoint location as the full URI that Spark uses"
            )
        marker = LineageMarker(query=query, first=first, parents=parents)
        self.write_lineage(marker)
        return marker

    def known_lineage(self) -> LineageMarker | None:
        """Return the recorded incarnation, None if the current query has none."""
        query = self.query_id()
        content = None if query is None else self._location.read(LINEAGE_FILE)
        if content is None:
            return None
        try:
            marker = LineageMarker.model_validate_json(content)
        except ValidationError as error:
            raise BadCheckpointLocation(
                f"{self._location.uri}/{LINEAGE_FILE} is malformed: {error.errors()[0]['msg']}; restore it"
            ) from error
        # The marker may be that of an earlier query in this location, whose metadata was deleted. It does not
        # count.
        return marker if marker.query == query else None

    def write_lineage(self, marker: LineageMarker) -> None:
        """Record an incarnation."""
        self._location.write(LINEAGE_FILE, marker.model_dump_json().encode())

    def opened(self, lineage: str) -> OpenedMarker | None:
        """Return the accepted opening of an incarnation, None if there is none."""
        content = self._location.read(_opened_file(lineage))
        if content is None:
            return None
        try:
            return OpenedMarker.model_validate_json(content)
        except ValidationError:
            return None  # a repeated opening is safe

    def opened_region(self) -> tuple[str, LineageMarker]:
        """Return the region that the location belongs to, with its incarnation."""
        marker = self.known_lineage()
        opened = None if marker is None else self.opened(marker.lineage)
        if marker is None or opened is None:
            raise BadCheckpointLocation(
                f"{self._location.uri} is no checkpoint location of a query that has written with Sluicegate"
            )
        return opened.region, marker

    def write_opened(self, lineage: str, marker: OpenedMarker) -> None:
        """Record an accepted opening."""
        self._location.write(_opened_file(lineage), marker.model_dump_json().encode())

    def forget_opened(self, lineage: str) -> None:
        """Delete the record of an accepted opening, so that the next run asks again."""
        self._location.delete(_opened_file(lineage))

    def batch_source(self, batch: int) -> BatchSource:
        """Return digest and watermark of a batch, from Spark's offset log and its sources' own logs."""
        offsets = read_offsets(self._location, batch)
        return BatchSource(range_digest(self._location, batch, offsets), _watermark(offsets))

    def watermark(self, batch: int) -> int | None:
        """Return a batch's watermark in milliseconds; None if there is none or it has not advanced yet."""
        return _watermark(read_offsets(self._location, batch))

    def planned(self) -> Planned | None:
        """Return the newest batch that Spark has planned, with the digests of it and of the batch before."""
        newest = self.newest_planned()
        if newest is None:
            return None
        # The digest of a batch also needs the offsets of the batch before it. Spark keeps
        # `spark.sql.streaming.minBatchesToRetain` batches, which may be as few as two.
        is_kept = newest == 1 or (newest > 1 and self._location.read(f"offsets/{newest - 2}") is not None)
        previous = self.batch_source(newest - 1).digest if is_kept else None
        return Planned(newest, self.batch_source(newest).digest, previous)

    def newest_planned(self) -> int | None:
        """Return the newest batch in Spark's offset log, None if it is empty."""
        return self._location.newest("offsets")

    def newest_completed(self) -> int | None:
        """Return the newest batch in Spark's commit log, None if it is empty."""
        return self._location.newest("commits")


def _watermark(offsets: Offsets) -> int | None:
    found = offsets.metadata.get("batchWatermarkMs", 0)
    return found if isinstance(found, int) and found > 0 else None


def _opened_file(lineage: str) -> str:
    return f"{FOLDER}/opened-{lineage}.json"
