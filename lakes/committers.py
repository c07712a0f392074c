"""Parts that the committers of all table formats share: looks at files, the reading of events, outcomes."""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from sluicegate.events.models import FilesWritten
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.checked import Checked, Outdated, Premises
from sluicegate.lakes.history import PastSnapshot
from sluicegate.lakes.port import (
    Answer,
    BadFiles,
    CommitRequest,
    Conflict,
    LakeUnavailable,
    OutcomeUnknown,
    SnapshotRef,
    Unproven,
)
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.twins import any_twice

T = TypeVar("T")


def look(
    storage: Storage, events: Sequence[FilesWritten], require_table: Callable[[], None] = lambda: None
) -> None:
    """Check that the events' files exist with the right size, and that no symbolic link leads to them.

    `require_table` raises LakeUnavailable if the whole table is away. It is called before a file is blamed.
    By a link inside of the table, a file has several names, and the rows could be there twice. The folder of
    the table itself may be a link. Raises BadFiles or LakeUnavailable.
    """
    files = [file for event in events for file in event.files]
    for folder in {posixpath.dirname(file.path) for file in files}:
        if not storage.has_link(folder):
            continue
        if storage.leads_out(folder):
            raise BadFiles(f"the folder {folder} of {storage.uri} leads out of the table by a link")
        raise BadFiles(
            f"the folder {folder} of {storage.uri} is another name of a folder, by a link. Write files "
            "under their own names"
        )
    sizes = storage.sizes([file.path for file in files])
    for file, size in zip(files, sizes, strict=True):
        if size is None:
            require_table()
            raise BadFiles(f"the file {file.path} is not in {storage.uri}")
        if size != file.size:
            raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")
        if storage.is_link(file.path):
            where = "a link out of the table" if storage.leads_out(file.path) else "a link to another file"
            raise BadFiles(f"the file {file.path} of {storage.uri} is {where}")


class Reading(Generic[T]):
    """Single iteration over the events of a commit. It detects duplicate files, and adds up their sizes."""

    def __init__(
        self,
        events: Sequence[FilesWritten | Checked],
        check: Callable[[Sequence[FilesWritten]], Sequence[Checked]],
        premises: Premises,
        kind: type[T],
    ) -> None:
        """`kind` is the type of the adapter's content in checked events; the others are checked now."""
        self._events = events
        self._check = check
        self._premises = premises
        self._kind = kind
        self.rows = 0
        self.size = 0
        """Of all files so far, in bytes."""

    def __iter__(self) -> Iterator[T]:
        """Yield the contents. Raises BadFiles, Outdated, and the errors of the check.

        The end of the iteration raises BadFiles for a file that is there twice.
        """
        return (content for _, content in self.pairs())

    def pairs(self) -> Iterator[tuple[Checked, T]]:
        """Yield the events with their contents, as the iteration does."""
        paths = list[bytes]()
        for event in self._events:
            checked = event if isinstance(event, Checked) else self._check([event])[0]
            content = checked.content
            if checked.premises != self._premises or not isinstance(content, self._kind):
                raise Outdated
            paths.append(checked.paths)
            self.rows += checked.rows
            self.size += checked.size
            yield checked, content
        if any_twice(paths):
            raise BadFiles("a file is there twice, in two events of the commit")


def made_by(past: PastSnapshot, user: str, request: CommitRequest) -> bool:
    """Return True if a snapshot is the commit of this request by this user."""
    return (past.commit_user, past.decision, past.digest) == (user, request.decision, request.digest)


def overtaken(asked: SnapshotRef | None, there: PastSnapshot | None) -> Conflict:
    """Return the conflict of a commit on `asked`, in place of which another snapshot is there, or none."""
    expected = asked.id if asked is not None else None
    if there is None:
        return Conflict(cause=Cause(code=CauseCode.SNAPSHOTS_GONE, expected=expected))
    return Conflict(
        cause=Cause(
            code=CauseCode.OTHER_WRITER,
            snapshot=there.ref.id,
            expected=expected,
            names=(there.commit_user,) if there.commit_user else (),
        )
    )


def unknown(code: CauseCode, snapshot: int, error: LakeUnavailable | None = None) -> OutcomeUnknown:
    """Return the outcome of a commit whose snapshot may count, or may not."""
    return OutcomeUnknown(str(error or ""), Cause(code=code, snapshot=snapshot))


def with_overwriting(answer: Answer, storage: Storage) -> Answer:
    """Name the usual cause in an object store, where a writer without a lock replaces snapshots."""
    if not storage.object_store or not isinstance(answer, Unproven):
        return answer
    cause = answer.cause
    if cause is None or cause.code is not CauseCode.RECORDED_DIFFERS:
        return answer
    return replace(answer, cause=cause.model_copy(update={"code": CauseCode.RECORDED_OVERWRITTEN}))


def refuse_specs(event: FilesWritten, name: str) -> None:
    """Raise BadFiles if an event names a partition spec, which the format of this name does not have."""
    if event.spec_id:
        raise BadFiles(
            f"the files state the partition spec {event.spec_id}, but tables of the format {name} have no "
            "partition specs. Leave spec_id out of the event"
        )


def refuse_other_schema(event: FilesWritten, digest: str) -> None:
    """Raise BadFiles if the files were written with another schema than that of their id in the table."""
    if event.schema_digest not in ("", digest):
        raise BadFiles(
            f"the files were written with another schema {event.schema_id} than the table has now: the table "
            "was restored from a copy, or made again, and then altered"
        )
