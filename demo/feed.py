"""Files for the streaming jobs, released step by step."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sluicegate.demo.data import SourceFile

_BATCH_SECONDS: Final = 0.5
_AT_ONCE: Final = 0.5
_DRIP_SECONDS: Final = 25.0


def share_due(kills: int, killed: int, batches: int, ready: float | None) -> float:
    """Return the share of its `batches` files that a job should have by now.

    `ready` is the time in seconds since the coordinator was ready.

    Every kill, and the time after the last one, gets an equal part of the files, so that there is always
    something to commit. Half of a part is released while the coordinator starts (`ready` is None), so that it
    finds work. The other half follows while it works. If no kill comes, more files follow slowly.
    """
    if killed >= kills:
        return 1.0
    part = _AT_ONCE
    if ready is not None:
        slot = max(_BATCH_SECONDS * batches / (kills + 1), _BATCH_SECONDS)
        part += (1 - _AT_ONCE) * min(ready / slot, 1.0) + max(0.0, ready - slot) / _DRIP_SECONDS
    return min((killed + part) / (kills + 1), kills / (kills + 1))


class Feed:
    """Moves files into the folders that the jobs read, in their order."""

    def __init__(self, files: Mapping[str, Sequence[SourceFile]], inbox: Path) -> None:
        self._files = files
        self._inbox = inbox
        self._given = dict.fromkeys(files, 0)
        for region in files:
            self.folder(region).mkdir(parents=True)

    def folder(self, region: str) -> Path:
        """Return the folder that the region's job reads."""
        return self._inbox / region

    def open(self, share: float) -> None:
        """Release files up to this share, from 0 to 1; a smaller share than before changes nothing."""
        for region, files in self._files.items():
            upto = math.ceil(len(files) * share)
            for file in files[self._given[region] : upto]:
                # A rename is atomic: a job never reads half a file. It also keeps the file time, which Spark
                # sorts by.
                file.path.rename(self.folder(region) / file.path.name)
            self._given[region] = max(self._given[region], upto)
