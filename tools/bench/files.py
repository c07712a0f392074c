"""Many data files for little, in a table of any format: links to a few real ones, and their events.

In HDFS, which has no links, they are copies.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from hdfs_native import Client

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.registry import adapter
from tools.bench.common import label_of

_MOST_LINKS: Final = 60_000
"""ext4 allows 65,000 of one file."""


class Files:
    """New data files of one table, local or in HDFS: each is one real file of its partition."""

    def __init__(
        self,
        format_name: str,
        location: str,
        options: Mapping[str, str],
        rows: pa.RecordBatch,
        event_time: str | None = None,
    ) -> None:
        """`rows` are those of the real files."""
        self._adapter = adapter(format_name)
        label = label_of(0)
        table = self._adapter.parse_table(location, options)
        writer = self._adapter.open_writer(table, event_time, label)
        writer.write(rows)
        self._infos = list(writer.finish())
        self._first = label
        self._schema_id, self._spec_id, self.location = writer.schema_id, writer.spec_id, writer.location
        place = urlsplit(writer.location)
        self._root = unquote(place.path)
        self._client = Client(f"hdfs://{place.netloc}") if place.scheme == "hdfs" else None
        self._sources = [self._path(info) for info in self._infos]
        self._links = [1] * len(self._infos)
        self._linked: list[str] = []

    def events(self, files: int, checkpoint: int, each: int) -> Iterator[FilesWritten]:
        """Yield events of so many new files, which are there, with `each` in an event."""
        label = label_of(checkpoint)
        for start in range(0, files, each):
            kinds = (number % len(self._infos) for number in range(start, min(start + each, files)))
            yield FilesWritten.model_construct(
                format=self._adapter.name,
                format_version=self._adapter.format_version,
                location=self.location,
                schema_id=self._schema_id,
                spec_id=self._spec_id,
                files=tuple(self._new(kind, label) for kind in kinds),
            )

    def drop(self) -> None:
        """Remove the new files, which nothing reads."""
        for path in self._linked:
            os.unlink(path) if self._client is None else self._client.delete(path)
        self._linked.clear()

    def _new(self, kind: int, label: str) -> FileInfo:
        """Return a file with a name of the same length, so that its encoded entry needs no other change."""
        info = self._infos[kind]
        old = info.path[info.path.rfind("/") + 1 :]
        start = old[: old.index(self._first)]
        # The number of a checkpoint may have more digits than that of the real file: then fewer are random.
        rest = len(old) - len(start) - len(label) - len("-.parquet")
        name = f"{start}{label}-{uuid.uuid4().hex * 2:.{rest}}.parquet"
        made = info.model_copy(
            update={
                "path": info.path.replace(old, name),
                "metadata": info.metadata.replace(old.encode(), name.encode()),
            }
        )
        self._link(kind, self._path(made))
        return made

    def _link(self, kind: int, target: str) -> None:
        self._linked.append(target)
        if self._client is not None:
            content = self._client.read(self._sources[kind]).read()
            with self._client.create(target) as file:
                file.write(content)
            return
        self._links[kind] += 1
        if self._links[kind] > _MOST_LINKS:
            # A source stays, also after `drop`.
            source = f"{target}.source"
            shutil.copyfile(self._sources[kind], source)
            self._sources[kind], self._links[kind] = source, 2
        os.link(self._sources[kind], target)

    def _path(self, info: FileInfo) -> str:
        return f"{self._root}/{info.path}"
