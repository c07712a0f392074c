"""Counts of a commit, for logs, metrics and its summary."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.checked import Checked

Event = FilesWritten | Checked
"""The files of an event, before or after the check of a committer."""
NAMED: Final = 64
"""Bytes of memory that one partition takes in a set, about. Its text is in memory once for all events."""
LONGEST: Final = 64 << 10
"""Characters of all partitions that an outcome names. A message of Kafka has a limit."""


def partitions_of(event: FilesWritten) -> frozenset[str]:
    """Return the partitions that get files, each as a JSON text that is the same for the same values."""
    found = {tuple(sorted(file.partition.items())): file.partition for file in event.files}
    return frozenset(sys.intern(json.dumps(each, sort_keys=True)) for each in found.values())


def touched(partitions: Iterable[str]) -> tuple[dict[str, str | None], ...] | None:
    """Return the values of partitions in a fixed order; None if there are too many for one message."""
    texts = sorted(partitions)
    if sum(map(len, texts)) > LONGEST:
        return None
    return tuple(json.loads(text) for text in texts)


@dataclass
class Tally:
    """The rows, bytes and partitions of the files that a decision commits."""

    decision: int
    events: int = 0
    rows: int = 0
    size: int = 0
    partitions: set[str] = field(default_factory=set)

    def add(self, event: Event, partitions: frozenset[str]) -> None:
        """Count the files of an event."""
        self.events += 1
        self.partitions |= partitions
        if isinstance(event, Checked):
            self.rows += event.rows
            self.size += event.size
        else:
            self.rows += sum(each.rows for each in event.files)
            self.size += sum(each.size for each in event.files)
