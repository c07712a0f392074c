"""What a query's checkpoint location says: who the query is, what a batch read, what it opened."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.events import Assignment, Parent
from sluicegate.writer_hooks.errors import BadCheckpointLocation, NotOurs
from sluicegate.writer_hooks.opening import Planned
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.ranges import Offsets, json_object, range_digest, read_offsets

FOLDER: Final = "sluicegate"
LINEAGE_FILE: Final = f"{FOLDER}/lineage.json"


class LineageMarker(BaseModel):
    """Which life of the query's batch numbering this is; a rewind raises the generation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str
    generation: int = 0
    first: int = 0
    """The first batch of this generation; it has no predecessor in the lineage."""
    parents: tuple[Parent, ...] = ()
    rewinding: bool = False
    """Set while the location is being set back: no batch may run before that is done."""
    former: "LineageMarker | None" = None
    """Meanwhile, what is recorded again if the new lineage is refused."""

    @property
    def lineage(self) -> str:
        """The lineage's name."""
        return f"{self.query}.{self.generation}"


class OpenedMarker(BaseModel):
    """An opening that the coordinator accepted, so that later batches need not ask again."""

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
    """What a batch read."""

    digest: str
    """Equal for every replay of the batch, different for another range of the sources."""
    watermark: int | None
    """Milliseconds since the Unix epoch, when the query has a watermark and it has moved."""


class Checkpoint:
    """A query's checkpoint location. Every method may raise BadCheckpointLocation."""

    def __init__(self, uri: str) -> None:
        self._location = Location(uri)

    def query_id(self) -> str | None:
        """The id of the query, None before Spark has written it."""
        content = self._location.read("metadata")
        if content is None:
            return None
        found = json_object(content, "metadata").get("id")
        if not isinstance(found, str):
            raise BadCheckpointLocation(f"{self._location.uri}/metadata names no query id")
        return found

    def lineage(self, parents: Callable[[], tuple[Parent, ...]] = tuple) -> LineageMarker:
        """The lineage of the query, which is recorded when its first batch begins.

        A checkpoint location whose query already has batches behind it, but no record of its lineage, is
        refused: its numbering may belong to another sink, or the record was lost. Raises NotOurs before any
        batch has been planned, as in a continuous query.
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
        """Record that this sink's numbering begins at a batch, behind checkpoints of other lineages."""
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
        """The recorded lineage, None if there is none for the query that is there now."""
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
        # The record of a query that was there before, whose metadata was deleted: another life altogether.
        return marker if marker.query == query else None

    def write_lineage(self, marker: LineageMarker) -> None:
        """Record a lineage."""
        self._location.write(LINEAGE_FILE, marker.model_dump_json().encode())

    def opened(self, lineage: str) -> OpenedMarker | None:
        """The accepted opening of a lineage, None if there is none."""
        content = self._location.read(_opened_file(lineage))
        if content is None:
            return None
        try:
            return OpenedMarker.model_validate_json(content)
        except ValidationError:
            return None  # asking the coordinator again is safe

    def opened_region(self) -> tuple[str, LineageMarker]:
        """The region that the location belongs to, with its lineage."""
        marker = self.known_lineage()
        opened = None if marker is None else self.opened(marker.lineage)
        if marker is None or opened is None:
            raise BadCheckpointLocation(
                f"{self._location.uri} is no checkpoint location of a query that has written with Sluicegate"
            )
        return opened.region, marker

    def write_opened(self, lineage: str, marker: OpenedMarker) -> None:
        """Remember an accepted opening."""
        self._location.write(_opened_file(lineage), marker.model_dump_json().encode())

    def forget_opened(self, lineage: str) -> None:
        """Let the next run ask again."""
        self._location.delete(_opened_file(lineage))

    def batch_source(self, batch: int) -> BatchSource:
        """Digest and watermark of a batch, from Spark's offset log and its sources' own logs."""
        offsets = read_offsets(self._location, batch)
        return BatchSource(range_digest(self._location, batch, offsets), _watermark(offsets))

    def watermark(self, batch: int) -> int | None:
        """A batch's watermark, when the query has one and it has moved."""
        return _watermark(read_offsets(self._location, batch))

    def planned(self) -> Planned | None:
        """The newest batch that Spark has planned, with what it and the one before it read."""
        newest = self.newest_planned()
        if newest is None:
            return None
        # Spark keeps as many batches as it is told to, and two are the least.
        is_kept = newest == 1 or (newest > 1 and self._location.read(f"offsets/{newest - 2}") is not None)
        previous = self.batch_source(newest - 1).digest if is_kept else None
        return Planned(newest, self.batch_source(newest).digest, previous)

    def newest_planned(self) -> int | None:
        """The newest batch that Spark has planned."""
        return self._location.newest("offsets")

    def newest_completed(self) -> int | None:
        """The newest batch that Spark knows to be complete."""
        return self._location.newest("commits")


def _watermark(offsets: Offsets) -> int | None:
    found = offsets.metadata.get("batchWatermarkMs", 0)
    return found if isinstance(found, int) and found > 0 else None


def _opened_file(lineage: str) -> str:
    return f"{FOLDER}/opened-{lineage}.json"
