"""Places of asynchronous uploads, for tools/bench/ways_in.py and tests/integration/test_uploads.py.

The campaigns of the data source pass none of them.
"""

from typing import Final

from sluicegate.failpoints.names import Failpoint

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
