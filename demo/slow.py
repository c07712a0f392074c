"""A region whose storage is slow for a while, and then silent."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluicegate.lakes import FileWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.events.models import FileInfo

VARIABLE: Final = "SLUICEGATE_DEMO_SLOW"
"""Environment variable with the plan; the executors' Python processes inherit it from the driver."""

_SLOW_SECONDS: Final = 1.5
_SILENT_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Slowness:
    """Seconds by which the storage of one region delays the files of some of its batches."""

    region: str
    delays: Mapping[int, float]

    @classmethod
    def plan(cls, region: str, batches: int) -> "Slowness":
        """Plan a few slow batches after the first ones, then one very slow batch, then no delay."""
        first, count = max(1, batches // 8), max(1, batches // 10)
        slow = dict.fromkeys(range(first, first + count), _SLOW_SECONDS)
        return cls(region, {**slow, first + count: _SILENT_SECONDS})

    def to_text(self) -> str:
        """Format the plan for the environment variable."""
        delays = {str(batch): seconds for batch, seconds in self.delays.items()}
        return json.dumps({"region": self.region, "delays": delays})

    @classmethod
    def from_text(cls, text: str) -> "Slowness":
        """Parse the text of `to_text`."""
        found = json.loads(text)
        return cls(found["region"], {int(batch): seconds for batch, seconds in found["delays"].items()})

    def delay(self, region: str, batch: int) -> float:
        """Return the delay of the batch's files in seconds."""
        return self.delays.get(batch, 0.0) if region == self.region else 0.0


class SlowWriter:
    """Writer that pauses before a file is durable."""

    def __init__(self, inner: FileWriter, pause: Callable[[], None]) -> None:
        self._inner = inner
        self._pause = pause
        self.location = inner.location
        self.schema_id = inner.schema_id
        self.spec_id = inner.spec_id
        self.table_identity, self.schema_digest = inner.table_identity, inner.schema_digest

    def write(self, batch: "pa.RecordBatch") -> None:
        """See FileWriter."""
        self._inner.write(batch)

    def finish(self) -> Iterator["FileInfo"]:
        """See FileWriter."""
        self._pause()
        return self._inner.finish()

    def abort(self) -> None:
        """See FileWriter."""
        self._inner.abort()
