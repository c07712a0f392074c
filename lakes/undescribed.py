"""Files that an event describes by neutral fields alone, without metadata of the table's format.

Any program can write them. A committer makes the metadata from the Parquet footer, in its check. So the
claims of the event need no trust: they are compared with the file (docs/decisions.md, 27).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from sluicegate.events.files import is_same_place
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.committers import look
from sluicegate.lakes.footers import read_footers
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.twins import require_plain

if TYPE_CHECKING:
    import pyarrow.parquet as pq

T = TypeVar("T")
Describe = Callable[[FileInfo, "pq.FileMetaData"], bytes]
"""Makes the metadata of a file from its footer. Raises BadFiles."""

NO_BLOBS: Final = 0
"""Version of the metadata in an event without any."""
_ENDING: Final = ".parquet"


def prepared(make: Callable[[], T]) -> T:
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


def is_described(event: FilesWritten) -> bool:
    """Return True if an event has files, and each has metadata."""
    return bool(event.files) and all(file.metadata for file in event.files)


def located(event: FilesWritten, location: str) -> FilesWritten:
    """Return an event with the table's own text of its location, if it names that place by another one."""
    if event.location == location or not is_same_place(event.location, location):
        return event
    return event.model_copy(update={"location": location})


def described(event: FilesWritten, storage: Storage, version: int, describe: Describe) -> FilesWritten:
    """Return an event with metadata for each of its files, of the format's version.

    `storage` is that of the event's location. Raises BadFiles or LakeUnavailable.
    """
    bare = [file for file in event.files if not file.metadata]
    for file in bare:
        require_plain(file.path)
        if not file.path.endswith(_ENDING):
            raise BadFiles(f"the file {file.path} has no metadata, and its name does not end with {_ENDING}")
    look(storage, [event.model_copy(update={"files": tuple(bare)})])
    blobs = {}
    for file, footer in zip(bare, read_footers(storage, bare), strict=True):
        blobs[file.path] = _blob(file, footer, describe)
    files = [
        file if file.metadata else file.model_copy(update={"metadata": blobs[file.path]})
        for file in event.files
    ]
    alone = len(bare) == len(files) and event.format_version == NO_BLOBS
    found = version if alone else event.format_version
    return event.model_copy(update={"files": tuple(files), "format_version": found})


def _blob(file: FileInfo, footer: "pq.FileMetaData", describe: Describe) -> bytes:
    try:
        return describe(file, footer)
    except (BadFiles, LakeUnavailable):
        raise
    except Exception as error:  # malformed bytes may raise any error in the parser
        raise BadFiles(f"the footer of {file.path} cannot be used: {error}") from error
