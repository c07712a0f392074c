"""Places beside the records of listeners, for tests/integration/test_listeners_killed.py.

The streams of the campaigns have no listeners.
"""

from typing import Final

from sluicegate.failpoints.names import Failpoint

LISTENER_POINTS: Final = frozenset(point for point in Failpoint if point.startswith("listener-"))
