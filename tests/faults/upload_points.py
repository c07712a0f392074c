"""Places of asynchronous uploads. The campaigns use none; tests/integration/test_uploads.py kills at each."""

from typing import Final

from sluicegate.failpoints.names import Failpoint

UPLOAD_POINTS: Final = frozenset(point for point in Failpoint if point.startswith("upload."))
