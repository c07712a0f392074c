"""Settings of the listener that gives hints about small files."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from sluicegate.listeners.durations import Duration, milliseconds
from sluicegate.listeners.http_report import ReportOptions
from sluicegate.listeners.small_files.policy import Terms

ActionName = Literal["hint-event", "http-report"]
_SIZE: Final = re.compile(r"\s*(\d{1,4})\s*(KiB|MiB|GiB)\s*", re.ASCII)
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(text: str) -> int:
    """Return a size in bytes. Raises ValueError with the way out."""
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size.bit_count() != 1:
        raise ValueError(
            f"{text!r} is no power of two with a unit, and outcomes count files by powers of two. Write "
            "16MiB, 32MiB, 64MiB or 1GiB, for example"
        )
    return size


def _size(text: str) -> str:
    bytes_of(text)
    return text


class SmallFilesOptions(ReportOptions):
    """Settings of one listener of the type `small-files`."""

    smaller_than: Annotated[str, AfterValidator(_size)] = "32MiB"
    """A file below this size is small: a power of two, such as `16MiB` or `32MiB`."""
    files: Annotated[int, Field(ge=2, le=1_000_000)] = 20
    """Small files of a partition, since its last hint, that give a hint at once."""
    quiet_time: Duration = "1 h"
    """Time without further small files after which two or more of them give a hint; 0 s: no such hint."""
    actions: Annotated[tuple[ActionName, ...], Field(min_length=1)] = ("hint-event",)
    """Actions for each hint, in this order: `hint-event`, `http-report`."""
    max_partitions: Annotated[int, Field(ge=1, le=20_000)] = 10_000
    """Most partitions that are counted. With more, the one that has waited longest gets its hint early."""

    @property
    def terms(self) -> Terms:
        """Return the settings of the decision."""
        return Terms(
            smaller_than=bytes_of(self.smaller_than),
            files=self.files,
            quiet=milliseconds(self.quiet_time),
            partitions=self.max_partitions,
        )
