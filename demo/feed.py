"""Files for the streaming jobs, handed to them step by step."""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from sluicegate.demo.data import SourceFile


class Feed:
    """Moves files into the folders that the jobs read, in their order."""

    def __init__(self, files: Mapping[str, Sequence[SourceFile]], inbox: Path) -> None:
        self._files = files
        self._inbox = inbox
        self._given = dict.fromkeys(files, 0)
        self._lock = threading.Lock()
        for region in files:
            self.folder(region).mkdir(parents=True)

    def folder(self, region: str) -> Path:
        """The folder that the region's job reads."""
        return self._inbox / region

    def open(self, share: float) -> None:
        """Let the jobs have at least this share of their files, from 0 to 1; may be called in any thread."""
        with self._lock:
            for region, files in self._files.items():
                upto = math.ceil(len(files) * share)
                for file in files[self._given[region] : upto]:
                    # A rename keeps the file's time and shows it whole.
                    file.path.rename(self.folder(region) / file.path.name)
                self._given[region] = max(self._given[region], upto)
