"""Counts of a commit, for logs, metrics and its summary."""

from dataclasses import dataclass, field
from typing import Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.checked import Checked

Event = FilesWritten | Checked
"""The files of an event, before or after the check of a committer."""
NAMED: Final = 64
"""Bytes of memory that one partition takes in a set, about."""


def partitions_of(event: FilesWritten) -> frozenset[int]:
    """Return the partitions that get files, each as a number that is the same in this process only."""
    return frozenset(hash(tuple(sorted(file.partition.items()))) for file in event.files)


@dataclass
class Tally:
    """The rows, bytes and partitions of the files that a decision commits."""

    decision: int
    events: int = 0
    rows: int = 0
    size: int = 0
    partitions: set[int] = field(default_factory=set)

    def add(self, event: Event, partitions: frozenset[int]) -> None:
        """Count the files of an event."""
        self.events += 1
        self.partitions |= partitions
        if isinstance(event, Checked):
            self.rows += event.rows
            self.size += event.size
        else:
            self.rows += sum(each.rows for each in event.files)
            self.size += sum(each.size for each in event.files)
