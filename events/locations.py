"""Which locations a stream's files may stand in."""

import posixpath
from collections.abc import Sequence
from urllib.parse import urlsplit

from sluicegate.events.models import FilesWritten


def location_problem(body: FilesWritten, allowed: Sequence[str]) -> str | None:
    """Why an event's files are outside all allowed locations; None if they are not."""
    folder = normal(body.location)
    for file in body.files:
        if urlsplit(file.path).scheme or file.path.startswith("/") or ".." in file.path.split("/"):
            return f"the path {file.path!r} is not relative to {body.location}"
    if not _inside(folder, allowed):
        return (
            f"the location {body.location} is outside the allowed ones ({', '.join(allowed)}); "
            "if it is right, add it to the stream's allowed_locations"
        )
    return None


def table_problem(table: str | None, allowed: Sequence[str]) -> str | None:
    """Why files of a job that writes to this table would be refused; None if not, or if it is not told."""
    if table is None or _inside(normal(table), allowed):
        return None
    return (
        f"the job writes to {table}, but this stream's files must stand in {', '.join(allowed)}; set the "
        "job's option `table` to the stream's table, or, if the job is right, the stream's `table` (or "
        "`allowed_locations`) in the coordinator's settings, and start the query again"
    )


def _inside(folder: str, allowed: Sequence[str]) -> bool:
    return any(folder == prefix or folder.startswith(f"{prefix}/") for prefix in map(normal, allowed))


def normal(location: str) -> str:
    """A location in one form: `file` URI or other scheme, no trailing slash, no dot segments."""
    parts = urlsplit(location)
    path = posixpath.normpath(parts.path) if parts.path else ""
    if parts.scheme in ("", "file"):
        return f"file://{path}"
    return f"{parts.scheme}://{parts.netloc}{path}".rstrip("/")
