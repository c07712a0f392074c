"""Counts of a commit, for logs and metrics."""

from collections.abc import Callable
from dataclasses import dataclass

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.checked import Checked

Event = FilesWritten | Checked
"""The files of an event, before or after the check of a committer."""


@dataclass
class Tally:
    """The rows and bytes of the files that a decision commits."""

    decision: int
    events: int = 0
    rows: int = 0
    size: int = 0

    def counted(self, read: Callable[[int], Event]) -> Callable[[int], Event]:
        """Read events as before, each once, and count their files."""

        def counting(offset: int) -> Event:
            event = read(offset)
            self.events += 1
            if isinstance(event, Checked):
                self.rows += event.rows
                self.size += event.size
            else:
                self.rows += sum(each.rows for each in event.files)
                self.size += sum(each.size for each in event.files)
            return event

        return counting
