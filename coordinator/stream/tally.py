"""Counts of a commit, for logs, metrics and its summary."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluicegate.events.models import FilesOfSize, FilesWritten
from sluicegate.lakes.checked import Checked

Event = FilesWritten | Checked
"""The files of an event, before or after the check of a committer."""
NAMED: Final = 256
"""Bytes of memory that one entry of sizes takes, about. The text of a partition is in memory once for all."""
LONGEST: Final = 64 << 10
"""Characters of all partitions that an outcome names. A message of Kafka has a limit."""
MOST_SIZES: Final = 4_000
"""Number of entries of sizes that an outcome has, about 50 characters each."""
_LARGEST: Final = 1 << 62

Sizes = Mapping[tuple[str, int], tuple[int, int]]
"""Number and bytes of files, by partition and by the power of two that is the next above their sizes.

A partition is a JSON text that is the same for the same values.
"""


def sizes_of(event: FilesWritten) -> Sizes:
    """Return the partitions that get files, and the sizes of these."""
    names: dict[tuple[tuple[str, str | None], ...], str] = {}
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for file in event.files:
        values = tuple(sorted(file.partition.items()))
        if (name := names.get(values)) is None:
            name = names[values] = sys.intern(json.dumps(file.partition, sort_keys=True))
        key = name, min(1 << file.size.bit_length(), _LARGEST)
        count, size = found.get(key, (0, 0))
        found[key] = count + 1, size + file.size
    return found


def add_sizes(total: dict[tuple[str, int], tuple[int, int]], more: Sizes) -> None:
    """Add sizes to a total."""
    for key, (count, size) in more.items():
        before = total.get(key, (0, 0))
        total[key] = before[0] + count, before[1] + size


class Touched(NamedTuple):
    """The partitions of a commit as its summary has them."""

    partitions: int
    values: tuple[dict[str, str | None], ...] | None
    """In a fixed order; None if there are too many for one message."""
    sizes: tuple[tuple[FilesOfSize, ...], ...] | None
    """In the same order; None if there are too many for one message."""


def touched(sizes: Sizes) -> Touched:
    """Return the partitions of a commit as its summary has them."""
    parts: dict[str, list[FilesOfSize]] = {}
    for (name, below), (count, size) in sorted(sizes.items()):
        parts.setdefault(name, []).append(FilesOfSize(below=below, files=count, bytes=min(size, _LARGEST)))
    if sum(map(len, parts)) > LONGEST:
        return Touched(len(parts), None, None)
    known = tuple(map(tuple, parts.values())) if len(sizes) <= MOST_SIZES else None
    return Touched(len(parts), tuple(json.loads(name) for name in parts), known)


@dataclass
class Tally:
    """The rows, bytes and partitions of the files that a decision commits."""

    decision: int
    events: int = 0
    rows: int = 0
    size: int = 0
    sizes: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def add(self, event: Event, sizes: Sizes) -> None:
        """Count the files of an event."""
        self.events += 1
        add_sizes(self.sizes, sizes)
        if isinstance(event, Checked):
            self.rows += event.rows
            self.size += event.size
        else:
            self.rows += sum(each.rows for each in event.files)
            self.size += sum(each.size for each in event.files)
