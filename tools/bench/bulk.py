"""Many files for little: real names in the table's folders, links to a few real files, and their events."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluicegate.events.files import attempt_label
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.registry import adapter
from tools.bench.common import Region, rows

ORIGINS: Final = tuple(f"A{n:02d}" for n in range(10))
ROWS: Final = 20
_MOST_LINKS: Final = 60_000
"""ext4 allows 65,000 of one file."""
_DIGITS: Final = 24
_BATCH: Final = 50
"""Events that are under way at a time."""


@dataclass(frozen=True)
class _Original:
    info: FileInfo
    name: str


class Bulk:
    """Makes events of one table, whose files are there with the size that is said of them."""

    def __init__(self, table: Path) -> None:
        self._table = table
        writer = adapter("paimon").open_writer(
            adapter("paimon").parse_table(str(table)), "at", attempt_label("s", "r", "q", 0, "w", "a")
        )
        writer.write(rows(ORIGINS, 0, ROWS))
        infos = list(writer.finish())
        self._originals = [_Original(info, os.path.basename(info.path)) for info in infos]
        self._sources = {info.path: str(table / info.path) for info in infos}
        self._location, self._schema_id = writer.location, writer.schema_id
        self._made = 0

    def events(self, count: int, files: int, digest: str, *, linked: bool = True) -> Iterator[FilesWritten]:
        """So many events of so many new files, whose names carry the digest of their attempt.

        Unless `linked`, the files themselves are not there.
        """
        for _ in range(count):
            made = tuple(self._file(digest, linked=linked) for _ in range(files))
            yield FilesWritten.model_construct(
                format="paimon",
                format_version=adapter("paimon").format_version,
                location=self._location,
                schema_id=self._schema_id,
                files=made,
            )

    async def append(
        self, region: Region, count: int, files: int, checkpoint: int = 0, *, linked: bool = True
    ) -> list[str]:
        """Append so many events of so many new files to one of the region's checkpoints; their ids."""
        ids, waiting = [], []
        for body in self.events(count, files, region.label(checkpoint), linked=linked):
            event, sent = await region.written(checkpoint, body)
            ids.append(event)
            waiting.append(sent)
            if len(waiting) >= _BATCH:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)
        return ids

    def _file(self, digest: str, *, linked: bool) -> FileInfo:
        original = self._originals[self._made % len(self._originals)]
        # As long as the original's, so that the encoded entry needs no other change.
        stem = f"data-{digest}-{self._made:0{_DIGITS}d}"
        name = stem.ljust(len(original.name) - len("-0.parquet"), "x") + "-0.parquet"
        self._made += 1
        info = original.info
        path = info.path.replace(original.name, name)
        if linked:
            self._link(info.path, str(self._table / path))
        return info.model_copy(
            update={
                "path": path,
                "metadata": info.metadata.replace(original.name.encode(), name.encode()),
            }
        )

    def _link(self, kind: str, target: str) -> None:
        source = self._sources[kind]
        if self._made % 1000 < len(self._originals) and os.stat(source).st_nlink > _MOST_LINKS:
            shutil.copyfile(source, target)
            self._sources[kind] = target
        else:
            os.link(source, target)
