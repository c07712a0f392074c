"""Plans of a runner: one file for each division that it has had, and the lock of its base location."""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.events.models import Position
from sluicegate.lakes.storage_local import sync_folder
from sluicegate.writer_hooks.errors import BadCheckpointLocation
from sluicegate.writer_hooks.spark.checkpoint import (
    FOLDER,
    CheckpointLocation,
    IncarnationMarker,
    new_incarnation,
    read_offsets,
)
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.regions.division import BaseInUse, Division, DivisionRefused, Rows, Source

_PLANS: Final = "plans"
_FILE: Final = re.compile(r"^plans/(\d+)\.json$")
_ANY: Final = re.compile(r"^plans/(\d+)\.(json|given-up)$")


class Plan(BaseModel):
    """A division, with everything that its queries need to start. It is written before any of them starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    """Number of the plan and of its assignment."""
    after: int = 0
    """Decision of the final cut of the assignment before."""
    division: Division
    offsets: dict[str, dict[int, int]] | None = None
    """Kafka source: the offset at which each known partition begins."""
    files: bool = False
    """True: the locations are seeded with the files that the plan before has committed."""
    former: int | None = None
    """Number of the plan before."""
    source: str | None = None
    """Format of the source with its topics; None: a function."""
    bases: dict[str, Position] = {}
    """Positions of the regions that keep their names, as of the final cut."""


class Plans:
    """Plans at a base location. Every method may raise BadCheckpointLocation."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")
        self._location = Location(self.base)

    def newest(self) -> Plan | None:
        """Return the newest plan, None if there is none."""
        number = max(self._numbers(_FILE), default=None)
        return None if number is None else self.read(number)

    def read(self, number: int) -> Plan | None:
        """Return a plan, None if there is none of that number."""
        content = self._location.read(f"{_PLANS}/{number}.json")
        if content is None:
            return None
        try:
            plan = Plan.model_validate_json(content)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
        else:
            if plan.number == number:
                return plan
            reason = f"it has the number {plan.number}"
        # Queries may have used it, so no other plan takes its place.
        raise BadCheckpointLocation(
            f"the plan {self.base}/{_PLANS}/{number}.json cannot be used: {reason}. Run the release that has "
            "written it, or restore the file"
        )

    def former(self, plan: Plan) -> Plan | None:
        """Return the plan before a plan, None if it is the first one."""
        if plan.former is None:
            return None
        found = self.read(plan.former)
        if found is None:
            raise BadCheckpointLocation(
                f"the plan {plan.former} is gone, so the runner cannot tell what its regions have committed. "
                f"Put {self.base}/{_PLANS}/{plan.former}.json back"
            )
        return found

    def next_number(self, first: int) -> int:
        """Return a number that no plan has had, `first` if there was none."""
        return max((each + 1 for each in self._numbers(_ANY)), default=first)

    def write(self, plan: Plan) -> None:
        """Write a plan whole; it is durable when this returns."""
        name, content = f"{_PLANS}/{plan.number}.json", plan.model_dump_json(indent=2).encode()
        folder = local_folder(self.base)
        if folder is None:
            self._location.write(name, content)
            return
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        sync_folder(str(target.parent))

    def give_up(self, number: int) -> None:
        """Rename a plan, so that the one before it counts. Its number is not used again."""
        self._location.move(f"{_PLANS}/{number}.json", f"{_PLANS}/{number}.given-up")

    def location_of(self, plan: Plan, region: str) -> str:
        """Return the checkpoint location of a region."""
        return f"{self.base}/checkpoints/{plan.number}/{region}"

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        return [int(match[1]) for name in self._location.files(_PLANS) if (match := pattern.match(name))]


@contextmanager
def only_runner(base: str) -> Iterator[None]:
    """Hold the base location's lock. Raises BaseInUse if another runner has it.

    A location that is no local folder has no lock.
    """
    folder = local_folder(base)
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+b") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BaseInUse(
                f"another runner has the base location {base}; stop it, or give this one another base, and "
                f"another stream ({error.strerror})"
            ) from error
        yield


def local_folder(uri: str) -> Path | None:
    """Return the folder of a location in the file system, None for a location in a store."""
    if uri.startswith("/"):
        return Path(uri)
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


# --- files that earlier plans have committed, seeded into new locations -------------------------------
#
# The seeded location has one batch that Spark counts as done: the files that are never read again. The
# first batch of its query is 1.

_LOG: Final = "sources/0"
_VERSION: Final = "v1"
MAX_AGE: Final = "maxFileAge"
ALL_AGES: Final = "36500d"
_DONE: Final = f"{FOLDER}/seeded"


def require_seedable(uri: str) -> None:
    """Raise DivisionRefused if a location is not one of a plain query of one source of files."""
    location = Location(uri)
    folders = {name.split("/")[1] for name in location.files("sources", below=True)}
    if folders - {"0"}:
        raise DivisionRefused(
            f"the query in {uri} reads several sources ({', '.join(sorted(folders))}), so the runner cannot "
            "change its division. Give each region one source of files, or keep the division"
        )
    if location.files("state", below=True):
        raise DivisionRefused(
            f"the query in {uri} keeps state, which no other division can continue. Keep the division, or "
            "start a new stream"
        )


def files_of(uri: str) -> list[tuple[str, int]]:
    """Return path and time of the files that the completed batches of a location have read."""
    newest = CheckpointLocation(uri).newest_completed()
    if newest is None:
        return []
    location = Location(uri)
    # The log may have a later entry: files of a batch that was never planned.
    offset = json.loads(next(iter(read_offsets(location, newest).sources.values()), "-1"))
    upto = offset["logOffset"] if isinstance(offset, dict) else -1
    found: dict[str, int] = {}
    for name in location.files(_LOG):
        if name.rpartition("/")[2].startswith("."):
            continue
        for line in (location.read(name) or b"").decode().splitlines()[1:]:
            entry = json.loads(line)
            if entry["batchId"] <= upto:
                found[entry["path"]] = entry["timestamp"]
    return sorted(found.items())


def is_below(file: str, folder: str) -> bool:
    """Return True if a file is in a folder or below it, however the store is named."""
    return f"{unquote(urlsplit(file).path)}/".startswith(f"{unquote(urlsplit(folder).path).rstrip('/')}/")


def committed_files(locations: Iterable[tuple[str, str]]) -> list[tuple[str, int]]:
    """Return path and time of the files that old regions have committed, by location and folder of each.

    Raises DivisionRefused if files cannot be compared with their folder.
    """
    found: set[tuple[str, int]] = set()
    for location, folder in locations:
        files = files_of(location)
        if strange := [path for path, _ in files if not is_below(path, folder)]:
            raise DivisionRefused(
                f"the file {strange[0]} was read from {folder}, and its name does not show that, so the "
                "runner cannot tell which files another folder has. Keep the division"
            )
        found.update(files)
    return sorted(found)


def history(plans: Plans, plan: Plan) -> list[tuple[str, int]]:
    """Return path and time of the files that a plan of paths, and all plans before, have committed.

    Raises DivisionRefused if that is not known.
    """
    found: set[tuple[str, int]] = set()
    each: Plan | None = plan
    while each is not None:
        places = {plans.location_of(each, name): path for name, path in each.division.paths.items()}
        gone = [uri for uri in places if each is not plan and Location(uri).read("metadata") is None]
        if gone:
            raise DivisionRefused(
                f"the location {gone[0]} of an earlier plan is gone, so the runner cannot tell which files "
                "it has committed. Put it back, or keep the division"
            )
        found.update(committed_files(places.items()))
        each = plans.former(each)
    return sorted(found)


def is_mixed(plans: Plans, former: Plan | None, folder: str) -> bool:
    """Return True if a folder has files of another folder that an earlier plan had.

    `former` is the newest of the earlier plans.
    """
    while former is not None:
        if any(
            path != folder and (is_below(path, folder) or is_below(folder, path))
            for path in former.division.paths.values()
        ):
            return True
        former = plans.former(former)
    return False


def require_all_ages(source: Source | Rows, plans: Plans, former: Plan | None, division: Division) -> None:
    """Raise DivisionRefused if an option of the source would have Spark skip old files of mixed folders."""
    if not isinstance(source, Source) or source.option(MAX_AGE) is None:
        return
    for name, folder in division.paths.items():
        if is_mixed(plans, former, folder):
            raise DivisionRefused(
                f"the folder {folder} of the region {name} has files of a folder of an earlier plan. With "
                f"the option {MAX_AGE}, Spark would skip old files that no region has read. Leave the option "
                "out: the runner sets it to 100 years for such a folder"
            )


def seed(
    uri: str, files: list[tuple[str, int]], stream: str, region: str, assignment: int, base: Position | None
) -> None:
    """Make a location whose query passes the files over. A location that is seeded already stays as it is.

    No query may have started in it.
    """
    location = Location(uri)
    if location.read(_DONE) is not None:
        return
    query = str(uuid4())
    lines = [json.dumps({"path": path, "timestamp": at, "batchId": 0}) for path, at in files]
    content = {
        "metadata": json.dumps({"id": query}),
        f"{_LOG}/0": "\n".join([_VERSION, *lines]),
        "offsets/0": "\n".join(
            [
                _VERSION,
                json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}),
                # Spark compares offsets as texts. One with a space is another one: a batch for no rows.
                json.dumps({"logOffset": 0}, separators=(",", ":")),
            ]
        ),
        "commits/0": f'{_VERSION}\n{{"nextBatchWatermarkMs":0}}',
    }
    for name, text in content.items():
        location.write(name, text.encode())
    marker = IncarnationMarker(
        query=query,
        incarnation=new_incarnation(),
        base=base,
        first=1,
        stream=stream,
        region=region,
        assignment=assignment,
    )
    CheckpointLocation(uri).write_marker(marker)
    location.write(_DONE, b"")
