"""Checks that the files of events exist, each under its one name."""

import posixpath
from collections.abc import Sequence

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import BadFiles
from sluicegate.lakes.storage import Storage


def look(storage: Storage, events: Sequence[FilesWritten]) -> None:
    """Check that the events' files exist with the right size, and that no symbolic link leads to them.

    By a link inside of the table, a file has several names, and the rows could be there twice. The folder of
    the table itself may be a link. Raises BadFiles or LakeUnavailable.
    """
    files = [file for event in events for file in event.files]
    for folder in {posixpath.dirname(file.path) for file in files}:
        if storage.leads_out(folder):
            raise BadFiles(f"the folder {folder} of {storage.uri} leads out of the table by a link")
        if storage.has_link(folder):
            raise BadFiles(
                f"the folder {folder} of {storage.uri} is another name of a folder, by a link. Write files "
                "under their own names"
            )
    sizes = storage.sizes([file.path for file in files])
    for file, size in zip(files, sizes, strict=True):
        if size is None:
            raise BadFiles(f"the file {file.path} is not in {storage.uri}")
        if size != file.size:
            raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")
        if storage.is_link(file.path):
            where = "a link out of the table" if storage.leads_out(file.path) else "a link to another file"
            raise BadFiles(f"the file {file.path} of {storage.uri} is {where}")
