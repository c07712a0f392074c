"""Rewind of a checkpoint location to a checkpoint, as a new incarnation: the file operations.

The order is part of the protocol. First the generation is raised, then the caller opens the new incarnation,
and only after its acceptance the location's files are changed. Each step may be repeated.
"""

import json
import re
from typing import Final

from sluicegate.events.models import Parent, Position
from sluicegate.writer_hooks.errors import BadCheckpointLocation
from sluicegate.writer_hooks.spark.checkpoint import FOLDER, Checkpoint, LineageMarker, OpenedMarker
from sluicegate.writer_hooks.spark.location import Location

_LOGS: Final = ("commits", "offsets")
_BATCH: Final = re.compile(r"^\.?(\d+)(\.crc)?$")
_STATE: Final = re.compile(r"^\.?(\d+)(_[\w-]+)*\.(delta|snapshot|zip|changelog)(\.crc)?$")
_COMMIT_VERSION: Final = "v1"
_ANEW: Final = (
    "start the query in an empty location, with a source that begins right after the committed rows; that "
    "start is refused, and the refusal names the command to accept it: sluicegate accept"
)
_PUT_BACK: Final = f"Put the newer location back, and repeat the command. If it is lost, {_ANEW}"


class Rewind:
    """A location, and the checkpoint that it returns to. Methods may raise BadCheckpointLocation."""

    def __init__(self, uri: str, region: str, committed: Position) -> None:
        self._location = Location(uri)
        self._checkpoint = Checkpoint(uri)
        self._region = region
        self._to = committed.checkpoint
        self._committed = committed
        self.marker = self._known()
        """Incarnation that is currently recorded."""

    @property
    def opened(self) -> OpenedMarker | None:
        """Newest accepted opening in the location, None if there is none."""
        for generation in range(self.marker.generation, -1, -1):
            found = self._checkpoint.opened(f"{self.marker.query}.{generation}")
            if found is not None:
                return found
        return None

    @property
    def is_back(self) -> bool:
        """True if the location is already at the checkpoint, in an incarnation that begins there."""
        marker = self.marker
        untouched = (self._checkpoint.newest_planned() or 0) <= self._to
        return not marker.rewinding and marker.first == self._to + 1 and bool(marker.parents) and untouched

    def digest(self) -> str:
        """Return the digest of the checkpoint's source range in the location."""
        return self._checkpoint.batch_source(self._to).digest

    def examine(self, recorded: str | None) -> None:
        """Raise BadCheckpointLocation if the rewind could not be finished; nothing is changed.

        `recorded` is the digest of the committed checkpoint, if it is known.
        """
        uri, newest = self._location.uri, self._checkpoint.newest_planned()
        if newest is None or newest < self._to:
            raise BadCheckpointLocation(
                f"{uri} knows batches up to {newest} only, but batch {self._to} is committed: it was "
                f"restored from a backup, or partly deleted. {_PUT_BACK}"
            )
        if self._location.read(f"offsets/{self._to}") is None:
            raise BadCheckpointLocation(
                f"{uri} has no offsets/{self._to} any more, so the query cannot go on behind "
                f"batch {self._to}: Spark keeps spark.sql.streaming.minBatchesToRetain batches; {_ANEW}"
            )
        if recorded is not None and self.digest() != recorded:
            raise BadCheckpointLocation(
                f"batch {self._to} is committed with other source data than {uri} has for it: the location "
                "was restored from a backup, or partly deleted. A query that goes on from there would lose "
                f"rows or write them twice. {_PUT_BACK}"
            )
        stateful = self._state_versions()
        if stateful and self._location.read(f"commits/{self._to}") is None:
            raise BadCheckpointLocation(
                f"the query in {self._location.uri} keeps state and has not finished batch {self._to}: start "
                "it once, so that it does, and repeat"
            )
        lacking = sorted(place for place, held in stateful.items() if self._to + 1 not in held)
        if lacking:
            raise BadCheckpointLocation(
                f"the query in {self._location.uri} keeps state, and that as of batch {self._to} is not "
                f"there any more ({', '.join(lacking[:3])}); {_ANEW}"
            )

    def raise_generation(self) -> LineageMarker:
        """Record the new incarnation. From now on no batch runs until the rewind is finished."""
        marker = self.marker
        parent = Parent(
            region=self._region, lineage=self._committed.lineage, checkpoint=self._committed.checkpoint
        )
        self.marker = LineageMarker(
            query=marker.query,
            generation=marker.generation if marker.rewinding else marker.generation + 1,
            first=self._to + 1,
            parents=(parent,),
            rewinding=True,
            former=marker.former if marker.rewinding else marker,
        )
        self._checkpoint.write_lineage(self.marker)
        return self.marker

    def set_back(self, reason: str) -> int:
        """Move the planned and finished batches after the checkpoint to the backup; return their number."""
        told = {
            "to": self._to,
            "reason": reason,
            "parents": [each.model_dump() for each in self.marker.parents],
        }
        self._location.write(f"{self.backup}/reason.json", json.dumps(told).encode())
        self._finish_last()
        for name in [*(name for log in _LOGS for name in self._beyond(log)), *self._state_beyond()]:
            self._put_aside(name)
        moved = (name.rpartition("/")[2] for name in self._location.files(f"{self.backup}/offsets"))
        return sum(name.isdigit() for name in moved)

    def finish(self) -> LineageMarker:
        """Allow the query to run again."""
        self.marker = self.marker.model_copy(update={"rewinding": False, "former": None})
        self._checkpoint.write_lineage(self.marker)
        return self.marker

    def give_up(self) -> None:
        """Restore the previous marker: the remedy of the refusal may require a start of the query."""
        if self.marker.former is not None:
            self._checkpoint.write_lineage(self.marker.former)

    @property
    def backup(self) -> str:
        """Backup folder for moved files, relative to the location."""
        return f"{FOLDER}/rewound-{self.marker.generation}"

    def _known(self) -> LineageMarker:
        marker = self._checkpoint.known_lineage()
        uri = self._location.uri
        if marker is None:
            raise BadCheckpointLocation(
                f"{uri} is no checkpoint location of a query that writes with Sluicegate: it has no "
                f"{FOLDER}/lineage.json of its query; give the checkpointLocation of region {self._region}"
            )
        query, _, generation = self._committed.lineage.rpartition(".")
        if query != marker.query or not generation.isdigit() or int(generation) > marker.generation:
            raise BadCheckpointLocation(
                f"region {self._region} stands in lineage {self._committed.lineage}, but {uri} belongs to "
                f"the query {marker.query}, generation {marker.generation}; give the one of that lineage"
            )
        return marker

    def _finish_last(self) -> None:
        """Write Spark's commit entry of the committed batch, if the query ended before Spark did.

        Otherwise Spark would run the batch again.
        """
        name = f"commits/{self._to}"
        if self._location.read(name) is not None:
            return
        watermark = self._checkpoint.watermark(self._to) or 0
        content = json.dumps({"nextBatchWatermarkMs": watermark}, separators=(",", ":"))
        self._location.write(name, f"{_COMMIT_VERSION}\n{content}".encode())

    def _put_aside(self, name: str) -> None:
        """Move a file to the backup; an earlier backup of the same name stays."""
        target = f"{self.backup}/{name}"
        while self._location.read(target) is not None:
            target += ".later"
        self._location.move(name, target)

    def _beyond(self, log: str) -> list[str]:
        """Return a log's entries after the checkpoint, with their checksum files, newest first."""
        found = [
            (int(match[1]), name)
            for name in self._location.files(log)
            if (match := _BATCH.match(name.rpartition("/")[2])) and int(match[1]) > self._to
        ]
        # Newest first: after an interruption, the remaining entries are still contiguous.
        return [name for _, name in sorted(found, reverse=True)]

    def _state_files(self) -> list[tuple[str, int]]:
        return [
            (name, int(match[1]))
            for name in self._location.files("state", below=True)
            if (match := _STATE.match(name.rpartition("/")[2]))
        ]

    def _state_versions(self) -> dict[str, set[int]]:
        """Return the state versions of each partition of a stateful query; batch n writes version n + 1."""
        found: dict[str, set[int]] = {}
        for name, version in self._state_files():
            found.setdefault(name.rpartition("/")[0], set()).add(version)
        return found

    def _state_beyond(self) -> list[str]:
        return [name for name, version in self._state_files() if version > self._to + 1]
