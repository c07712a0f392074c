"""Checks that the files of events exist."""

import posixpath
from collections.abc import Sequence

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import BadFiles
from sluicegate.lakes.storage import Storage


def look(storage: Storage, events: Sequence[FilesWritten]) -> None:
    """Check that the events' files exist with the right size, inside the folder after all links are resolved.

    Raises BadFiles or LakeUnavailable.
    """
    files = [file for event in events for file in event.files]
    for folder in {posixpath.dirname(file.path) for file in files}:
        if storage.leads_out(folder):
            raise BadFiles(f"the folder {folder} of {storage.uri} leads out of the table by a link")
    sizes = storage.sizes([file.path for file in files])
    for file, size in zip(files, sizes, strict=True):
        if size is None:
            raise BadFiles(f"the file {file.path} is not in {storage.uri}")
        if size != file.size:
            raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")
        if storage.is_link(file.path) and storage.leads_out(file.path):
            raise BadFiles(f"the file {file.path} of {storage.uri} is a link out of the table")
