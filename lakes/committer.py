"""Everything that the committers of all table formats do alike."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sluicegate.events.files import is_same_place
from sluicegate.events.models import CURRENT_SCHEMA, FileInfo, FilesWritten, SnapshotRef
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.footers import read_footers
from sluicegate.lakes.history import PastSnapshot
from sluicegate.lakes.port import (
    Answer,
    BadFiles,
    Checked,
    CommitRequest,
    LakeUnavailable,
    OutcomeUnknown,
    Outdated,
    Premises,
    Publication,
    Refused,
    Unproven,
)
from sluicegate.lakes.storage import Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq


# Paths of a commit. A file that is there twice would double its rows. Each file costs about a hundred bytes.

DIGEST_SIZE: Final = 16
"""Bytes of the digest of a path. It is smaller than most paths, and a commit may have a million files."""


_ODD: Final = ("//", "/./", "/../", "#", "?")
"""Of paths that a file system takes for shorter ones, and those that readers of URIs cut."""
_DIGEST: Final = Struct(f"{DIGEST_SIZE}s")


def path_digest(path: str) -> bytes:
    """Return the digest by which a path is compared."""
    return blake2b(path.encode(), digest_size=DIGEST_SIZE).digest()


def is_plain(path: str) -> bool:
    """Return True for a path, or several with a slash between them, that all readers read alike."""
    parts = f"/{path}/"
    return not any(odd in parts for odd in _ODD)


def paths_of(event: FilesWritten) -> bytes:
    """Return the digests of an event's paths, one after the other.

    Raises BadFiles if two are the same, or if a path is not in its one form: by another one, a file could be
    there twice, or an orphan's cleaner could take a file of the table for another one.
    """
    if not is_plain("/".join([file.path for file in event.files])):
        for file in event.files:
            require_plain(file.path)
    digests = [path_digest(file.path) for file in event.files]
    if len(set(digests)) < len(digests):
        seen = UniquePaths()
        for file in event.files:
            seen.add_path(file.path)
    return b"".join(digests)


def require_plain(path: str) -> None:
    """Raise BadFiles for a path that readers do not read alike."""
    if not is_plain(path):
        raise BadFiles(
            f"the path {path!r} has an empty part, dots, '#' or '?', and not all readers find such a file. "
            "Write it without them"
        )


def digests_in(paths: bytes) -> set[bytes]:
    """Return the digests of paths that were joined."""
    # No step of it is Python's: a decision and a publication wait for this, with all their files.
    return set(chain.from_iterable(_DIGEST.iter_unpack(paths)))


def has_duplicates(paths: Iterable[bytes]) -> bool:
    """Return True if one digest is there twice. Each item is several digests, one after the other."""
    joined = b"".join(paths)
    return len(digests_in(joined)) * DIGEST_SIZE < len(joined)


class UniquePaths:
    """Set of the paths that were added so far, each only once."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def add(self, event: FilesWritten) -> None:
        """Add an event's files. Raises BadFiles if one was added before."""
        for file in event.files:
            self.add_path(file.path)

    def add_path(self, path: str) -> None:
        """Add a file. Raises BadFiles if it was added before."""
        met = len(self._met)
        self._met.add(path_digest(path))
        if len(self._met) == met:
            raise BadFiles(f"the file {path} is there twice")

    def add_checked(self, events: Iterable[Checked]) -> bool:
        """Add the files of events that were checked. Return False, and add none, if a file is there twice."""
        joined = b"".join([event.paths for event in events])
        digests = digests_in(joined)
        if len(digests) * DIGEST_SIZE < len(joined) or not self._met.isdisjoint(digests):
            return False
        self._met |= digests
        return True


# Checks of events, the reading of a commit, and outcomes.

T = TypeVar("T")


def require_files(
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


class EventContents(Generic[T]):
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
        if has_duplicates(paths):
            raise BadFiles("a file is there twice, in two events of the commit")


class BaseCommitter(ABC):
    """The meaning of errors of a publication, the same for all formats."""

    def publish(self, request: CommitRequest) -> Publication:
        try:
            return self._publish(request)
        except LakeUnavailable as error:
            return Refused(str(error), again=True)
        except Outdated:
            return Refused(cause=Cause(code=CauseCode.CHECKS_OUTDATED), again=True)

    @abstractmethod
    def _publish(self, request: CommitRequest) -> Publication:
        """Publish a request, or return why not.

        Only failures before the step that makes a snapshot visible raise LakeUnavailable, or Outdated. From
        that step on, a failure makes the outcome unknown.
        """


def check_files(
    events: Sequence[FilesWritten],
    check: Callable[[FilesWritten], Checked],
    storage: Storage,
    require_table: Callable[[], None] = lambda: None,
) -> list[Checked]:
    """Check events, then look for their files, each once. Raises BadFiles, and the errors of both steps.

    `check` raises BadFiles for all that an event itself can prove. `require_table`: see `require_files`.
    """
    # The events first: no path outside of the table is looked at.
    found = [check(event) for event in events]
    unique = UniquePaths()
    for event in events:
        unique.add(event)
    require_files(storage, events, require_table)
    return found


def checked_event(event: FilesWritten, premises: Premises, content: object, held: int) -> Checked:
    """Return an event that was checked. `held`: bytes of `content`. Raises BadFiles for its paths."""
    paths = paths_of(event)
    return Checked(
        premises=premises,
        files=len(event.files),
        rows=sum(file.rows for file in event.files),
        size=sum(file.size for file in event.files),
        paths=paths,
        content=content,
        held=len(paths) + held,
    )


def made_by(past: PastSnapshot, user: str, request: CommitRequest) -> bool:
    """Return True if a snapshot is the commit of this request by this user."""
    return (past.commit_user, past.decision, past.digest) == (user, request.decision, request.digest)


OVERTAKEN: Final = Refused(cause=Cause(code=CauseCode.OTHER_WRITER), again=True)
"""Another writer has changed the table first."""


def overtaken(asked: SnapshotRef | None, there: PastSnapshot | None) -> Refused:
    """Return the outcome of a commit on `asked`, in place of which another snapshot is there, or none."""
    expected = asked.id if asked is not None else None
    if there is None:
        return Refused(cause=Cause(code=CauseCode.SNAPSHOTS_GONE, expected=expected), again=True)
    cause = Cause(
        code=CauseCode.OTHER_WRITER,
        snapshot=there.ref.id,
        expected=expected,
        names=(there.commit_user,) if there.commit_user else (),
    )
    return Refused(cause=cause, again=True)


def outcome_unknown(code: CauseCode, snapshot: int, error: LakeUnavailable | None = None) -> OutcomeUnknown:
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


def refuse_other_format(event: FilesWritten, table_format: str) -> None:
    """Raise BadFiles if an event's files are for tables of another format."""
    if event.format != table_format:
        raise BadFiles(f"the event has the format {event.format}, but the table has {table_format}")


def refuse_other_metadata(event: FilesWritten, table_format: str, version: int) -> None:
    """Raise BadFiles if the metadata of an event's files is of another format or version."""
    refuse_other_format(event, table_format)
    if event.format_version != version:
        raise BadFiles(
            f"the metadata of the files has the `format_version` {event.format_version}, and this release "
            f"reads {version}. A file without metadata needs none"
        )


def require_schema_id(event: FilesWritten, name: str) -> None:
    """Raise BadFiles if an event names no schema, and its format has no other way to know it."""
    if event.schema_id == CURRENT_SCHEMA:
        raise BadFiles(f"the event lacks `schema_id`, which {name} needs")


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


# Proof that a commit builds on what is there: files that the head needs, and that no commit reads again.

_AT_ONCE: Final = 32
"""Files that one commit looks at again: two rounds of requests side by side in an object store."""


class BaseManifests:
    """The manifests of a table's head, each of which a committer has seen.

    The first commit looks at all. Each later one looks at those that are new, and at some of the others in
    turn: a table of 100 manifests is seen within four commits.
    """

    def __init__(self, folder: str = "") -> None:
        """`folder`: where the names of files begin, for people."""
        self._folder = folder
        self._seen: list[str] = []
        """Manifests that were seen, the one first that was not looked at for the longest time."""

    def require(
        self,
        always: Iterable[str],
        manifests: Sequence[str],
        sizes: Callable[[Sequence[str]], Sequence[int | None]],
    ) -> None:
        """Look at files, with one call of `sizes`. Raises LakeUnavailable if one is missing.

        `always`: files that each commit looks at.
        """
        needed, seen = set(manifests), set(self._seen)
        kept = [name for name in self._seen if name in needed]
        fresh = [name for name in manifests if name not in seen]
        again = kept[: max(0, _AT_ONCE - len(fresh))]
        asked = [*always, *fresh, *again]
        for name, size in zip(asked, sizes(asked), strict=True):
            if size is None:
                raise missing_file(f"{self._folder}{name}")
        self._seen = [*kept[len(again) :], *again, *fresh]


def missing_file(name: str) -> LakeUnavailable:
    """Return the error of a file of the head that is missing."""
    return LakeUnavailable(
        f"{name}, which the table's head needs, is not there, so nothing is committed on it. Mount the "
        "storage of the table, or restore the file"
    )


# Selection of small files to merge, in tiers by size.
#
# Each byte is copied a few times at most, and one commit never copies much more than one full file.

_TIERS: Final = (64, 8, 1)
"""Divisors of the target size, smallest tier first."""
_SHARE: Final = 8
"""Divisor of the least number of files of a group, for the higher tiers."""


def runs_to_merge(sizes: Sequence[int | None], target: int, least: int) -> list[tuple[int, int]]:
    """Return the runs to merge as (start, end), in order and disjoint. A size of None is never merged.

    A run is adjacent, of one tier, and has at least `least` files or `target` bytes.
    """
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(sizes):
        tier = _tier(sizes[start], target)
        end, size = start + 1, sizes[start] or 0
        while tier is not None and end < len(sizes) and size < target and _tier(sizes[end], target) == tier:
            size += sizes[end] or 0
            end += 1
        if tier is not None and end - start > 1 and (end - start >= least or size >= target):
            found.append((start, end))
        start = end
    return found


def groups_to_merge(sizes: Sequence[int], target: int, least: int) -> list[list[int]]:
    """Return the files to merge, as groups of their indexes, where the order of files has no meaning.

    A group is of one tier. It has at least `least` files of the lowest tier, or an eighth of that of a higher
    one, or `target` bytes. So fewer than 5/4 of `least` files stay below the target.
    """
    found: list[list[int]] = []
    for tier in range(len(_TIERS)):
        enough = max(least if tier == 0 else least // _SHARE, 2)
        group: list[int] = []
        bytes_of_group = 0
        for at in [at for at, size in enumerate(sizes) if _tier(size, target) == tier]:
            group.append(at)
            bytes_of_group += sizes[at]
            if bytes_of_group >= target and len(group) > 1:
                found.append(group)
                group, bytes_of_group = [], 0
        if len(group) >= enough:
            found.append(group)
    return found


def _tier(size: int | None, target: int) -> int | None:
    """Return the tier of a size; None if such a file must not be merged."""
    if size is None:
        return None
    return next((tier for tier, divisor in enumerate(_TIERS) if size * divisor < target), None)


# Files that an event describes by neutral fields alone, without metadata of the table's format.
#
# Any program can write them. A committer makes the metadata from the Parquet footer, in its check. So the
# claims of the event need no trust: they are compared with the file (docs/decisions.md, 27).

Describe = Callable[[FileInfo, "pq.FileMetaData"], bytes]
"""Makes the metadata of a file from its footer. Raises BadFiles."""

NO_METADATA: Final = 0
"""Version of the metadata in an event without any."""
_ENDING: Final = ".parquet"


def prepare_describer(make: Callable[[], T]) -> T:
    """Return what describes the files of one schema. Raises BadFiles if that cannot be made."""
    try:
        return make()
    except (BadFiles, LakeUnavailable):
        raise
    except Exception as error:  # a library may lack a type of a column
        raise BadFiles(
            f"files without metadata cannot be described for this table: {error}. Describe them by the "
            "adapter's metadata"
        ) from error


def has_metadata(event: FilesWritten) -> bool:
    """Return True if an event has files, and each has metadata."""
    return bool(event.files) and all(file.metadata for file in event.files)


def at_table_location(event: FilesWritten, location: str) -> FilesWritten:
    """Return an event with the table's own text of its location, if it names that place by another one."""
    if event.location == location or not is_same_place(event.location, location):
        return event
    return event.model_copy(update={"location": location})


def with_metadata(
    event: FilesWritten,
    table_format: str,
    version: int,
    location: str,
    storage: Storage,
    describer: Callable[[], Describe | None],
) -> FilesWritten:
    """Return an event with the table's own text of its location, and with metadata for each of its files.

    An event of another format or place stays as it is, and so does one without a describer: its check refuses
    it. Raises BadFiles or LakeUnavailable.
    """
    event = at_table_location(event, location)
    if event.format != table_format or event.location != location or has_metadata(event):
        return event
    describe = describer()
    return event if describe is None else describe_files(event, storage, version, describe)


def describe_files(event: FilesWritten, storage: Storage, version: int, describe: Describe) -> FilesWritten:
    """Return an event with metadata for each of its files, of the format's version.

    `storage` is that of the event's location. Raises BadFiles or LakeUnavailable.
    """
    bare = [file for file in event.files if not file.metadata]
    for file in bare:
        require_plain(file.path)
        if not file.path.endswith(_ENDING):
            raise BadFiles(f"the file {file.path} has no metadata, and its name does not end with {_ENDING}")
    require_files(storage, [event.model_copy(update={"files": tuple(bare)})])
    blobs = {}
    for file, footer in zip(bare, read_footers(storage, bare), strict=True):
        blobs[file.path] = _blob(file, footer, describe)
    files = [
        file if file.metadata else file.model_copy(update={"metadata": blobs[file.path]})
        for file in event.files
    ]
    alone = len(bare) == len(files) and event.format_version == NO_METADATA
    found = version if alone else event.format_version
    return event.model_copy(update={"files": tuple(files), "format_version": found})


def _blob(file: FileInfo, footer: "pq.FileMetaData", describe: Describe) -> bytes:
    try:
        return describe(file, footer)
    except (BadFiles, LakeUnavailable):
        raise
    except Exception as error:  # malformed bytes may raise any error in the parser
        raise BadFiles(f"the footer of {file.path} cannot be used: {error}") from error
