"""Plans of a runner: one file for each division that it has had, and the lock of its base location."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.events.models import Position
from sluicegate.writer_hooks.errors import BadCheckpointLocation
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.regions.division import Division
from sluicegate.writer_hooks.spark.regions.errors import BaseInUse

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
        _sync_folder(target.parent)

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


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
