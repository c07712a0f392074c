"""Places that the campaigns of the data source do not pass: of uploads, and of records of listeners."""

from typing import Final

from sluicegate.failpoints.names import Failpoint

LISTENER_POINTS: Final = frozenset(point for point in Failpoint if point.startswith("listener-"))
UPLOAD_POINTS: Final = frozenset(point for point in Failpoint if point.startswith("upload."))
SPOOLED: Final = (Failpoint.UPLOAD_ENTRY_BEFORE, Failpoint.UPLOAD_ENTRY_AFTER)
"""Passed by each writer that leaves its files in the spool."""
SENDING: Final = (
    Failpoint.UPLOAD_PUT_BEFORE,
    Failpoint.UPLOAD_PUT_AFTER,
    Failpoint.UPLOAD_PUBLISH_BEFORE,
    Failpoint.UPLOAD_PUBLISH_AFTER,
    Failpoint.UPLOAD_REMOVED,
)
"""Passed by the uploader for each entry of the spool."""
